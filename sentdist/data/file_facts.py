"""What a data file holds, remembered between runs by path, size and time of change."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

RACY_S = 2.0  # a file changed this recently may change again within one tick of a coarse clock: not remembered


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """digest: "sha256:" and 16 hex digits of the content; splits: the values of a column `split` with their row counts, in order of appearance."""

    digest: str
    num_rows: int
    columns: tuple[str, ...]
    splits: tuple[tuple[str, int], ...]


def content_digest(path: Path) -> str:
    """Return "sha256:" and the first 16 hex digits (64 bits) of the file's SHA-256."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()[:16]


def recall(path: Path) -> FileFacts | None:
    """Return what an earlier run wrote down about this very file, or None when it has changed since or nothing was written."""
    try:
        noted = json.loads(_note_of(path).read_text())
        if noted.pop("file") != _identity(path):
            return None
        return FileFacts(
            digest=noted["digest"],
            num_rows=noted["num_rows"],
            columns=tuple(noted["columns"]),
            splits=tuple((name, count) for name, count in noted["splits"]),
        )
    except (OSError, ValueError, KeyError, TypeError):  # absent, unreadable or written by another version: look at the file again
        return None


def remember(path: Path, facts: FileFacts) -> None:
    """Write the facts down for the next run; a cache that cannot be written costs time, not the run."""
    if time.time() - path.stat().st_mtime < RACY_S:
        return
    note = _note_of(path)
    partial = note.with_suffix(f".{os.getpid()}")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({"file": _identity(path), **asdict(facts)}))
        partial.replace(note)
    except OSError:
        return


def _identity(path: Path) -> list[str | int]:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _note_of(path: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sentdist" / "files" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]}.json"
