"""The objects in JSON, and what is said where there are none: which line or value it is, and how it is written right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from sentdist.errors import DataError, brief, listed, one_line

Objects = list[dict[str, Any]]
BLANKS = re.compile("[ \\t\\r\\n]*")
RECORDS = 'Write a list of objects, [{"question": …, "answer": …}, …]'


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


def values_in(text: str) -> object:
    """The value in a text of JSON; of several objects, one behind the other, their list. JSONDecodeError for what is no JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data" or not text.lstrip().startswith("{"):
            raise
    values, decoder, place = [], json.JSONDecoder(), 0
    while (place := BLANKS.match(text, place).end()) < len(text):  # type: ignore[union-attr]
        value, place = decoder.raw_decode(text, place)
        values.append(value)
    return values


def objects_in(where: str, value: object) -> Objects:
    """The list of objects that a value is, or the only one under a key of an object that has no other lists or objects.

    Raises:
        DataError: another value, with how to write it.
    """
    if _are_objects(value):
        return value
    if not isinstance(value, dict):
        raise _no_list(where, f"a list of {_kind(next(iter(value), None))}" if isinstance(value, list) else _kind(value), f"{RECORDS}.")
    inner = {key: one for key, one in value.items() if isinstance(one, list | dict)}
    lists = {key: one for key, one in inner.items() if one and _are_objects(one)}
    if len(inner) == len(lists) == 1:
        return next(iter(lists.values()))
    if len(lists) > 1:
        found = f"an object with several lists of objects, under {listed(list(lists))}"
        raise _no_list(where, found, "Write each into a file of its own, or one below the other.")
    if lists:
        found = f"an object with a list of objects under {listed(list(lists))}, beside {listed([key for key in inner if key not in lists])}"
        raise _no_list(where, found, "Write that list alone.")
    if inner and len(inner) == len(value):
        raise _no_list(where, f"an object of columns, {listed(list(value))}", f'{RECORDS}: of pandas, to_json(path, orient="records").')
    raise _no_list(where, f"an object with the keys {listed(list(value)[:3])}{', …' if len(value) > 3 else ''}", f"{RECORDS}.")


def _are_objects(value: object) -> TypeGuard[Objects]:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _kind(value: object) -> str:
    """What a value of JSON is, in a word or two."""
    match value:
        case list():
            return "lists"
        case str():
            return "texts"
        case Mapping():
            return "objects and others"
        case _:
            return brief(value)


def _no_list(where: str, found: str, remedy: str) -> DataError:
    return DataError(where=where, found=found, expected="JSON, a list of objects", remedy=remedy)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _remedy(number: int, line: str) -> str:
    plain = line.strip()
    if plain.startswith("[") and plain.endswith("]") and not plain.startswith("[{"):
        return 'Write an object in each line, such as {"anchor": …, "positive": …}.'
    if number == 1 and plain.startswith("["):
        return "A list of objects is called .json; of .jsonl each line is an object."
    if _is_object(plain.rstrip(",")):
        return "Leave the comma behind it out: each line is an object by itself."
    if plain.startswith("{'"):
        return "JSON's texts stand in double quotation marks: json.dumps writes them so, str does not."
    return "Correct that line."
