"""A report's Markdown as people read it on a terminal: tables in columns; no markup, no pictures, no citations, which files have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

CITATIONS = "\n## Citations\n"
PICTURE = re.compile(r"!\[(.*)\]\(\S+\)")
LINK = re.compile(r"\[((?:\\.|[^\\\]])*)\]\(((?:[^\s()]|\([^\s()]*\))+)\)")
TAG = re.compile(r"</?[a-z]+>")  # the templates'; those of titles and data are entities
BOLD = re.compile(r"(?<!\\)\*\*")
ESCAPE = re.compile(r"\\(?=[^\w\s])")
BAR = re.compile(r"(?<!\\)\|")
HEADING = re.compile(r"#+ ")


def terminal_page(markdown: str, *, has_styles: bool) -> Iterator[Text | Table]:
    """What a console prints of a report, in its order: lines, and tables. has_styles: it can show bold; else its asterisks stay."""
    from rich.text import Text

    lines = iter(markdown.partition(CITATIONS)[0].splitlines())
    caption, is_blank = "", True
    for line in lines:
        if picture := PICTURE.fullmatch(line):
            caption = plain(picture[1])
            continue
        if line.startswith("|"):
            rows = [line]
            for after in lines:
                if not after.startswith("|"):
                    break
                rows.append(after)
            yield _table(rows, has_styles=has_styles)
            is_blank = True  # it ends with one
            continue
        text = plain(HEADING.sub("", line))
        if text == caption or not text:  # words about a picture that is not there
            if not is_blank:
                yield Text()
            is_blank = True
            continue
        yield Text(text, style="bold") if HEADING.match(line) else _styled(line, has_styles=has_styles)
        is_blank = False


def plain(markdown: str) -> str:
    """A line without markup."""
    return _bare(BOLD.sub("", markdown)).strip()


def _bare(markdown: str) -> str:
    return unescape(ESCAPE.sub("", TAG.sub("", LINK.sub(r"\1 (\2)", markdown))))


def _styled(markdown: str, *, has_styles: bool) -> Text:
    from rich.text import Text

    if not has_styles:
        return Text("**".join(map(_bare, BOLD.split(markdown))).strip())
    parts = [(_bare(part), "bold" if place % 2 else "") for place, part in enumerate(BOLD.split(markdown))]
    return Text.assemble(*parts)


def _table(lines: list[str], *, has_styles: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    header, rule, *rows = [[cell.strip() for cell in BAR.split(line.strip())[1:-1]] for line in lines]
    table = Table(box=box.SIMPLE_HEAD)
    for name, side in zip(header, rule, strict=True):
        table.add_column(Text(plain(name)), justify="left" if side.startswith(":") else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_styled(cell, has_styles=has_styles) for cell in row))
    return table
