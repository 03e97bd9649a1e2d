"""Save, verify, load and remove checkpoints of unfinished trainings, at `running/KEY` in the store, which all nodes see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyarrow import fs

from sentdist.errors import StoreError, words_for
from sentdist.recipe.stage import Stage
from sentdist.store.record import FileChecksum, checksums_below, damage_of
from sentdist.store.storage import reading, reason_of
from sentdist.store.store import RUNNING, ArtifactStore

if TYPE_CHECKING:  # torch takes seconds, and drivers only remove checkpoints
    from sentdist.stages.train_setup import Ranks

KEPT = 2  # checkpoints: if the newest is damaged, the one before it is used

UNFINISHED = "it was not written to its end"


class _Seal(NamedTuple):
    """Checksums that one rank writes after its files; a checkpoint is complete when the seals of all ranks exist and match."""

    world_size: int
    files: dict[str, FileChecksum]


def _seal_name(rank: int) -> str:
    return f"seal-{rank:05d}.json"


def _read_seal(folder: Path, rank: int) -> _Seal | str:
    """Return a rank's seal, or why it is unusable; raise OSError if the disk fails, which says nothing about the checkpoint."""
    path = folder / _seal_name(rank)
    try:
        found = json.loads(path.read_text())
        files = {name: FileChecksum(num_bytes=int(size), sha256=str(sha256)) for name, (size, sha256) in found["files"].items()}
        return _Seal(world_size=int(found["world_size"]), files=files)
    except FileNotFoundError:
        return UNFINISHED
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if words_for(error):
            raise
        return f"{path.name} cannot be read"


def forget_finished(store: ArtifactStore, finished: Set[str]) -> None:
    """Remove checkpoints of finished stages (keys); `sentdist store gc` removes what cannot be removed now."""
    with suppress(OSError):
        for info in store.filesystem.get_file_info(fs.FileSelector(f"{store.base}/{RUNNING}", allow_not_found=True)):
            if info.base_name in finished:
                store.filesystem.delete_dir(info.path)


class RunningFolder:
    """The checkpoints of one training, on one rank. `save` and `resume` are collective: every rank calls them in the same order."""

    def __init__(self, store: ArtifactStore, stage: Stage, ranks: Ranks) -> None:
        self._store, self._stage, self.ranks = store, stage, ranks

    def save(self, write: Callable[[Path], None], *, step: int) -> str | None:
        """Publish this rank's share of a checkpoint, and remove older ones.

        Args:
            write: writes the share into a folder.
            step: step of the checkpoint.

        Returns:
            Why the checkpoint could not be written (full disk), None if it was; the training can go on without it.
        """
        problem: str | None = None
        with ExitStack() as stack:
            scratch = Path()
            try:
                scratch = stack.enter_context(self._store.storage.scratch("checkpoint"))
            except (OSError, StoreError) as error:
                problem = _words(error)
            problem = self.ranks.first_said(problem)  # before `write`, in which ranks wait for one another
            if problem is None:
                try:
                    write(scratch)
                    self._publish(scratch, step)
                except (OSError, RuntimeError, StoreError) as error:  # torch and DeepSpeed raise RuntimeErrors for a full disk, too
                    problem = _words(error)
                problem = self.ranks.first_said(problem)
        if self.ranks.is_first:
            with suppress(OSError, StoreError):
                steps = _steps(self._store, self._stage)
                for old in [step] if problem else [one for one in steps if one != step][: -(KEPT - 1)]:
                    self._store.filesystem.delete_dir(self._path(old))
        return problem

    def resume(self, load: Callable[[Path], str | None]) -> tuple[int | None, list[str]]:
        """Load the newest complete checkpoint. Incomplete ones are removed; damaged or unusable ones are moved aside.

        Args:
            load: loads a checkpoint; returns why it is unusable, else None. A second call must start over.

        Returns:
            The step of the checkpoint (None if there is none), and why newer ones are unusable.

        Raises:
            StoreError: a checkpoint cannot be read (raised on all ranks); it may be complete, so it stays.
        """
        notes: list[str] = []
        step: int | None = None
        while True:
            step = self.ranks.from_first(partial(self._newest, step))
            if step is None:
                return None, notes
            why = self._try(step, load)
            if why is None:
                return step, notes
            notes.append(self._discard(step, why))

    def _try(self, step: int, load: Callable[[Path], str | None]) -> str | None:
        """Load a checkpoint on all ranks; return why it is unusable, None if it was loaded."""
        with ExitStack() as stack:
            why, folder = None, Path()
            with self.ranks.errors_on_all(), self._reading(step):
                folder = stack.enter_context(self._store.storage.local(self._place(step)))
                why = self._damage(folder)
            if (why := self.ranks.first_said(why)) is not None:
                return why
            with self.ranks.errors_on_all(), self._reading(step):
                why = load(folder)
            return self.ranks.first_said(why)

    @contextmanager
    def _reading(self, step: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                where=f"{self._store.shown}/{self._place(step)}",
                found=reason_of(error),
                expected="a checkpoint that can be read",
                remedy="Check the disk, the network and the credentials, then submit again: it stays where it is.",
            ) from error

    def _discard(self, step: int, why: str) -> str:
        lies = self._put_away(step, why) if self.ranks.is_first else None
        return f"the checkpoint of step {step} is of no use ({why}): {self.ranks.first_said(lies)}"

    def _put_away(self, step: int, why: str) -> str:
        """Remove an incomplete checkpoint, move another aside; return where it is now, as a phrase."""
        if why == UNFINISHED:
            with suppress(OSError):
                self._store.filesystem.delete_dir(self._path(step))
                return "removed"
        return self._store.set_aside(self._place(step), why)

    def _publish(self, scratch: Path, step: int) -> None:
        place = self._place(step)
        files = {name: [one.num_bytes, one.sha256] for name, one in checksums_below(scratch).items()}
        seal = {"rank": self.ranks.rank, "world_size": self.ranks.world_size, "files": files}
        self._store.storage.add_files(scratch, place)
        self._store.storage.write(f"{place}/{_seal_name(self.ranks.rank)}", json.dumps(seal, indent=1).encode())

    def _damage(self, folder: Path) -> str | None:
        """Damage of this rank's share, and of shares of former ranks assigned to it."""
        first = _read_seal(folder, 0)
        if isinstance(first, str):
            return first
        for rank in range(self.ranks.rank, first.world_size, self.ranks.world_size):
            seal = _read_seal(folder, rank)
            if isinstance(seal, str):
                return seal
            damage = damage_of(folder, seal.files, seal.files)
            if damage is not None:
                return damage
        return None

    def _newest(self, below: int | None) -> int | None:
        """The step of the newest checkpoint, complete or not, below the step `below` if given."""
        return max((step for step in _steps(self._store, self._stage) if below is None or step < below), default=None)

    def _place(self, step: int) -> str:
        return f"{RUNNING}/{self._stage.key}/{step:08d}"

    def _path(self, step: int) -> str:
        return f"{self._store.base}/{self._place(step)}"


def _words(error: Exception) -> str:
    return error.found if isinstance(error, StoreError) else reason_of(error) if isinstance(error, OSError) else str(error)[:200]


def _steps(store: ArtifactStore, stage: Stage) -> list[int]:
    selector = fs.FileSelector(f"{store.base}/{RUNNING}/{stage.key}", allow_not_found=True)
    with reading(store.shown):
        infos = store.filesystem.get_file_info(selector)
    return sorted(int(info.base_name) for info in infos if info.base_name.isdigit())
