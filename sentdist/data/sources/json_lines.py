"""Read objects from JSON and JSON lines, with errors that name the line; refuse files that are no tables (web pages, archives)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from sentdist.data.own.columns import KNOWN_NAMES
from sentdist.errors import DataError, brief, counted, listed, one_line
from sentdist.files import GZIP_BEGINS, PARQUET, suffix_of

Objects = list[dict[str, Any]]
BLANKS = re.compile("[ \\t\\r\\n]*")
RECORDS = 'Write a list of objects, [{"question": …, "answer": …}, …]'


def rows_in(where: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the object in each line that is not blank. Arrays become objects with the keys 1, 2, …, or the column names in the first line.

    Raises:
        DataError: a line that is neither an object nor an array; arrays of different lengths.
    """
    names: Sequence[str] | None = None
    filled = ((number, line, _value(line)) for number, line in enumerate(lines, start=1) if line.strip())
    for place, (number, line, value) in enumerate(filled):
        if place == 0 and _is_array(value):
            names, is_row = _names_of(value)
            if not is_row:
                continue
        if names is None and isinstance(value, dict):
            yield value
        elif names is not None and _is_array(value):
            yield _under(names, value, f"{where}: line {number:,}")
        else:
            raise no_object(where, number, line)


def _is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is the array of a row; a list of objects is a table."""
    return isinstance(value, list) and bool(value) and not any(isinstance(cell, dict) for cell in value)


def _names_of(first: Sequence[object]) -> tuple[Sequence[str], bool]:
    """The keys for the values of arrays, and whether the first array is a row rather than a header."""
    cells = [cell.strip() if isinstance(cell, str) else "" for cell in first]
    if sum(cell.casefold() in KNOWN_NAMES for cell in cells) > 1 and len(set(cells)) == len(cells) and all(cells):
        return cells, False
    return [str(number) for number in range(1, len(first) + 1)], True


def _under(names: Sequence[str], values: Sequence[object], where: str) -> dict[str, Any]:
    if len(values) != len(names):
        remedy = 'Correct it, or write objects, which may lack a key: {"anchor": …, "positive": …}.'
        raise DataError(where=where, found=counted(len(values), "value"), expected=f"{len(names)}, as in the first array", remedy=remedy)
    return dict(zip(names, values, strict=True))


def no_object(where: str, number: int, line: str) -> DataError:
    """Return the error for a line, numbered from 1, that is no JSON object."""
    return DataError(
        where=f"{where}: line {number:,}", found=one_line(line.strip(), 60), expected="a JSON object", remedy=_remedy(number, line)
    )


def values_in(text: str) -> object:
    """Return the value of a JSON text, or the list of several concatenated objects; raise JSONDecodeError for other text."""
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
    """Return a value as a list of objects: itself, the list of objects in an object without other lists, or arrays as in `rows_in`.

    Raises:
        DataError: any other value.
    """
    if _are_objects(value):
        return value
    if isinstance(value, list) and all(map(_is_array, value)):
        names, is_row = _names_of(value[0])
        return [_under(names, row, f"{where}: list {number:,}") for number, row in enumerate(value, 1) if is_row or number > 1]
    if not isinstance(value, dict):
        raise _no_list(where, f"a list of {_kind(next(iter(value), None))}" if isinstance(value, list) else _kind(value), f"{RECORDS}.")
    inner = {key: one for key, one in value.items() if isinstance(one, list | dict)}
    lists = {key: one for key, one in inner.items() if one and _are_objects(one)}
    if len(inner) == len(lists) == 1:
        return next(iter(lists.values()))
    if len(lists) > 1:
        found = f"an object with several lists of objects, under {listed(list(lists))}"
        raise _no_list(where, found, "Write each into a separate file, or all into one list.")
    if lists:
        found = f"an object with a list of objects under {listed(list(lists))}, beside {listed([key for key in inner if key not in lists])}"
        raise _no_list(where, found, "Write that list alone.")
    if inner and len(inner) == len(value):
        raise _no_list(where, f"an object of columns, {listed(list(value))}", f'{RECORDS} (pandas: to_json(path, orient="records")).')
    raise _no_list(where, f"an object with the keys {listed(list(value)[:3])}{', …' if len(value) > 3 else ''}", f"{RECORDS}.")


def _are_objects(value: object) -> TypeGuard[Objects]:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _kind(value: object) -> str:
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


def _value(line: str) -> object:
    """The JSON value, None for invalid JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _remedy(number: int, line: str) -> str:
    plain = line.strip()
    if isinstance(_value(line), str):
        return 'Write {"text": …} in each line, or a .txt file with one sentence per line.'
    if plain.startswith("[") and plain.endswith("]") and not plain.startswith("[{"):
        return 'Write an object in each line, such as {"anchor": …, "positive": …}, or an array in each.'
    if number == 1 and plain.startswith("["):
        return "A list of objects is called .json; in .jsonl each line is an object."
    if isinstance(_value(plain.rstrip(",")), dict):
        return "Remove the comma at its end: each line is a separate object."
    if plain.startswith("{'"):
        return "JSON requires double quotation marks: use json.dumps, not str."
    return "Correct that line."


BEGIN = 1 << 12  # bytes to look at
GIT_LFS, GIT_ANNEX = b"version https://git-lfs.github.com/spec/", b"/annex/objects/"
PACKED, PARQUET_BEGINS = b"PK\x03\x04", b"PAR1"
PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL)
XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\s")
TITLE = re.compile(rb"<(title|code|h1)[^>]*>\s*([^<]{1,200})", re.IGNORECASE)


def refuse_other_content(name: str, path: Path, begin: bytes) -> None:
    """Raise DataError for a file that is neither a table nor text, regardless of its name.

    Args:
        begin: its first bytes, decompressed if it is named .gz.
    """
    kind, fetch = suffix_of(path)[1:] or "text", "Fetch the file itself"
    if begin.startswith(GIT_LFS):
        raise _other_content(name, "a pointer of Git LFS to a file that was not fetched", kind, "Run `git lfs pull` in its repository.")
    if begin.startswith(GIT_ANNEX):
        raise _other_content(
            name, "a pointer of git-annex to a file that was not fetched", kind, f"Run `git annex get {path.name}` in its folder."
        )
    if PAGE.match(begin):
        raise _other_content(name, f"a web page{_title(begin)}", kind, f"{fetch}: a server sent a page instead, such as a login page.")
    if XML.match(begin):
        raise _other_content(name, f"an XML document{_title(begin)}", kind, f"{fetch}, or write its texts as CSV.")
    if begin.startswith(PACKED):
        raise _other_content(name, "a spreadsheet or an archive", "a table of texts", "Save it as CSV in your spreadsheet program.")
    if begin.startswith(GZIP_BEGINS):
        raise _other_content(name, "a gzip file", f"{suffix_of(path) or 'text'}, as its name says", f"Call the file {path.name}.gz.")
    if begin.startswith(PARQUET_BEGINS) and suffix_of(path) != PARQUET:
        raise _other_content(name, "a Parquet file", kind, f"Call the file {path.stem}{PARQUET}.")


def _title(begin: bytes) -> str:
    """The title of a page, which may explain why it was sent."""
    found = TITLE.search(begin)
    return "" if found is None else f", {brief(html.unescape(found[2].decode(errors='replace')).strip())}"


def _other_content(name: str, found: str, kind: str, remedy: str) -> DataError:
    return DataError(where=name, found=found, expected=kind if " " in kind or "." in kind else f"{kind}, as its name says", remedy=remedy)
