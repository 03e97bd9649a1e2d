"""Tables as text for other programs: CSV that no spreadsheet takes for formulas, Markdown that no page takes for markup."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import IO

Row = Sequence[object]

# What a spreadsheet takes for the beginning of a formula (OWASP, "CSV Injection"); white space before it is skipped by some.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n\x00]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")
# An underscore inside a word is a letter, and brackets are markup only where a link, its definition or a footnote can begin.
_MARKUP = re.compile(r"[\\`*<>|~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|\[(?=\^)")
_MARKUP_IN_LINKS = re.compile(rf"{_MARKUP.pattern}|[\[\]]")
_LINE_START = re.compile(r"^(?:(?:#{1,6}|[-+=]+)(?=\s|$)|\d+(?=[.)](?:\s|$)))")  # a heading, a list, a rule
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


def csv_text(rows: Iterable[Row]) -> str:
    """Rows as CSV; see `write_csv`."""
    out = io.StringIO()
    write_csv(out, rows)
    return out.getvalue()


def write_csv(out: IO[str], rows: Iterable[Row]) -> None:
    """Write rows as CSV, quoted where needed; a text that a spreadsheet would take for a formula gets an apostrophe before it.

    Numbers, as values or as text, stay numbers, negative ones too; floats as `repr` writes them.
    """
    out.writelines(",".join(_quoted(csv_cell(value)) for value in row) + "\n" for row in rows)


def csv_cell(value: object) -> object:
    """A value that is safe in a cell of a CSV file."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def markdown_text(text: object) -> str:
    """A text that Markdown shows as it is: on one line, no markup, no HTML, no bar that would end a cell."""
    escaped = _escape(text, _MARKUP)
    return _LINE_START.sub(lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", escaped)


def markdown_link(text: object, url: str) -> str:
    """A link with a text that is shown as it is; `!` before it makes it a picture."""
    return f"[{_escape(text, _MARKUP_IN_LINKS)}]({url})"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, num_left: int = 1) -> str:
    """A GitHub table of cells that are Markdown already (`markdown_text` makes them so); the first `num_left` columns stand left."""
    rule = "".join(":--|" if column < num_left else "--:|" for column in range(len(header)))
    return "\n".join([_line(header), f"|{rule}", *(_line(row) for row in rows)])


def _quoted(value: object) -> str:
    """As csv.writer writes it, but a lone carriage return is quoted too: Python 3.11 leaves it bare, and readers end the row there."""
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: object, markup: re.Pattern[str]) -> str:
    line = _BREAKS.sub(" ", str(text)).strip()
    return markup.sub(lambda found: {"<": "&lt;", ">": "&gt;"}.get(found[0], f"\\{found[0]}"), _ENTITY.sub("&amp;", line))
