"""Which side each row of a person's own file is on, noted for the other processes of a run and for the next one."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from sentdist.cache import cache_folder
from sentdist.data.own.file_rows import FileRows, OwnFile
from sentdist.data.own.sides import HeldOut, Sides, sides_of
from sentdist.durable import whole_file
from sentdist.errors import DataError
from sentdist.reading import read_array

NOTED = 5  # version of what is noted: of how sides are drawn


def sides_of_file(name: str, rows: FileRows, file: OwnFile, revision: str) -> Sides:
    """The sides of a file's rows, noted for the other processes of a run and for the next one."""
    note = _note(revision, file)
    if (noted := _noted(note, len(rows.texts))) is not None:
        return noted
    held_out = HeldOut(dev=file.dev, test=file.test, seed=file.seed, most=file.most, near=file.near)
    linking = [row[: file.num_linking] for row in rows.texts]
    sides = sides_of(name, linking, held_out=held_out, given=rows.group, splits=rows.split, origin=rows.origin)
    _keep(note, sides)
    return sides


def digest_of_sides(sides: Sides) -> str:
    """16 hex digits that stand for which row is on which side."""
    return hashlib.sha256(sides.of_rows.tobytes()).hexdigest()[:16]


def _note(revision: str, file: OwnFile) -> Path:
    about = repr((NOTED, revision, replace(file, sides="")))
    return cache_folder("sides") / f"{hashlib.sha256(about.encode()).hexdigest()[:24]}.npy"


def _keep(note: Path, sides: Sides) -> None:
    """Note the sides: three counts, then a number a row; a cache that cannot be written costs time, not the run."""
    numbers = np.array([sides.num_groups, sides.largest_group, sides.num_linked, *sides.of_rows.tolist()], dtype=np.int64)
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(note) as part, part.open("wb") as file:
            np.save(file, numbers)


def _noted(note: Path, num_rows: int) -> Sides | None:
    try:
        noted = read_array(note)
    except DataError:  # absent or damaged: found out again
        return None
    if noted.shape != (3 + num_rows,) or noted.dtype != np.int64:
        return None
    return Sides(of_rows=noted[3:].astype(np.int8), num_groups=int(noted[0]), largest_group=int(noted[1]), num_linked=int(noted[2]))
