"""jinja2's settings for the templates of a package, and what they mean for pages in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sentdist.table_text import markdown_link, markdown_table, markdown_text


def environment(package: str) -> Environment:
    """For HTML: every value is escaped, unless it is Markup; what is missing is an error."""
    return Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, extensions=["jinja2.ext.do"],
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def markdown_environment(package: str) -> Environment:
    """The same for Markdown: a value shows as it is."""
    made = environment(package)
    made.finalize = escaped
    made.filters["link"] = lambda name, url: Markup(markdown_link(name, url))
    made.globals["text_table"] = _table
    return made


def merged(text: str) -> str:
    """What a template has made, without the blank lines that stand in it to be read."""
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def escaped(value: object) -> Markup:
    """A value as Markdown that shows it as it is."""
    return value if isinstance(value, Markup) else Markup(markdown_text(value))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1) -> Markup:
    return Markup(markdown_table(list(map(escaped, header)), [list(map(escaped, row)) for row in rows], num_left=num_left))
