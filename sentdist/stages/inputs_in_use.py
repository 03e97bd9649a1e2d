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
    """Enter it while a stage, or a part of one, is built. An error that a changed input has caused (such as ids that no corpus has) is
    raised as the loss of that input.

    used: the inputs that earlier parts of the stage have opened; those that this part opens are added to it.

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
    """Note that the files of an artifact are read from now on. folder: where the store has given them."""
    for used in _in_use:
        used.setdefault(str(folder), (store, artifact, VerifiedFiles(folder, artifact.record.files)))


def check_inputs() -> None:
    """Call it before what was made from the inputs is published.

    Raises:
        ArtifactLost: as `inputs_watched`.
    """
    for used in _in_use:
        for store, artifact, use in used.values():
            store.check_unchanged(artifact, use)


def lost_input() -> ArtifactLost | None:
    """As `check_inputs`, but the error is returned, for callers that must warn other workers first. None also where the store cannot be
    read."""
    try:
        check_inputs()
    except ArtifactLost as loss:
        return loss
    except StoreError:
        return None
    return None
