"""Render the Markdown templates in `templates/`, and make an HTML page of a Markdown report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup

from sentdist.report.leaks import LEAKS_HEADER
from sentdist.report.style import Drawing, inline_svg
from sentdist.report.tables import interval_text, leaked_text, mark, num_seeds
from sentdist.text import environment as html_environment
from sentdist.text import escaped, markdown_environment, merged

# Parts of a cell's HTML -> their class in the style sheet.
_CELL_PARTS = {
    r" (± \d[\d.]*)": "sd",
    r" (\[[-+\d.]+, [-+\d.]+\])": "ci",
    r" (↑)": "better",
    r" (↓)": "worse",
    r" <strong>(leaked [^<]*)</strong>": "leaked",
}
Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # header and rows


@dataclass(frozen=True, kw_only=True)
class Block:
    """A titled part of a page: sentences (`said`), tables of texts, figures; in this order."""

    title: str
    said: Sequence[str] = ()
    tables: Sequence[Table] = ()
    drawings: Sequence[Drawing] = ()


@dataclass(kw_only=True)
class _Section:
    """A part of the page under a heading of level 1 to 3."""

    level: int
    title: str
    html: str

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def render(template: str, **values: object) -> str:
    """Render a template, for example `sweep.md.jinja`; blank lines are merged.

    Raises:
        UndefinedError: the template uses a value that is missing.
    """
    return merged(environment().get_template(template).render(**values)) + "\n"


@cache
def environment() -> Environment:
    made = markdown_environment("sentdist.report")
    made.filters |= {one.__name__: one for one in (interval_text, leaked_text, mark, num_left, num_seeds)}
    made.filters |= {
        "score": lambda value: f"{value:.2f}",
        "cells": lambda row: Markup(" | ".join(map(escaped, row))),
        "json": lambda value: Markup(json.dumps(value)),
        "commands": _commands,
        "code": lambda text: Markup("\n".join(f"    {line}" for line in text.splitlines())),  # a fence could be closed by the text
    }
    made.globals |= {"LEAKS_HEADER": LEAKS_HEADER, "zip": partial(zip, strict=True)}
    return made


def num_left(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of leading columns that hold words, which are aligned to the left."""
    has_words = [any(re.search(r"[^\W\d_]{3}", cell) for cell in column) for column in zip(*rows, strict=True)]
    return max(1, (*has_words, False).index(False))


def _commands(text: str) -> Markup:
    """Escape a text, except that commands and fields between backticks stay code."""
    parts = re.split(r"(`\w[\w:./ -]*\w`)", text)
    return Markup("").join(
        Markup(part) if place % 2 else Markup(re.sub(r"\S(.*\S)?", lambda found: str(escaped(found[0])), part, count=1, flags=re.DOTALL))
        for place, part in enumerate(parts)
    )


def html_page(markdown: str, drawings: Iterable[Drawing] = ()) -> str:
    """Return a Markdown report as one HTML document, with style sheet and figures inline and no script.

    Headings of level 2 become sections and links at the top; those of level 3 are folded away.

    Args:
        drawings: figures that the Markdown refers to as `{name}.svg`.
    """
    figures = {f"{one.name}.svg": inline_svg(one) for one in drawings}
    converter = MarkdownIt("commonmark", {"html": True}).enable("table")
    converter.add_render_rule("image", lambda _, tokens, place, *__: figures.get(str(tokens[place].attrs["src"]), ""))
    converter.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>\n')
    converter.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = converter.parse(markdown)
    starts = [place for place, token in enumerate(tokens) if token.type == "heading_open"]
    sections = []
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        html = converter.renderer.render(tokens[start + 3 : end], converter.options, {})
        html = re.sub(r"<td[^>]*>.*?</td>", lambda cell: _styled(cell[0]), html, flags=re.DOTALL)
        title = "".join(child.content for child in tokens[start + 1].children or ())
        sections.append(_Section(level=int(tokens[start].tag[1]), title=title, html=Markup(html)))
    return html_environment("sentdist.report").get_template("page.html.jinja").render(sections=sections)


def _styled(cell: str) -> str:
    for pattern, name in _CELL_PARTS.items():
        cell = re.sub(pattern, rf' <span class="{name}">\1</span>', cell)
    return cell
