"""The inputs that the stage under way reads: most lie in memory as they lie on the disk, so a change under it changes what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sentdist.errors import ArtifactLost, StoreError
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.store.verified import VerifiedFiles

InUse = dict[str, tuple[ArtifactStore, Artifact, VerifiedFiles]]  # by folder
_in_use: list[InUse] = []  # of each stage that this process builds; one may build another one that it needs


@contextmanager
def inputs_watched(used: InUse | None = None) -> Iterator[None]:
    """While a stage is built, or a part of one. An error that comes of a changed input (ids that no corpus has) is told as the loss of
    that input.

    used: what earlier parts have opened and this one may read; takes what this one opens.

    Raises:
        ArtifactLost: an input was changed, replaced or moved away under the stage.
    """
    _in_use.append({} if used is None else used)
    try:
        yield
    except ArtifactLost:
        raise
    except Exception as error:
        if (loss := lost_input()) is not None:
            raise loss from error
        raise
    finally:
        _in_use.pop()


def note_input(store: ArtifactStore, artifact: Artifact, folder: Path) -> None:
    """Its files, in the folder that the store has given, are read from now on."""
    for used in _in_use:
        used.setdefault(str(folder), (store, artifact, VerifiedFiles(folder, artifact.record.files)))


def check_inputs() -> None:
    """Before anything is published that was made from them.

    Raises:
        ArtifactLost: as `inputs_watched`.
    """
    for used in _in_use:
        for store, artifact, use in used.values():
            store.check_unchanged(artifact, use)


def lost_input() -> ArtifactLost | None:
    """As `check_inputs`, but the error is returned: the caller has others to warn first. None also for a store that cannot be read."""
    try:
        check_inputs()
    except ArtifactLost as loss:
        return loss
    except StoreError:
        return None
    return None
