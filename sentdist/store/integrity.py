"""Whether the files of an artifact or checkpoint are those that were written: their sizes and sha256 digests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class FileChecksum:
    """What is noted of a file when it is written. sha256: 64 hexadecimal digits; None where an older version noted none."""

    num_bytes: int
    sha256: str | None


def checksum_of(path: Path) -> FileChecksum:
    """Read a file once and note its size and digest (1 GB takes about 0.6 s where the processor has instructions for SHA)."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileChecksum(num_bytes=file.tell(), sha256=digest)


def checksums_below(folder: Path) -> dict[str, FileChecksum]:
    """Relative path -> checksum, of every file below a folder."""
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def damage_of(folder: Path, expected: Mapping[str, FileChecksum], names: Iterable[str]) -> str | None:
    """What is wrong with the first bad file among `names`; None if all are as they were written.
    Sizes are compared before anything is read."""
    asked = set(names)
    wanted = [name for name in expected if name in asked]
    for name in wanted:
        try:
            status = os.stat(folder / name)  # not `is_file`: in some versions of Python a file server that fails has no files
        except (FileNotFoundError, NotADirectoryError):
            return f"{name}: missing"
        if not stat.S_ISREG(status.st_mode):
            return f"{name}: missing"
        if status.st_size != expected[name].num_bytes:
            return f"{name}: {status.st_size:,} bytes, {expected[name].num_bytes:,} were written"
    for name in wanted:
        sha256 = expected[name].sha256
        if sha256 is not None and checksum_of(folder / name).sha256 != sha256:
            return f"{name}: other content than was written (sha256)"
    return None


def damage_of_content(content: bytes, expected: FileChecksum) -> str | None:
    """As `damage_of`, for the content of one file that was read whole."""
    if len(content) != expected.num_bytes:
        return f"{len(content):,} bytes, {expected.num_bytes:,} were written"
    if expected.sha256 is not None and hashlib.sha256(content).hexdigest() != expected.sha256:
        return "other content than was written (sha256)"
    return None
