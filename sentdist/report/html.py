"""How a report becomes one self-contained HTML page: style sheet and figures inline, nothing fetched, no script."""

from __future__ import annotations

import html
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentdist.report.style import Drawing


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled part of a page; `body` is HTML made by this package (`to_html`, `drawing_to_html`, `paragraphs`, …)."""

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """The fragment that the page's contents link to."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def page(
    *, title: str, lead: str, sections: Sequence[Section], facts: Mapping[str, str], kicker: str = "sentdist report", about: str = ""
) -> str:
    """A whole HTML document. `lead` is the finding in a sentence or two; beneath it stand `about`, the question, and `facts` (encoder,
    data, versions)."""
    style = importlib.resources.files("sentdist.report").joinpath("page.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{section.anchor}">{html.escape(section.title)}</a>' for section in sections)
    named = "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts.items())
    body = "".join(f'<section id="{section.anchor}"><h2>{html.escape(section.title)}</h2>{section.body}</section>' for section in sections)
    asked = f'<p class="about">{html.escape(about)}</p>' if about and about != lead else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<header class="top"><p class="kicker">{html.escape(kicker)}</p><h1>{html.escape(title)}</h1>'
        f'<p class="lead">{html.escape(lead)}</p>{asked}<dl class="facts">{named}</dl></header>\n<nav>{links}</nav>\n<main>\n{body}\n</main>\n'
        "<footer>Every number on this page is a function of the records in the artifact store.</footer>\n</body>\n</html>\n"
    )


def drawing_to_html(drawing: Drawing) -> str:
    """A `<figure>` with the drawing inline as SVG; ids are made the figure's own, since several share a page."""
    svg = drawing.svg[drawing.svg.index("<svg") :]
    for group, texts in drawing.hover.items():
        svg = _with_titles(svg, group, texts)
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda found: f"{found[1]}{drawing.name}-", svg)
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]+")[^>]*>', r'<svg \1 xmlns="http://www.w3.org/2000/svg" '
                 rf'xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-label="{html.escape(drawing.caption)}">', svg, count=1)  # fmt: skip
    return f'<figure class="drawing">{svg}<figcaption>{html.escape(drawing.caption)}</figcaption></figure>'


def _with_titles(svg: str, group: str, texts: Sequence[str]) -> str:
    """The marks of a group, each a `<use/>` in the order they were drawn, with a title that browsers show under the mouse."""
    start = svg.index(f'<g id="{group}"')
    head, marks = svg[:start], svg[start:]
    for text in texts:
        before, mark, marks = re.split(r"(<use [^>]*?)/>", marks, maxsplit=1)
        head += f"{before}{mark}><title>{html.escape(text)}</title></use>"
    return head + marks


def paragraphs(*texts: str) -> str:
    """Plain text, one `<p>` each."""
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)


def code_block(text: str, *, summary: str | None = None) -> str:
    """Preformatted text (a command, a recipe); with `summary`, folded away under that line."""
    block = f"<pre><code>{html.escape(text)}</code></pre>"
    return block if summary is None else f"<details><summary>{html.escape(summary)}</summary>{block}</details>"


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, its first column the row's name."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>' + "".join(f"<td>{html.escape(value)}</td>" for value in row[1:]) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
