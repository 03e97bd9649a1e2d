"""Render the jinja templates in `templates/`; values are escaped as HTML or Markdown, by the file name of the template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from jinja2 import Environment
from markupsafe import Markup, escape

from sentdist.report.comparisons import AVERAGE
from sentdist.report.leaks import LEAKS_HEADER
from sentdist.report.style import Drawing, inline_svg
from sentdist.report.tables import interval_text, leaked_text, mark, num_seeds, tooltip
from sentdist.text import environment as plain_environment
from sentdist.text import escaped, markdown_environment, merged


def render(template: str, **values: object) -> str:
    """Render a template, for example `sweep.html.jinja`; in Markdown, blank lines are merged.

    Raises:
        UndefinedError: the template uses a value that is missing.
    """
    # contents: sections append their titles to it, for the links at the head of the page
    text = environment(template.split(".")[-2]).get_template(template).render(contents=[], **values)
    return merged(text) + "\n" if template.endswith(".md.jinja") else text


@cache
def environment(kind: str) -> Environment:
    """Return the jinja2 environment of `html` or `md`; every value is escaped unless it is Markup."""
    made = plain_environment("sentdist.report") if kind == "html" else markdown_environment("sentdist.report")
    shared = (interval_text, leaked_text, mark, num_seeds, tooltip)
    made.filters |= {function.__name__: function for function in shared}
    made.filters |= {"score": lambda value: f"{value:.2f}", "signed": lambda value: f"{value:+.2f}"}
    made.globals |= {"AVERAGE": AVERAGE, "LEAKS_HEADER": LEAKS_HEADER, "zip": partial(zip, strict=True)}
    if kind == "html":
        made.filters |= {"anchor": anchor, "inline": inline_svg, "commands": lambda text: _commands(text, escape, "<code>{}</code>")}
    else:
        made.filters |= {
            "cells": _cells,
            "json": lambda value: Markup(json.dumps(value)),
            "commands": lambda text: _commands(text, escaped, "`{}`"),
        }
    return made


def anchor(title: str) -> str:
    """Return the URL fragment of a section, to which the links at the head of the page point."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _commands(text: str, escaped: Callable[[str], Markup], code: str) -> Markup:
    """Mark text between backticks as code if it has only the characters of commands and fields."""
    parts = re.split(r"`(\w[\w:./ -]*\w)`", text)
    return Markup("").join(Markup(code.format(part)) if place % 2 else _inside(part, escaped) for place, part in enumerate(parts))


def _inside(text: str, escaped: Callable[[str], Markup]) -> Markup:
    """Escape a text but keep the blanks at its ends."""
    bare = text.strip()
    start = text.index(bare)
    return Markup(text[:start]) + escaped(bare) + Markup(text[start + len(bare) :])


def _cells(row: Sequence[object]) -> Markup:
    return Markup(" | ".join(map(escaped, row)))


@dataclass(frozen=True, kw_only=True)
class Block:
    """A titled part of a page: sentences (`said`), links (name -> URL), a table, figures; in this order."""

    title: str
    said: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    drawings: Sequence[Drawing] = ()
    links: Mapping[str, str] = field(default_factory=dict)
