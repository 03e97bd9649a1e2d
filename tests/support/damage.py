"""Ways to damage a file that no reader can take for a good file, each a function of its path."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path


def _instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """What `make` puts in the place of the file."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


CERTAIN: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deep": lambda path: path.write_text("[" * 100_000),
    "folder": _instead(Path.mkdir),
    "loop": _instead(lambda path: path.symlink_to(path)),
    "dangling": _instead(lambda path: path.symlink_to(path.with_name("gone"))),
    "pipe": _instead(os.mkfifo),
    "zero device": _instead(lambda path: path.symlink_to("/dev/zero")),
}
