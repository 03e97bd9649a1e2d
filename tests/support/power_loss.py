"""A disk that loses power: what it would hold at every moment, from what was synced and nothing else."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Remains:
    """What is left after a power loss: files by path, and how many things were acknowledged before it."""

    files: dict[str, bytes]
    num_promised: int

    def lay_out(self, folder: Path) -> Path:
        """Write the files below a fresh folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder


@dataclass
class Disk:
    """Watches a folder while a test works in it. A file holds what it held when it was last synced, nothing if it never was.

    Two disks are imagined at each moment: one that writes names at once (so that a renamed file may be there without its content), and one
    that keeps only the names of folders that were synced.
    """

    root: Path
    remains: list[Remains] = field(default_factory=list)
    num_promised: int = 0
    _contents: dict[int, bytes] = field(default_factory=dict)  # inode -> what was synced
    _names: dict[int, dict[str, int]] = field(default_factory=dict)  # inode of a folder -> names that were synced, with their inodes
    _kept: list[int] = field(default_factory=list)  # open descriptors: an inode is not used again meanwhile

    def promise(self) -> None:
        """The caller has been notified that what it asked for is done."""
        self.num_promised += 1
        self.lose_power()

    def synced(self, descriptor: int) -> None:
        """Note what fsync has taken."""
        facts = os.fstat(descriptor)
        self._kept.append(os.dup(descriptor))
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if stat.S_ISDIR(facts.st_mode):
            self._names[facts.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[facts.st_ino] = path.read_bytes()

    def lose_power(self) -> None:
        """Keep what would be left if the power failed now."""
        ahead = {
            str(path.relative_to(self.root)): self._contents.get(path.stat().st_ino, b"") for path in self.root.rglob("*") if path.is_file()
        }
        behind: dict[str, bytes] = {}
        self._walk(self.root.stat().st_ino, "", behind)
        for files in (ahead, behind):
            found = Remains(files=files, num_promised=self.num_promised)
            if found not in self.remains[-4:]:
                self.remains.append(found)

    def _walk(self, inode: int, where: str, into: dict[str, bytes]) -> None:
        for name, below in self._names.get(inode, {}).items():
            if below in self._contents:
                into[f"{where}{name}"] = self._contents[below]
            elif below in self._names:
                self._walk(below, f"{where}{name}/", into)


@contextmanager
def disk_at(root: Path, monkeypatch: pytest.MonkeyPatch, *, ignores_fsync: bool = False) -> Iterator[Disk]:
    """Watch what is synced below `root`; the power may fail at every sync and every rename.
    ignores_fsync: as a program would that never asks."""
    root.mkdir(parents=True, exist_ok=True)
    disk = Disk(root)
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def syncing(descriptor: int) -> None:
        disk.lose_power()
        fsync(descriptor)
        if not ignores_fsync:
            disk.synced(descriptor)
        disk.lose_power()

    def moving(how):  # type: ignore[no-untyped-def]
        def move(*arguments, **options):  # type: ignore[no-untyped-def]
            how(*arguments, **options)
            disk.lose_power()

        return move

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", syncing)
        patched.setattr(os, "rename", moving(rename))
        patched.setattr(os, "replace", moving(replace))
        try:
            yield disk
        finally:
            for descriptor in disk._kept:
                os.close(descriptor)
