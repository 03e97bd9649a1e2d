"""Text output: CSV and Markdown with escaping, citations, addresses without secrets, template environments."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


Row = Sequence[object]

# The beginning of a formula in spreadsheets (OWASP, "CSV Injection"); some skip white space before it.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n\x00]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")
# An underscore inside a word is no markup, and brackets are markup only where a link, its definition or a footnote can begin.
_MARKUP = re.compile(r"[\\`*<>|~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|\[(?=\^)")
_MARKUP_IN_LINKS = re.compile(rf"{_MARKUP.pattern}|[\[\]]")
_LINE_START = re.compile(r"^(?:(?:#{1,6}|[-+=]+)(?=\s|$)|\d+(?=[.)](?:\s|$)))")  # a heading, a list, a rule
_ENTITY = re.compile(r"&(?=#?\w+;)")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


def csv_text(rows: Iterable[Row]) -> str:
    """Return rows as CSV; see `write_csv`."""
    out = io.StringIO()
    write_csv(out, rows)
    return out.getvalue()


def write_csv(out: IO[str], rows: Iterable[Row]) -> None:
    """Write rows as CSV, quoted where needed; a text that looks like a formula gets a leading apostrophe.

    Numbers, as values or as text, stay numbers, negative ones too; floats are written by `repr`.
    """
    out.writelines(",".join(_quoted(csv_cell(value)) for value in row) + "\n" for row in rows)


def csv_cell(value: object) -> object:
    """Return the value, with a leading apostrophe if a spreadsheet would read a formula."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def markdown_text(text: object) -> str:
    """Escape a text for Markdown: one line, no markup, no HTML, no bar that would end a cell."""
    escaped = _escape(text, _MARKUP)
    return _LINE_START.sub(lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", escaped)


def markdown_link(text: object, url: str) -> str:
    """Return a link with escaped text; prefix `!` for an image."""
    return f"[{_escape(text, _MARKUP_IN_LINKS)}]({url})"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, num_left: int = 1) -> str:
    """Return a GitHub table of cells that are Markdown already (see `markdown_text`); the first `num_left` columns are left-aligned."""
    rule = "".join(":--|" if column < num_left else "--:|" for column in range(len(header)))
    return "\n".join([_line(header), f"|{rule}", *(_line(row) for row in rows)])


def _quoted(value: object) -> str:
    """Like csv.writer, but a lone carriage return is quoted, too: Python 3.11 leaves it bare, and readers end the row there."""
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: object, markup: re.Pattern[str]) -> str:
    line = _BREAKS.sub(" ", str(text)).strip()
    return markup.sub(lambda found: {"<": "&lt;", ">": "&gt;"}.get(found[0], f"\\{found[0]}"), _ENTITY.sub("&amp;", line))


PrintLine = Callable[[str], None]


EntryType = Literal["article", "inproceedings", "misc"]


@dataclass(frozen=True, kw_only=True)
class Citation:
    """One cited work."""

    key: str
    kind: EntryType
    authors: tuple[str, ...]
    title: str
    where: str  # journal or proceedings
    year: int
    url: str  # a permanent address
    role: str  # what it is used for here
    gave: tuple[str, ...] = ()  # fnmatch patterns, in lower case, of the data sources and checkpoints that it published

    @property
    def short(self) -> str:
        """The first author's last name (with the second's, or et al.) and the year."""
        others = " et al." if len(self.authors) > 2 else f" & {self.authors[1].split()[-1]}" if len(self.authors) == 2 else ""
        return f"{self.authors[0].split()[-1]}{others} {self.year}"

    def plain(self) -> str:
        """Return the citation as one line of text."""
        names = self.authors if len(self.authors) <= 3 else (self.authors[0], "others")
        joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        return f"{joined} ({self.year}). {self.title}. {self.where}. {self.url}"

    def bibtex(self) -> str:
        """Return the BibTeX entry."""
        field = {"article": "journal", "inproceedings": "booktitle", "misc": "howpublished"}[self.kind]
        # Double braces keep the capitals of names such as SimCSE.
        lines = (
            f"  author = {{{' and '.join(self.authors)}}}",
            f"  title = {{{{{self.title}}}}}",
            f"  {field} = {{{self.where}}}",
            f"  year = {{{self.year}}}",
            f"  url = {{{self.url}}}",
        )
        return f"@{self.kind}{{{self.key},\n" + ",\n".join(lines) + "\n}"


GCS_GIVES_UP_S = 60.0

# User and password before a host: up to the last @, which a password may hold. With a slash in the password, libraries reject the address
# in a message with half of the password; HOST:PORT/PATH@COMMIT is recognised by the number after the colon.
_LOGIN = re.compile(r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:@\[\]]*:(?!\d{1,5}(?:[/?#]|$))[^\s]*@)")
_NAMES = r"[\w-]*(?:password|passwd|secret|token|signature|credential)[\w-]*|[\w-]*(?:api|access|account)[_-]?key(?:[_-]?id)?|pwd|sig|key"
_FIELD = re.compile(rf"(?<=[?&])({_NAMES})=[^&#\s]+", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Remove users and passwords before a host, and secrets after `?`, from the addresses in a text."""
    if "://" not in text:
        return text
    return _FIELD.sub(r"\1=…", _LOGIN.sub("", text))


def opened_as(address: str) -> str:
    """Add our default option for pyarrow's file system to an address, unless the address sets it.

    s3://: an object up to 5 MB takes one request, not three (begin, part, end). gs://: a request is retried for a minute, not silently for
    a quarter of an hour, as Google's library does even without credentials.
    """
    if address.startswith("s3://"):
        name, value = "allow_delayed_open", "true"
    elif address.startswith(("gs://", "gcs://")):
        name, value = "retry_limit_seconds", f"{GCS_GIVES_UP_S:g}"
    else:
        return address
    return address if f"{name}=" in address else f"{address}{'&' if '?' in address else '?'}{name}={value}"


def environment(package: str) -> Environment:
    """Return a template environment for HTML: values are escaped unless they are Markup, and undefined names are errors."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, extensions=["jinja2.ext.do"],
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def markdown_environment(package: str) -> Environment:
    """Return a template environment for Markdown, which escapes values as `markdown_text` does."""
    from markupsafe import Markup

    made = environment(package)
    made.finalize = escaped
    made.filters["link"] = lambda name, url: Markup(markdown_link(name, url))
    made.globals["text_table"] = _table
    return made


def merged(text: str) -> str:
    """Collapse the blank lines in a template's output."""
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def escaped(value: object) -> Markup:
    """Return a value as escaped Markdown, unless it is Markup."""
    from markupsafe import Markup

    return value if isinstance(value, Markup) else Markup(markdown_text(value))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1) -> Markup:
    from markupsafe import Markup

    return Markup(markdown_table(list(map(escaped, header)), [list(map(escaped, row)) for row in rows], num_left=num_left))
