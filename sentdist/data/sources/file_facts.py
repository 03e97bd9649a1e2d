"""Cache facts of data files (by path, size and modification time) and of hub data sets (by commit)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sentdist.data.tables import content_digest
from sentdist.errors import DataError
from sentdist.files import cache_folder, reading, unreadable, whole_file

MOST_BYTES = 1 << 24  # maximum size of a cached note
NOTED = 3  # version of the cache
RACY_S = 2.0  # a file changed this recently may change again within one tick of a coarse clock: not remembered


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Facts of a data file.

    Args:
        digest: "sha256:" and 16 hex digits of the content, or a commit.
        splits: values of a column `split` with their row counts, in order of appearance.
        note: a sentence for the user.
    """

    digest: str
    num_rows: int
    columns: tuple[str, ...]
    splits: tuple[tuple[str, int], ...]
    note: str = ""


def known_digest(path: Path) -> str:
    """Like `content_digest`, but cached while the file does not change."""
    with reading(path, expected="a file of data"):
        facts = recall(path)
        return content_digest(path) if facts is None else facts.digest


def changed_since_planning(where: str, revision: str) -> DataError:
    """Return the error for a source whose content differs from the revision in the plan."""
    return DataError(where=where, found="another content than when the run was planned", expected=revision, remedy="Run the command again.")


def recall(path: Path) -> FileFacts | None:
    """Return the cached facts of a file; None if it has changed, is no regular file, or is not cached."""
    if unreadable(path) is not None:
        return None
    return recall_note(_identity(path))


def remember(path: Path, facts: FileFacts) -> None:
    """Cache the facts of a file. A failing write costs time only."""
    if time.time() - path.stat().st_mtime >= RACY_S:
        remember_note(_identity(path), facts)


def recall_note(identity: Sequence[str | int]) -> FileFacts | None:
    """Return the cached facts of an identity: its first member names the source, the others its version."""
    try:
        note = _note_of(identity)
        if unreadable(note, most_bytes=MOST_BYTES) is not None:
            return None
        noted = json.loads(note.read_text())
        if noted["identity"] != list(identity):
            return None
        return FileFacts(
            digest=noted["digest"],
            num_rows=noted["num_rows"],
            columns=tuple(noted["columns"]),
            splits=tuple((name, count) for name, count in noted["splits"]),
            note=noted["note"],
        )
    except (OSError, ValueError, KeyError, TypeError):  # absent, unreadable or written by another version
        return None


def remember_note(identity: Sequence[str | int], facts: FileFacts) -> None:
    """Cache facts under an identity, atomically."""
    note = _note_of(identity)
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(note) as part:
            part.write_text(json.dumps({"identity": list(identity), **asdict(facts)}))


def _identity(path: Path) -> list[str | int]:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns, NOTED]


def _note_of(identity: Sequence[str | int]) -> Path:
    return cache_folder("sources") / f"{hashlib.sha256(str(identity[0]).encode()).hexdigest()[:24]}.json"
