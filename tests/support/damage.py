"""Ways to damage a file that a user could meet, each a function of its path."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _first_bytes(path: Path) -> None:
    _flip(path, range(8))


def _some_bytes(path: Path) -> None:
    size = path.stat().st_size
    _flip(path, random.Random(0).sample(range(size), min(size, 20)))


def _last_bytes(path: Path) -> None:
    size = path.stat().st_size
    _flip(path, range(max(0, size - 12), size))


def _flip(path: Path, places: range | list[int]) -> None:
    content = bytearray(path.read_bytes())
    for place in places:
        if place < len(content):
            content[place] ^= 0xA5
    path.write_bytes(content)


def _noise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _utf16(path: Path) -> None:
    path.write_bytes(path.read_bytes().decode("latin-1").encode("utf-16"))


def _utf16_without_mark(path: Path) -> None:
    path.write_bytes(path.read_bytes().decode("latin-1").encode("utf-16-le"))


def _deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def _a_number(path: Path) -> None:
    path.write_text("3")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("gone"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _zero_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


Damage = Callable[[Path], None]

# What no reader can take for a good file.
CERTAIN: dict[str, Damage] = {
    "empty": _empty, "noise": _noise, "zeros": _zeros, "deep": _deep, "folder": _folder, "loop": _loop, "dangling": _dangling, "pipe": _pipe,
    "zero device": _zero_device,
}  # fmt: skip
# What a format without checksums may take for other values: an error in a sentence, or values, but nothing else.
POSSIBLE: dict[str, Damage] = {
    "half": _half, "first bytes": _first_bytes, "some bytes": _some_bytes, "last bytes": _last_bytes, "utf-16": _utf16,
    "utf-16 without mark": _utf16_without_mark, "a number": _a_number,
}  # fmt: skip
