"""How a drawing becomes part of a page: its SVG with ids of its own, and titles that browsers show under the mouse."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from markupsafe import Markup

from sentdist.report.style import Drawing


def inline_svg(drawing: Drawing) -> Markup:
    """The `<svg>` of a drawing; ids are made the figure's own, since several share a page."""
    svg = drawing.svg[drawing.svg.index("<svg") :]
    for group, texts in drawing.hover.items():
        svg = _with_titles(svg, group, texts)
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda found: f"{found[1]}{drawing.name}-", svg)
    opening = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
    label = html.escape(drawing.caption)
    return Markup(
        re.sub(r'<svg [^>]*?(viewBox="[^"]+")[^>]*>', lambda found: f'<svg {found[1]} {opening} aria-label="{label}">', svg, count=1)
    )


def _with_titles(svg: str, group: str, texts: Sequence[str]) -> str:
    """The marks of a group, each a `<use/>` in the order they were drawn, with a title that browsers show under the mouse."""
    start = svg.index(f'<g id="{group}"')
    head, marks = svg[:start], svg[start:]
    for text in texts:
        before, mark, marks = re.split(r"(<use [^>]*?)/>", marks, maxsplit=1)
        head += f"{before}{mark}><title>{html.escape(text)}</title></use>"
    return head + marks
