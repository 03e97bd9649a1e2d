"""A small disk of its own for the stores of a soak: it can be full, read-only or silent without anybody else on the machine noticing."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_BYTES = 192 * 2**20
SILENT_AT_MOST_S = 120  # then it answers again, even if the soak was ended meanwhile: a process that waits for it cannot be ended


class Disk:
    """An ext4 file system in a file, mounted before the hosts are made: their processes see no later mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self._image = folder / "disk.img"
        self._filler = self.folder / "filler"

    @contextmanager
    def mounted(self) -> Iterator[None]:
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE_BYTES)
        _do("mkfs.ext4", "-q", "-m", "0", str(self._image))
        _do("mount", "-o", "loop,noatime", str(self._image), str(self.folder))
        try:
            yield
        finally:
            _do("umount", "--lazy", str(self.folder))

    def fill(self) -> None:
        """Write until the last byte is taken."""
        with self._filler.open("wb", buffering=0) as filler:
            for block in (2**20, 2**12, 1):
                try:
                    while True:
                        filler.write(b"\0" * block)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def make_read_only(self) -> bool:
        """As after an error of the disk; False if a file is just open for writing, which forbids it."""
        return subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], capture_output=True, check=False).returncode == 0

    def make_writable(self) -> None:
        _do("mount", "-o", "remount,rw", str(self.folder))

    def silence(self) -> None:
        """Whoever writes waits, as with a file server that does not answer."""
        _do("fsfreeze", "--freeze", str(self.folder))
        guard = f"(sleep {SILENT_AT_MOST_S}; fsfreeze --unfreeze {self.folder}) > /dev/null 2>&1 &"
        subprocess.run(["setsid", "sh", "-c", guard], check=True)

    def answer_again(self) -> None:
        subprocess.run(["fsfreeze", "--unfreeze", str(self.folder)], capture_output=True, check=False)  # the guard was perhaps faster


def damage(path: Path) -> None:
    """Turn one byte in the middle of a file over, keeping its times, as a bad disk does."""
    found = path.stat()
    with path.open("r+b") as file:
        file.seek(found.st_size // 2)
        (byte,) = file.read(1)
        file.seek(found.st_size // 2)
        file.write(bytes([byte ^ 0x10]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
