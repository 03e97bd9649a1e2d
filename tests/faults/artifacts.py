"""What a store holds: digests for a comparison bit for bit, marks of records that must not be replaced, bytes that were left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

COMPARED = ("*.safetensors", "*.npy", "*.parquet", "scores.json")
PASSING = (".staging", ".aside", "running")  # places of what is not finished, or not any more


def digests(store: Path) -> dict[str, str]:
    """sha256 of all weights, banks, tables and scores of finished artifacts, by their place in the store."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(path for pattern in COMPARED for path in store.rglob(pattern))
        if path.relative_to(store).parts[0] not in PASSING and (store / Path(*path.relative_to(store).parts[:2]) / "record.json").exists()
    }


def record_marks(store: Path) -> dict[str, tuple[int, int]]:
    """For each finished artifact (its place) what changes when its record is written anew: inode and time of writing in ns."""
    return dict(_marks(store))


def _marks(store: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for record in sorted(store.glob("*/*/record.json")):
        if record.relative_to(store).parts[0] not in PASSING:
            found = record.stat()
            yield str(record.parent.relative_to(store)), (found.st_ino, found.st_mtime_ns)


def differences(found: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """What of the files of an undisturbed run is missing, differs or is too much."""
    missing = [f"{place} is missing" for place in expected if place not in found]
    other = [f"{place} differs from the undisturbed run" for place in expected if place in found and found[place] != expected[place]]
    return [*missing, *other, *(f"{place} is not in the undisturbed run" for place in found if place not in expected)]


def num_bytes(folder: Path) -> int:
    """Of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0
