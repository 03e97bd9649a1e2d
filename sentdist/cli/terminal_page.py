"""A report's Markdown as people read it on a terminal: what was found, and tables that fit; details and pictures are in the files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

END = re.compile(r"^## (Details|Citations)$", re.MULTILINE)  # the files have more
NOTES = "<sub>"  # what marks in tables mean
INTERVAL = re.compile(r" \[[^\[\]]*, [^\[\]]*\]")
SPREAD = re.compile(r" ± [\d.]+")
PICTURE = re.compile(r"!\[(.*)\]\(\S+\)")
LINK = re.compile(r"\[((?:\\.|[^\\\]])*)\]\(((?:[^\s()]|\([^\s()]*\))+)\)")
TAG = re.compile(r"</?[a-z]+>")  # the templates'; those of titles and data are entities
BOLD = re.compile(r"(?<!\\)\*\*")
ESCAPE = re.compile(r"\\(?=[^\w\s])")
BAR = re.compile(r"(?<!\\)\|")
HEADING = re.compile(r"#+ ")


def terminal_page(markdown: str, *, width: int) -> Iterator[Text | Table]:
    """What a console prints of a report, in its order: lines, and tables of at most `width` letters, if need be without intervals, then
    without deviations."""
    from rich.text import Text

    lines = iter(END.split(markdown, maxsplit=1)[0].splitlines())
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
            yield _table(rows, width)
            is_blank = True  # it ends with one
            continue
        text = plain(HEADING.sub("", line))
        if text == caption or not text or line.startswith(NOTES):  # words about a picture that is not there
            if not is_blank:
                yield Text()
            is_blank = True
            continue
        yield Text(text, style="bold") if HEADING.match(line) else _styled(line)
        is_blank = False


def plain(markdown: str) -> str:
    """A line without markup."""
    return _bare(BOLD.sub("", markdown)).strip()


def _bare(markdown: str) -> str:
    return unescape(ESCAPE.sub("", TAG.sub("", LINK.sub(r"\1 (\2)", markdown))))


def _styled(markdown: str) -> Text:
    from rich.text import Text

    return Text.assemble(*((_bare(part), "bold" if place % 2 else "") for place, part in enumerate(BOLD.split(markdown))))


def _table(lines: list[str], width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    header, rule, *rows = [[cell.strip() for cell in BAR.split(line.strip())[1:-1]] for line in lines]
    for pattern in (INTERVAL, SPREAD):
        needed = 2 + sum(2 + max(len(plain(row[place])) for row in (header, *rows)) for place in range(len(header)))
        if needed > width:
            rows = [[row[0], *(pattern.sub("", cell) for cell in row[1:])] for row in rows]
    table = Table(box=box.SIMPLE_HEAD)
    for name, side in zip(header, rule, strict=True):
        table.add_column(Text(plain(name)), justify="left" if side.startswith(":") else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(_styled, row))
    return table
