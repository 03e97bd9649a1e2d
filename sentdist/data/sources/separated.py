"""Recognise the encoding, separator and header of a text file; read separated values as a table."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.sources.csv_dialect import (
    SEPARATORS,
    check_escapes,
    check_quotes,
    fields,
    long_fields,
    looks_like_one_column,
    names_columns,
    quoting,
    separators,
    titles_above,
    unquoted,
    usual_separator,
)
from sentdist.data.sources.file_facts import refuse_repeated
from sentdist.data.sources.json_lines import BEGIN, refuse_other_content
from sentdist.errors import DataError, brief, listed
from sentdist.files import (
    ARROW,
    PARQUET,
    PLAIN_SUFFIX,
    SAVE_AS_UTF8,
    SEPARATED,
    disk_size,
    is_packed,
    open_bytes,
    open_text,
    reading,
    suffix_of,
    whole_text,
)

if TYPE_CHECKING:
    import pyarrow as pa


# What no Western European word contains; ’ ´ · … – — and soft hyphens may occur.
_ODD_SIGN = "[€‚ƒ„†‡ˆ‰‹“•˜™›¡¢£¤¥¦§¨©ª«¬®¯°±²³¶¸¹º»¼½¾¿](?=[a-zß-ÿœšž])"
_ODD_CAPITAL = "[À-ÖØ-ÞŠŒŽŸ](?=[a-zß-ÿ ])"  # Mac Roman's ä, ö, ü
_ODD = re.compile(f"(?<=[a-zß-ÿ])(?:{_ODD_SIGN}|{_ODD_CAPITAL})|[\x80-\x9f]")  # the last are no characters of cp1252
_WORD = r"[^\s,;:|\"'()]"
LEAST_ODD, LEAST_STRANGE = 0.05, 0.04  # shares of the non-ASCII characters
# Pairs of letters that no Western European language combines; in other code pages they are č and ř, ő and ű, ş and ü, š and ė. In English
# text with foreign names each of the two is below the share.
STRANGERS = (("ìï", "ø"), ("èù", "ø"), ("õ", "û"), ("ð", "çüâëàè"), ("þ", "çüâëãêîàèø"), ("ý", "çüãêë"), ("æ", "ê"))
OTHERS = ("mac-roman", "cp850", "cp1250", "cp1254", "cp1257")  # encodings in which a word is shown


def hardly_western(begin: bytes) -> str | None:
    """Return why bytes are probably not cp1252, with a word in several encodings; None if they may be cp1252."""
    windows = "".join(chr(byte) if byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([byte]).decode("cp1252") for byte in range(256))
    text = begin.decode("latin-1").translate({place: letter for place, letter in enumerate(windows)})
    beyond = Counter(letter.lower() for letter in re.findall("[^\x00-\x7f]", text))
    total = beyond.total()
    odd = [found.start() for found in _ODD.finditer(text)]
    if odd and len(odd) >= LEAST_ODD * total and (len(odd) > 1 or total < 3):
        return _shown(text, odd[0])
    for one, other in (pair for group in STRANGERS for pair in product(*group)):
        are_there = min(beyond[one], beyond[other]) >= max(2, LEAST_STRANGE * total)
        # In one word: a file in two languages may have both letters, such as Italian and Danish.
        if are_there and (word := re.search(rf"{one}\w{{0,20}}{other}|{other}\w{{0,20}}{one}", text.lower())):
            return _shown(text, word.start())
    return None


def _shown(text: str, place: int) -> str:
    """The word around that place, also in other encodings."""
    start = place - len(re.search(f"{_WORD}*$", text[max(0, place - 30) : place])[0])  # type: ignore[index]
    word = text[start : place + len(re.match(f"{_WORD}*", text[place : place + 30])[0])]  # type: ignore[index]
    raw = b"".join(letter.encode("cp1252") if not "\x80" <= letter <= "\x9f" else letter.encode("latin-1") for letter in word)
    readings = {encoding: raw.decode(encoding, "replace") for encoding in OTHERS}
    good = ", ".join(f"{reading} in {encoding}" for encoding, reading in readings.items() if reading.strip(".!?„“”").isalpha())
    visible = "".join(letter if letter.isprintable() else "?" for letter in word)
    return f'text with words like "{visible}", if it were in cp1252{f" ({good})" if good else ""}'


def utf_16_without_mark(begin: bytes) -> str | None:
    """Return utf-16-le or utf-16-be if bytes without a mark are text (lines of assigned characters) in exactly one of them; else None."""
    if 0 not in begin:
        return None
    able = [encoding for encoding in ("utf-16-le", "utf-16-be") if _is_text(begin[: len(begin) // 2 * 2], encoding)]
    return able[0] if len(able) == 1 else None


def _is_text(content: bytes, encoding: str) -> bool:
    """Whether bytes decode to lines of assigned characters; a surrogate pair may be cut at the end."""
    try:
        text = content.decode(encoding) if content[-2:-1] else ""
    except UnicodeDecodeError as error:
        if error.start < len(content) - 2:
            return False
        text = content[: error.start].decode(encoding)
    kinds = {unicodedata.category(letter) for letter in {*text} - {"\t", "\n", "\r"}}
    return "\n" in text and not kinds & {"Cc", "Cn", "Co", "Cs"}


MAY_BE_SEPARATED = (*SEPARATED, PLAIN_SUFFIX)
BINARY = {PARQUET: "a Parquet file", ARROW: "an Arrow file"}
LOOKED_AT = 1 << 20  # bytes at the beginning that determine the format
MOST_UNPACKED = 1 << 30  # bytes
GZIP_AT_MOST = 1032  # maximum compression ratio
LONGEST_CELL = 1 << 24  # bytes of a CSV block, which must hold a row; pyarrow's default is 1 MiB
SEPARATOR_LINE = re.compile(r'\ufeff?"?sep=(.)"?', re.IGNORECASE)
SAY_ENCODING = (
    "Save it as UTF-8 (Excel: CSV UTF-8), or set the encoding: --encoding cp1251 (tune), or --set corpus.encoding=cp1251 (a recipe); "
    "mac-roman, shift-jis, gb18030 or another; cp1252 if the words shown are correct."
)
LETTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")  # a non-ASCII character in UTF-8
FOREIGN_WORD = re.compile(rb"[\x80-\xff]{4}")  # as in Russian (cp1251), Japanese (Shift-JIS) or Chinese (GB 18030)


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """Format of a file of separated values. None: unknown; Parquet and JSON have neither separator nor header."""

    encoding: str | None = None
    separator: str | None = None
    has_header: bool | None = None


def recognised(name: str, path: Path, given: FileFormat, known_names: Sequence[str]) -> FileFormat:
    """Recognise the format of a file where it is not given.

    Args:
        known_names: column names that identify a header.

    Raises:
        DataError: a missing or empty file, no text, or no separator that gives each line the same number of fields.
    """
    encoding, declared, lines = _beginning(name, path, given.encoding, remedy=SAY_ENCODING)
    if not lines:
        _refuse_separated(name, given, path)
        return FileFormat(encoding=encoding)
    separator = given.separator or declared
    if separator is None:
        separator = _separator(name, path, lines, known_names)
        if looks_like_one_column(lines, separator, known_names):
            raise _complaint(
                name,
                f"{SEPARATORS[separator]} with a space behind them, as in one column of sentences, such as {brief(lines[-1].strip())}",
                "two or more columns, separated by a single character",
                "If they separate columns, save it without those spaces, name the columns in the first line and in --columns, or set the "
                "separator in a recipe.",
            )
    rows = fields(lines, separator)
    if given.has_header is not False and (titles := titles_above(rows, known_names)):
        raise _titles(name, lines, separator, rows, titles, first=1 if declared is None else 2)
    has_header = names_columns(rows, known_names) if given.has_header is None else given.has_header
    return FileFormat(encoding=encoding, separator=separator, has_header=has_header)


def _titles(name: str, lines: Sequence[str], separator: str, rows: Sequence[Sequence[str]], titles: int, *, first: int) -> DataError:
    """The error for rows above the header. first: number of the first line."""
    with long_fields():
        reader = csv.reader(lines, delimiter=separator, quoting=quoting(separator))
        last = next(reader.line_num for number, _ in enumerate(filter(None, reader), 1) if number == titles + 1) - 1
    title, last = next((cell for row in rows for cell in row if cell.strip()), ""), last + first - 1
    lines_above = f"line {last}" if last == first else f"lines {first} to {last}"
    return _complaint(
        name,
        f"{brief(title.strip())} above the names of the columns, which are in line {last + 1} ({listed(rows[titles])})",
        "the names of the columns in the first line",
        f"Delete {lines_above}; if line {last + 1} does not name columns: --no-header (tune), or --set corpus.header=false (a recipe).",
    )


def _refuse_separated(name: str, given: FileFormat, path: Path) -> None:
    """Raise DataError if a separator, header or encoding was given for a format without it."""
    for field, declared in (("separator", given.separator), ("header", given.has_header)):
        if declared is not None:
            kind = BINARY.get(suffix_of(path), "JSON")
            found = f"{field} {brief(declared)} for {kind}, which names its columns itself"
            raise _complaint(name, found, "neither separator nor header", f"Omit {field}, or save it as CSV.")
    if given.encoding is not None and suffix_of(path) in BINARY:
        found = f"encoding {given.encoding} for {BINARY[suffix_of(path)]}, whose texts are UTF-8"
        raise _complaint(name, found, "no encoding", "Omit encoding.")


def source_format(name: str, path: Path) -> FileFormat:
    """Return the format of a file with a header. Its separator is that of its suffix unless only another one splits the first line.

    Raises:
        DataError: as in `recognised`, except for separators.
    """
    encoding, declared, lines = _beginning(name, path, None, remedy=_as_utf8(path))
    if not lines:
        return FileFormat(encoding=encoding)
    usual = usual_separator(path)
    if declared is None and len(fields(lines, usual)[0]) < 2:
        declared = next((one for one in separators(path, lines, ()) if len(fields(lines, one)[0]) > 1), None)
    return FileFormat(encoding=encoding, separator=declared or usual, has_header=True)


def _beginning(name: str, path: Path, encoding: str | None, *, remedy: str) -> tuple[str | None, str | None, list[str]]:
    """Encoding of a file, the separator in its `sep=` line, and its first lines ([] unless it has separated values). remedy: for an unknown
    encoding."""
    is_binary = suffix_of(path) in BINARY
    with reading(path, expected="a table of texts", where=name), open_bytes(path) as file:
        begin = file.read(BEGIN if is_binary else LOOKED_AT)
    if not begin.strip():
        raise _complaint(name, "an empty file", "rows of texts", "Write the file again.")
    if is_packed(path) and path.stat().st_size > MOST_UNPACKED // GZIP_AT_MOST:
        _refuse_bomb(name, path)
    refuse_other_content(name, path, begin)
    if is_binary:
        return None, None, []
    encoding = encoding or _encoding(name, path, begin, remedy=remedy)
    if suffix_of(path) not in MAY_BE_SEPARATED:
        return encoding, None, []
    with reading(path, expected=f"text in {encoding}", where=name):
        text = codecs.getincrementaldecoder(encoding)().decode(begin, final=len(begin) < LOOKED_AT)
    if not text.strip():
        raise _complaint(name, "an empty file", "rows of texts", "Write the file again.")
    if "\0" in text:
        raise _complaint(name, "NUL characters", "a table of texts", "Save it again in UTF-8.")
    lines = list(io.StringIO(text, newline=""))  # lines as in CSV; `splitlines` also splits at U+2028 and U+0085, which occur in texts
    lines = lines if len(begin) < LOOKED_AT or len(lines) == 1 else lines[:-1]
    declared = said_separator(lines[0])
    return encoding, declared, lines if declared is None else lines[1:]


def _refuse_bomb(name: str, path: Path) -> None:
    """Raise DataError for a compressed file that would fill the memory: no text compresses to a hundredth of its size."""
    most, num_bytes = max(MOST_UNPACKED, 100 * path.stat().st_size), 0
    with reading(path, expected="a table of texts", where=name), open_bytes(path) as file:
        while block := file.read(LOOKED_AT):
            if (num_bytes := num_bytes + len(block)) > most:
                found = f"a file of {disk_size(path.stat().st_size)} that unpacks to more than {disk_size(most)}"
                raise _complaint(name, found, "at most 100 times its size", "If you trust it, unpack it, and name its content.")


def format_notes(file_format: FileFormat, path: Path) -> list[str]:
    """Return notes on a format that differs from the suffix's separator and UTF-8."""
    notes = []
    if file_format.encoding not in (None, "utf-8"):
        notes.append(f"text in {file_format.encoding}")
    if file_format.separator is not None and file_format.separator != usual_separator(path):
        notes.append(f"separated by {SEPARATORS.get(file_format.separator, brief(file_format.separator))}")
    if file_format.has_header is False:
        notes.append("no header: columns are called 1, 2, …")
    return notes


def _encoding(name: str, path: Path, begin: bytes, *, remedy: str) -> str:
    """By its mark, by the zeros of UTF-16, or UTF-8 if the whole file is valid; else cp1252. DataError for words with too many adjacent
    non-ASCII characters, or with characters that are rare, in Western European languages, and for mostly valid UTF-8."""
    if marked := marked_encoding(begin):
        return marked
    even, odd = begin[0::2].count(0), begin[1::2].count(0)
    if max(even, odd) > len(begin) // 5 and min(even, odd) < len(begin) // 50 + 1:
        return "utf-16-le" if odd > even else "utf-16-be"
    if unmarked := utf_16_without_mark(begin):
        return unmarked
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with reading(path, expected="a table of texts"), open_bytes(path) as file:
            while block := file.read(LOOKED_AT):
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except DataError:
        in_letters = sum(map(len, LETTER.findall(begin)))
        if 2 * in_letters > sum(byte > 127 for byte in begin):
            raise
        words = begin.split()
        if 20 * sum(FOREIGN_WORD.search(word) is not None for word in words) > len(words):
            raise _complaint(
                name, "text that is neither UTF-8 nor of Western Europe: its characters would be read wrongly", "UTF-8", remedy
            ) from None
        if found := hardly_western(begin):
            raise _complaint(name, found, "UTF-8", remedy) from None
        return "cp1252"
    return "utf-8"


def said_separator(line: str) -> str | None:
    """Return the separator of a first line `sep=;` (Excel), which is no row; None for other lines."""
    found = SEPARATOR_LINE.fullmatch(line.rstrip("\r\n"))
    return None if found is None else found[1]


def _separator(name: str, path: Path, lines: Sequence[str], known_names: Sequence[str]) -> str:
    found = separators(path, lines, known_names)
    if not found and all(2 * sum(separator in line for line in lines) <= len(lines) for separator in SEPARATORS):
        raise _complaint(
            name,
            f"one text a row, such as {brief(lines[-1].strip())}",
            "two texts a row that belong together, or two and a score",
            f"Write both into each row, separated by one of {', '.join(SEPARATORS.values())}. Sentences alone train unsupervised SimCSE "
            "by a recipe with their column twice: corpus: {source: NAME, columns: [text, text]}, a table below --data.",
        )
    if not found:
        raise _complaint(
            name,
            f"one column, or another number of them in each line, such as {brief(lines[0].strip())}",
            f"two columns or more, separated by one of {', '.join(SEPARATORS.values())}, as many in each line",
            "Quote fields that contain the separator, or set it in a recipe (`separator` next to the file); JSON lines (.jsonl) need none.",
        )
    return found[0]


def read_separated(path: Path, file_format: FileFormat, *, may_repeat: bool) -> pa.Table:
    """Return the rows of separated values, all columns as text.

    Args:
        may_repeat: allow several columns without a name, as spreadsheets write them at the end.

    Raises:
        DataError: quotation marks that lose rows or characters; several columns of one name.
    """
    import pyarrow as pa
    import pyarrow.csv

    is_tab = file_format.separator == "\t"
    text = whole_text(path, encoding=file_format.encoding or "utf-8") if file_format.encoding not in (None, "utf-8") else None
    with unpacked_stream(path) if text is None else io.StringIO(text) as begin:
        start = begin.read(LOOKED_AT)
    start = start if isinstance(start, str) else start.decode(errors="replace")
    said_line = next(iter(io.StringIO(start, newline="")), "")
    skipped = 0 if said_separator(said_line) is None else 1
    start = start[len(said_line) * skipped :]
    first, num_lines = _first_row(start, file_format.separator or ",")
    if not file_format.has_header:
        first = fields(list(io.StringIO(start, newline="")), file_format.separator or ",")[0]
    names = header_names(first, is_tab=is_tab) if file_format.has_header else [str(number) for number in range(1, len(first) + 1)]
    refuse_repeated(str(path), [name for name in names if name or not may_repeat])
    names = _made_unique(names)
    is_bare = is_tab and not (file_format.has_header and are_in_marks(first))
    skipped += num_lines if file_format.has_header else 0

    def read(*, is_bare: bool) -> pa.Table:
        return pyarrow.csv.read_csv(
            unpacked_stream(path) if text is None else io.BytesIO(text.encode()),
            read_options=pyarrow.csv.ReadOptions(column_names=names, skip_rows=skipped, block_size=LONGEST_CELL),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=file_format.separator or ",", quote_char=False if is_bare else '"', newlines_in_values=not is_bare
            ),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False),
        )

    if is_bare:
        try:
            return unquoted(read(is_bare=True))
        except pa.ArrowInvalid:
            if not _are_quoted(path, file_format, len(names)):
                raise
    table = read(is_bare=False)
    with open_text(path, encoding=file_format.encoding or "utf-8", newline="") as lines:
        check_quotes(path.name, table, lines, file_format.separator or ",")
    with open_text(path, encoding=file_format.encoding or "utf-8", newline="") as lines:
        check_escapes(path.name, table, lines, file_format.separator or ",")
    return table


def _are_quoted(path: Path, file_format: FileFormat, num_columns: int) -> bool:
    """Whether all rows have the right number of fields, with well-placed marks, if fields with tabs or line breaks are quoted (pandas)."""
    with open_text(path, encoding=file_format.encoding or "utf-8", newline="") as file, long_fields():
        try:
            return all(len(row) in (0, num_columns) for row in csv.reader(file, delimiter="\t", strict=True))
        except csv.Error:
            return False


def header_names(cells: Sequence[str], *, is_tab: bool) -> list[str]:
    """Return the column names of a header; `is_tab`: tabs separate its cells, so that marks were read as characters."""
    return [_without_marks(cell.strip()) if is_tab else cell.strip() for cell in cells]


def _first_row(text: str, separator: str) -> tuple[list[str], int]:
    """The first row that is not empty, and the number of lines up to its end: names may contain line breaks."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting(separator))
    with long_fields():
        row = next(filter(None, reader), [])
    return row, reader.line_num


def are_in_marks(cells: Sequence[str]) -> bool:
    """Whether all names of a header are quoted (R, csv.QUOTE_ALL): cells may contain tabs."""
    return all(map(_is_in_marks, cells))


def _is_in_marks(cell: str) -> bool:
    plain = cell.strip()
    return len(plain) > 1 and plain[0] == plain[-1] == '"'


def _without_marks(name: str) -> str:
    return name[1:-1].replace('""', '"') if _is_in_marks(name) else name


def _made_unique(names: Sequence[str]) -> list[str]:
    """Column names with unique names for empty ones: "", unnamed_2."""
    given: dict[str, None] = {}
    for name in names:
        numbered = (f"unnamed_{number}" for number in itertools.count(2))
        given[name if name not in given else next(other for other in numbered if other not in given and other not in names)] = None
    return list(given)


def _complaint(name: str, found: str, expected: str, remedy: str) -> DataError:
    return DataError(where=name, found=found, expected=expected, remedy=remedy)


def unpacked_stream(path: Path) -> pa.NativeFile:
    """Return an Arrow stream of a file, which reads ahead in threads."""
    import pyarrow as pa

    return pa.input_stream(str(path), compression="gzip" if is_packed(path) else None)


def encoding_of(name: str, path: Path) -> str:
    """Return the encoding of a text file, or raise DataError, as in `recognised`; UTF-8 for a pipe, which can be read only once."""
    if not path.is_file():
        return "utf-8-sig"
    with open_bytes(path) as file:
        begin = file.read(LOOKED_AT)
    refuse_other_content(name, path, begin)
    return _encoding(name, path, begin, remedy=_as_utf8(path))


def _as_utf8(path: Path) -> str:
    """The remedy for an unknown encoding where no option sets it."""
    unpacked = f"{'zcat' if is_packed(path) else 'cat'} {path.name}"
    return f"{SAVE_AS_UTF8[:-1]}, for example: {unpacked} | iconv -f cp1251 -t utf-8, with the encoding that it is in."


def marked_encoding(begin: bytes) -> str | None:
    """Return the encoding of a byte order mark; None without one."""
    if begin.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    return "utf-16" if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else None
