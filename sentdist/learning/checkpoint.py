"""Checkpoint files that all engines share: progress, which completes a checkpoint, and random states."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from sentdist.errors import StoreError, named, words_for
from sentdist.files import whole_file
from sentdist.learning.optimization import EarlyStopping
from sentdist.learning.prefetch import device_random_state, set_device_random_state

PROGRESS_FILE = "progress.json"


class UnusableCheckpoint(Exception):  # noqa: N818 - internal, never shown as an error
    """An existing checkpoint cannot be resumed."""


@dataclass(frozen=True, kw_only=True)
class DevScore:
    """A score on the development set after `step` optimizer steps."""

    step: int
    score: float


def defined(score: float | None) -> float | None:
    """Return a dev score as records have it: None if there is none or it is undefined (minus infinity in sessions)."""
    return score if score is not None and math.isfinite(score) else None


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """The engine that wrote a checkpoint: "torch" or "deepspeed", its ZeRO stage (0 for torch) and its number of ranks."""

    engine: str
    zero_stage: int
    world_size: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Position of a training between two steps: all that is needed to resume besides the engine's own state."""

    step: int  # optimizer steps done, hence the number of the next one
    epoch: int = 0  # of the next step in the data order, like step_in_epoch
    step_in_epoch: int = 0
    best_score: float | None = None  # of the dev evaluations so far, like best_step
    best_step: int | None = None
    stopping: EarlyStopping | None = None
    history: tuple[DevScore, ...] = ()  # all dev evaluations so far
    seconds: float = field(default=0.0, compare=False)  # of earlier attempts up to here, rungs included


def write_progress(folder: Path, progress: Progress, facts: EngineFacts) -> None:
    """Commit the checkpoint in `folder`, which is either complete or absent; StoreError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / PROGRESS_FILE, synced=True) as part:
            part.write_text(json.dumps({"progress": asdict(progress), "engine": asdict(facts)}, indent=1))
    except OSError as error:
        raise StoreError(
            where=str(folder),
            found=named(error),
            expected="a writable folder",
            remedy="Free some space or choose another place for checkpoints; the previous checkpoint is untouched.",
        ) from error


def read_progress(folder: Path) -> tuple[Progress, EngineFacts]:
    """Read the progress of the checkpoint in `folder`; StoreError if it is missing or damaged, OSError if its disk fails."""
    path = folder / PROGRESS_FILE
    try:
        found = json.loads(path.read_text())
        fields = dict(found["progress"])
        fields["history"] = tuple(DevScore(**score) for score in fields["history"])
        fields["stopping"] = _stopping(fields["stopping"]) if fields["stopping"] is not None else None
        return Progress(**fields), EngineFacts(**found["engine"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if words_for(error):
            raise
        raise StoreError(
            where=str(path),
            found=named(error),
            expected="the progress file of a complete checkpoint",
            remedy="Resume from an older checkpoint, or start over.",
        ) from error


def _stopping(fields: dict[str, Any]) -> EarlyStopping:
    """Accept `min_delta` of older checkpoints, which was always 0."""
    return EarlyStopping(**{name: value for name, value in fields.items() if (name, value) != ("min_delta", 0.0)})


def check_engine(folder: Path, *, wrote: EngineFacts, reads: EngineFacts) -> None:
    """Raise StoreError unless the engine `reads` can resume from what the engine `wrote` saved.

    The torch engine and ZeRO stage 0 save whole states, which fit any number of ranks; ZeRO 1–3 save one shard per rank.
    """
    same_kind = (wrote.engine, wrote.zero_stage) == (reads.engine, reads.zero_stage)
    if not same_kind or (wrote.zero_stage > 0 and wrote.world_size != reads.world_size):
        raise StoreError(
            where=str(folder),
            found=f"a checkpoint of {_describe(wrote)}",
            expected=f"one of {_describe(reads)}",
            remedy="Resume with the engine, ZeRO stage and number of workers that wrote it, or start over.",
        )


def save_rng(folder: Path, *, rank: int, world_size: int) -> None:
    """Write torch's random states of this rank, for dropout; sentdist does not use `random` or NumPy's global state."""
    states = {"world_size": world_size, "cpu": torch.get_rng_state(), "cuda": device_random_state()}
    torch.save(states, folder / f"rng-{rank:05d}.pt")


def load_rng(folder: Path, *, rank: int, world_size: int) -> None:
    """Restore the state of `save_rng`. With another number of ranks it has no effect: the caller's seeding applies."""
    path = folder / f"rng-{rank:05d}.pt"
    if not path.exists():
        return
    state = torch.load(path, weights_only=True)
    if state["world_size"] != world_size:
        return
    torch.set_rng_state(state["cpu"])
    set_device_random_state(state["cuda"])


def _describe(facts: EngineFacts) -> str:
    stage = f", ZeRO stage {facts.zero_stage}" if facts.engine == "deepspeed" else ""
    return f"the {facts.engine} engine{stage} on {facts.world_size} workers"
