"""Where an unfinished training keeps its checkpoints: `running/KEY` in the store, so that any node can go on from them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from sentdist.learning.checkpoint import PROGRESS_FILE
from sentdist.plan.stage import Stage
from sentdist.store.store import ArtifactStore

RUNNING = "running"


def store_place(store: ArtifactStore, place: str) -> tuple[fs.FileSystem, str]:
    """A folder of a store as Ray's configurations want it: the file system and the path on it."""
    if store.is_local:
        return fs.LocalFileSystem(), str(Path(store.root).expanduser().absolute() / place)
    filesystem, base = fs.FileSystem.from_uri(store.root)
    return filesystem, f"{base.rstrip('/')}/{place}"


def forget_running(store: ArtifactStore, stage: Stage) -> None:
    """Remove the checkpoints of a training that is finished."""
    filesystem, path = store_place(store, f"{RUNNING}/{stage.key}")
    if filesystem.get_file_info(path).type == fs.FileType.Directory:
        filesystem.delete_dir(path)


class RunningFolder:
    """The checkpoints of one training on one worker; only the newest is kept. (Ray Train manages those of a worker group itself.)"""

    def __init__(self, store: ArtifactStore, stage: Stage) -> None:
        self._fs, self._path = store_place(store, f"{RUNNING}/{stage.key}")

    def save(self, write: Callable[[Path], None], *, step: int) -> None:
        """Publish what `write` puts into a folder as the checkpoint of this step: the progress file last, then the older ones go."""
        older = self._steps()
        target = f"{self._path}/{step:08d}"
        with tempfile.TemporaryDirectory() as scratch:
            write(Path(scratch))
            progress = (Path(scratch) / PROGRESS_FILE).rename(Path(scratch).with_suffix(".json"))
            try:
                self._fs.create_dir(target, recursive=True)
                fs.copy_files(scratch, target, destination_filesystem=self._fs)
                with self._fs.open_output_stream(f"{target}/{PROGRESS_FILE}") as stream:
                    stream.write(progress.read_bytes())
            finally:
                progress.unlink()
        for old in older:
            if old != target:
                self._fs.delete_dir(old)

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        """A local copy of the newest whole checkpoint; None if there is none."""
        whole = [path for path in self._steps() if self._fs.get_file_info(f"{path}/{PROGRESS_FILE}").type == fs.FileType.File]
        if not whole:
            yield None
            return
        with tempfile.TemporaryDirectory() as scratch:
            fs.copy_files(whole[-1], scratch, source_filesystem=self._fs)
            yield Path(scratch)

    def _steps(self) -> list[str]:
        selector = fs.FileSelector(self._path, allow_not_found=True)
        return sorted(info.path for info in self._fs.get_file_info(selector) if info.type == fs.FileType.Directory)
