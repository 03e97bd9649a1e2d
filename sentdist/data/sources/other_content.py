"""Files that hold something else than their names say, by how they begin: pointers, web pages, archives, what gzip has packed."""

from __future__ import annotations

import html
import re
from pathlib import Path

from sentdist.errors import DataError, brief
from sentdist.table_files import GZIP_BEGINS, PARQUET, suffix_of

BEGIN = 1 << 12  # bytes that are enough
GIT_LFS, GIT_ANNEX = b"version https://git-lfs.github.com/spec/", b"/annex/objects/"
PACKED, PARQUET_BEGINS = b"PK\x03\x04", b"PAR1"
PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL)
XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\s")
TITLE = re.compile(rb"<(title|code|h1)[^>]*>\s*([^<]{1,200})", re.IGNORECASE)


def refuse_other_content(name: str, path: Path, begin: bytes) -> None:
    """Raise DataError for a file that is no table and no text, whatever it is called. begin: its first bytes, unpacked where its name says
    that gzip has packed it."""
    kind, fetch = suffix_of(path)[1:] or "text", "Fetch the file itself"
    if begin.startswith(GIT_LFS):
        raise _other_content(name, "a pointer of Git LFS to a file that was not fetched", kind, "Run `git lfs pull` in its repository.")
    if begin.startswith(GIT_ANNEX):
        raise _other_content(
            name, "a pointer of git-annex to a file that was not fetched", kind, f"Run `git annex get {path.name}` in its folder."
        )
    if PAGE.match(begin):
        raise _other_content(
            name, f"a web page{_title(begin)}", kind, f"{fetch}: a server sent a page in its place, such as one to sign in."
        )
    if XML.match(begin):
        raise _other_content(name, f"an XML document{_title(begin)}", kind, f"{fetch}, or write its texts as CSV.")
    if begin.startswith(PACKED):
        raise _other_content(name, "a spreadsheet or an archive", "a table of texts", "Save it as CSV in your spreadsheet program.")
    if begin.startswith(GZIP_BEGINS):
        raise _other_content(
            name, "what gzip has packed", f"{suffix_of(path) or 'text'}, as its name says", f"Call the file {path.name}.gz."
        )
    if begin.startswith(PARQUET_BEGINS) and suffix_of(path) != PARQUET:
        raise _other_content(name, "a Parquet file", kind, f"Call the file {path.stem}{PARQUET}.")


def _title(begin: bytes) -> str:
    """What a page calls itself, as it may say why it came."""
    found = TITLE.search(begin)
    return "" if found is None else f", {brief(html.unescape(found[2].decode(errors='replace')).strip())}"


def _other_content(name: str, found: str, kind: str, remedy: str) -> DataError:
    return DataError(where=name, found=found, expected=kind if " " in kind or "." in kind else f"{kind}, as its name says", remedy=remedy)
