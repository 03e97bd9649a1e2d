"""Lines of JSON that are none: which line, and how it is written right."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sentdist.errors import DataError, one_line


def refuse_line(where: str, lines: Iterable[str]) -> None:
    """Raise DataError for the first line that is no JSON object."""
    for number, line in enumerate(lines, start=1):
        if line.strip() and not _is_object(line):
            raise no_object(where, number, line)


def no_object(where: str, number: int, line: str) -> DataError:
    """The error for a line, from 1, that is no JSON object."""
    return DataError(
        where=f"{where}: line {number:,}", found=one_line(line.strip(), 60), expected="a JSON object", remedy=_remedy(number, line)
    )


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _remedy(number: int, line: str) -> str:
    plain = line.strip()
    if number == 1 and plain.startswith("["):
        return "A list of objects is called .json; of .jsonl each line is an object."
    if _is_object(plain.rstrip(",")):
        return "Leave the comma behind it out: each line is an object by itself."
    if plain.startswith("{'"):
        return "JSON's texts stand in double quotation marks: json.dumps writes them so, str does not."
    return "Correct that line."
