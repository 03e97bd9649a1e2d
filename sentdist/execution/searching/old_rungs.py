"""Removes rungs from which nothing goes on any more: what they said is noted, and their checkpoints are large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sentdist.errors import StoreError
from sentdist.plan.stages import Train, to_share
from sentdist.stages.rung_records import CHECKPOINT
from sentdist.store.curves import keep_pruned_curve, read_curve
from sentdist.store.searches import SearchTrial
from sentdist.store.store import ArtifactStore


def keep_curve_of(store: ArtifactStore, train: Train, shares: Sequence[float]) -> None:
    """Keep the curve of a training that goes on no more: its highest rung has it, and is going to be removed."""
    found = [artifact for share in sorted(shares) if share < 1.0 and (artifact := store.get(to_share(train, share))) is not None]
    with suppress(StoreError):
        if found:
            keep_pruned_curve(store, train.key, read_curve(store, found[-1].record.place, within=f"{CHECKPOINT}/"))


def drop_below(store: ArtifactStore, train: Train, share: float, shares: Sequence[float]) -> None:
    """Remove the rungs of a training below a share."""
    for lower in shares:
        artifact = store.get(to_share(train, lower)) if lower < share else None
        if artifact is not None:
            with suppress(StoreError, OSError):
                store.drop(artifact)


def drop_left(store: ArtifactStore, trials: Mapping[int, SearchTrial], trains: Mapping[int, Train], shares: Sequence[float]) -> None:
    """Remove what an earlier submission left because it was killed before it could."""
    left = set()
    for number, trial in trials.items():
        is_over = trial.state in ("finished", "pruned")
        done = 1.0 if is_over else max((rung.share for rung in trial.rungs), default=0.0)
        left |= {to_share(trains[number], share).key for share in shares if share < done}
    with suppress(StoreError, OSError):
        for artifact in store.artifacts("rung") if left else ():
            if artifact.key in left:
                store.drop(artifact)
