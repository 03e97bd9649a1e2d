"""A data set in BEIR's shape as it is downloaded, in one zip: its parts are unpacked into the cache, once for each content."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sentdist.cache import cache_folder
from sentdist.durable import whole_file
from sentdist.errors import DataError
from sentdist.reading import reading

EXPECTED = "a zip of corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"


def unpacked(path: Path, *, where: str) -> Path:
    """The folder with the parts of a zip, whatever the folders in it are called; other files in it are left alone.

    Raises:
        DataError: no zip, a damaged one, one without these parts or with several corpora, or no room for them.
    """
    with reading(path, expected=EXPECTED, where=where), zipfile.ZipFile(path) as archive:
        parts = _parts(archive, where=f"{where} ({path})")
        content = repr(sorted((name, part.CRC, part.file_size) for name, part in parts.items()))
        folder = cache_folder("unpacked") / hashlib.sha256(content.encode()).hexdigest()[:24]
        for name, part in parts.items():
            target = folder / name
            if target.is_file() and target.stat().st_size == part.file_size:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(target) as unfinished, archive.open(part) as packed, unfinished.open("wb") as file:
                shutil.copyfileobj(packed, file)  # compares the checksum, too
    return folder


def _parts(archive: zipfile.ZipFile, *, where: str) -> Mapping[str, zipfile.ZipInfo]:
    """The entries that are read, by their name below the folder of the corpus."""
    entries = {PurePosixPath(entry.filename): entry for entry in archive.infolist() if not entry.filename.startswith("__MACOSX/")}
    corpora = [path for path in entries if path.name == "corpus.jsonl"]
    if len(corpora) != 1:
        remedy = "Unpack it, and name one of its folders." if corpora else "Name a zip as BEIR's, or unpack it and name what is inside."
        raise DataError(where=where, found=f"{len(corpora) or 'no'} corpus.jsonl in it", expected=EXPECTED, remedy=remedy)
    top = corpora[0].parent
    judged = [path for path in entries if path.parent == top / "qrels" and path.suffix == ".tsv"]
    wanted = [corpora[0], top / "queries.jsonl", *judged]
    return {path.relative_to(top).as_posix(): entries[path] for path in wanted if path in entries}
