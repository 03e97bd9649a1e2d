"""Where an unfinished training keeps its checkpoints: `running/KEY` in the store, so that any node can go on from them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from sentdist.disk_errors import words_for
from sentdist.errors import StoreError
from sentdist.plan.stage import Stage
from sentdist.store.access import reading, reason_of
from sentdist.store.durable import make_folder, replace_file, sync_folder, sync_tree
from sentdist.store.integrity import FileFacts, damage_of, facts_of_tree
from sentdist.store.local_root import STAGING
from sentdist.store.scratch import scratch_folder
from sentdist.store.store import ArtifactStore

RUNNING = "running"
KEPT = 2  # checkpoints: where the newest turns out to be damaged, the one before it is as good a start

Exchange = Callable[[object], list[object]]


UNFINISHED = "it was not written to its end"


class OfNoUse(Exception):  # noqa: N818 - what a reader says of a checkpoint; nobody meets it as an error
    """Why a whole checkpoint cannot be gone on from."""


def alone(value: object) -> list[object]:
    """What the ranks of a training say to one another where there is only one."""
    return [value]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A whole checkpoint: a local folder with its files, and the optimizer steps that it holds."""

    folder: Path
    step: int


@dataclass(frozen=True, kw_only=True)
class _Seal:
    """What one rank notes of its files once they are written; a checkpoint is whole when all ranks' seals are there and right."""

    rank: int
    world_size: int
    files: dict[str, FileFacts]

    @staticmethod
    def name(rank: int) -> str:
        return f"seal-{rank:05d}.json"

    @property
    def content(self) -> bytes:
        files = {name: [facts.num_bytes, facts.sha256] for name, facts in self.files.items()}
        return json.dumps({"rank": self.rank, "world_size": self.world_size, "files": files}, indent=1).encode()

    @staticmethod
    def read(path: Path) -> _Seal | None:
        """None if it is not there or is damaged; OSError if its disk fails: that says nothing of the checkpoint."""
        try:
            found = json.loads(path.read_text())
            files = {name: FileFacts(num_bytes=int(size), sha256=str(sha256)) for name, (size, sha256) in found["files"].items()}
            return _Seal(rank=int(found["rank"]), world_size=int(found["world_size"]), files=files)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if words_for(error):
                raise
            return None


def forget_running(store: ArtifactStore, stage: Stage) -> None:
    """Remove the checkpoints of a training that is finished. What cannot be removed now, `sentdist store gc` removes."""
    path = f"{store.base}/{RUNNING}/{stage.key}"
    with suppress(OSError):
        if store.filesystem.get_file_info(path).type == fs.FileType.Directory:
            store.filesystem.delete_dir(path)


def newest_step(store: ArtifactStore, stage: Stage, *, below: int | None = None) -> int | None:
    """The step of the newest checkpoint (of those below a step), whole or not; None if there is none."""
    return max((step for step in _steps(store, stage) if below is None or step < below), default=None)


class RunningFolder:
    """The checkpoints of one training as one of its ranks sees them.
    `save` and `resume` are collective: every rank calls them, in the same order.

    exchange: gives each rank what every rank said, in order of ranks.
    """

    def __init__(self, store: ArtifactStore, stage: Stage, *, rank: int = 0, world_size: int = 1, exchange: Exchange = alone) -> None:
        self._store = store
        self._stage = stage
        self._rank = rank
        self._world_size = world_size
        self.exchange = exchange

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that speaks for all."""
        return self._rank == 0

    def save(self, write: Callable[[Path], None], *, step: int) -> str | None:
        """Publish what `write` puts into a folder as this rank's share of the checkpoint of this step; then older ones go.

        Returns why the checkpoint could not be written (a full disk), None if it was: the training can go on without it.
        """
        problem = None
        try:
            self._write(write, step)
        except (OSError, RuntimeError, StoreError) as error:  # torch and DeepSpeed raise RuntimeErrors where a file cannot be written
            problem = error.found if isinstance(error, StoreError) else reason_of(error) if isinstance(error, OSError) else str(error)[:200]
        problem = _first(self.exchange(problem))
        if self.is_first:
            with suppress(OSError, StoreError):
                steps = _steps(self._store, self._stage)
                for old in [step] if problem else [one for one in steps if one != step][: -(KEPT - 1)]:
                    self._store.filesystem.delete_dir(self._path(old))
        return problem

    def resume(self, load: Callable[[Found], None]) -> tuple[int | None, list[str]]:
        """Have the newest whole checkpoint loaded; the step that it holds (None: there is none), and for each that is of no use why.

        What was not written to its end is removed; what is damaged, or raises OfNoUse in `load`, is moved aside. `load` may be called again
        after it has failed, and must then begin anew.

        Raises:
            StoreError: a checkpoint cannot be read (on all ranks); it may be whole, so it stays.
        """
        notes: list[str] = []
        step: int | None = None
        while True:
            step = self._newest_for_all(below=step)
            if step is None:
                return None, notes
            why = self._try(step, load)
            if why is None:
                return step, notes
            notes.append(self._discard(step, why))

    def _newest_for_all(self, *, below: int | None) -> int | None:
        found: object = None
        if self.is_first:
            try:
                found = newest_step(self._store, self._stage, below=below)
            except StoreError as error:
                found = error
        (found, *_) = self.exchange(found)
        if isinstance(found, StoreError):
            raise found
        return found if isinstance(found, int) else None

    def _try(self, step: int, load: Callable[[Found], None]) -> str | None:
        """Load a checkpoint on all ranks; why it is of no use, None if it was loaded."""
        verdict: object
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._local(step))
                verdict = self._damage(folder)
            except OSError as error:
                verdict = self._unreadable(step, error)
            why = self._agree(verdict)
            if why is not None:
                return why
            try:
                load(Found(folder=folder, step=step))
                verdict = None
            except OfNoUse as error:
                verdict = str(error)
            except OSError as error:
                verdict = self._unreadable(step, error)
            return self._agree(verdict)

    def _agree(self, verdict: object) -> str | None:
        """The first reason that a rank has, on all ranks; an error of one of them is raised on all."""
        said = self.exchange(verdict)
        for one in said:
            if isinstance(one, StoreError):
                raise one
        return _first(said)

    def _unreadable(self, step: int, error: OSError) -> StoreError:
        return StoreError(
            where=f"{self._store.shown}/{RUNNING}/{self._stage.key}/{step:08d}",
            found=reason_of(error),
            expected="a checkpoint that can be read",
            remedy="Check the disk, the network and the credentials, then submit again: it stays where it is.",
        )

    def _discard(self, step: int, why: str) -> str:
        lies = None
        if self.is_first and why == UNFINISHED:
            try:
                self._store.filesystem.delete_dir(self._path(step))
                lies = "removed"
            except OSError:
                lies = self._store.set_aside(f"{RUNNING}/{self._stage.key}/{step:08d}", why)
        elif self.is_first:
            lies = self._store.set_aside(f"{RUNNING}/{self._stage.key}/{step:08d}", why)
        return f"the checkpoint of step {step} is of no use ({why}): {_first(self.exchange(lies))}"

    def _write(self, write: Callable[[Path], None], step: int) -> None:
        target = self._path(step)
        with self._scratch() as scratch:
            write(scratch)
            seal = _Seal(rank=self._rank, world_size=self._world_size, files=facts_of_tree(scratch))
            if self._store.is_local:
                _move(scratch, Path(target))
                replace_file(Path(target) / _Seal.name(self._rank), seal.content, beside=f".seal-{self._rank:05d}")
                return
            self._store.filesystem.create_dir(target, recursive=True)
            fs.copy_files(str(scratch), target, destination_filesystem=self._store.filesystem)
            with self._store.filesystem.open_output_stream(f"{target}/{_Seal.name(self._rank)}") as stream:
                stream.write(seal.content)

    def _damage(self, folder: Path) -> str | None:
        """What is wrong with the share of this rank, and of those ranks that wrote the checkpoint and are no more."""
        first = _Seal.read(folder / _Seal.name(0))
        if first is None:
            return UNFINISHED if not (folder / _Seal.name(0)).exists() else f"{_Seal.name(0)} cannot be read"
        for rank in range(self._rank, first.world_size, self._world_size):
            seal = _Seal.read(folder / _Seal.name(rank))
            if seal is None:
                return UNFINISHED if not (folder / _Seal.name(rank)).exists() else f"{_Seal.name(rank)} cannot be read"
            damage = damage_of(folder, seal.files, seal.files)
            if damage is not None:
                return damage
        return None

    @contextmanager
    def _local(self, step: int) -> Iterator[Path]:
        """A local folder with a checkpoint: its own on a file system, a copy of one in an object store."""
        if self._store.is_local:
            yield Path(self._path(step))
            return
        with scratch_folder(Path(tempfile.gettempdir()), "checkpoint") as scratch:
            fs.copy_files(self._path(step), str(scratch), source_filesystem=self._store.filesystem)
            yield scratch

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A folder to write into; in the store itself where that is a file system, so that files need no copy."""
        if not self._store.is_local:
            with scratch_folder(Path(tempfile.gettempdir()), "checkpoint") as folder:
                yield folder
            return
        parent = Path(self._store.base) / STAGING
        self._store.local_root.make_folder(parent)
        with scratch_folder(parent, "checkpoint") as folder:
            yield folder

    def _path(self, step: int) -> str:
        return f"{self._store.base}/{RUNNING}/{self._stage.key}/{step:08d}"


def _steps(store: ArtifactStore, stage: Stage) -> list[int]:
    selector = fs.FileSelector(f"{store.base}/{RUNNING}/{stage.key}", allow_not_found=True)
    with reading(store.shown):
        infos = store.filesystem.get_file_info(selector)
    return sorted(int(info.base_name) for info in infos if info.base_name.isdigit())


def _move(scratch: Path, target: Path) -> None:
    """Move the files below `scratch` into `target`, where those of other ranks may lie; all are on the disk when this returns."""
    sync_tree(scratch)
    make_folder(target)
    for path in sorted(scratch.rglob("*")):
        if path.is_file():
            moved = target / path.relative_to(scratch)
            make_folder(moved.parent)
            path.replace(moved)
    for folder in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        sync_folder(folder)


def _first(said: list[object]) -> str | None:
    """What the first rank that said something said."""
    return next((str(one) for one in said if one is not None), None)
