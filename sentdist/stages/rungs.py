"""Train in parts: stop at a share of the steps (a rung), resume from it, publish the rung or the training."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sentdist.errors import StoreError, first_line, words_for
from sentdist.learning.bank import FileBank, StoredBank
from sentdist.learning.checkpoint import DevScore, UnusableCheckpoint, defined
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport
from sentdist.learning.precision import subnormals_flushed
from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import Rung, Train
from sentdist.stages.context import Context, check_inputs, commit, folder_of
from sentdist.stages.fit import device_of
from sentdist.stages.rung_records import CHECKPOINT
from sentdist.stages.train import TrainSession
from sentdist.stages.train_setup import ALONE, Ranks, placed
from sentdist.store.local_storage import scratch_folder
from sentdist.store.store import Artifact


@dataclass(frozen=True, kw_only=True)
class ResumedSession:
    """A session, and the cost of the rung that it resumes from."""

    session: TrainSession
    seconds: float = 0.0
    step: int = 0  # optimizer steps
    note: str | None = None  # why a rung could not be used


def from_rung(
    session: TrainSession, stage: Train | Rung, context: Context, *, make: Callable[[], TrainSession], ranks: Ranks
) -> ResumedSession:
    """Resume from the highest usable rung below `stage`, else start from the beginning; the same on every rank."""
    found = ranks.from_first(partial(_below, stage, context))
    if found is None:
        return ResumedSession(session=session)
    if not session.progress.step:  # else a checkpoint of a lost attempt is further
        with ranks.errors_on_all():
            problem = _load(session, found, context)
        problem = ranks.first_said(problem)
        if problem is not None:
            return ResumedSession(session=make(), note=f"starts over: {found.record.label} is of no use ({problem})")
    seconds = found.record.number("seconds_total") or 0.0
    session.progress = replace(session.progress, seconds=max(seconds, session.progress.seconds))  # earlier versions saved none
    return ResumedSession(session=session, seconds=seconds, step=int(found.record.number("step") or 0.0))


def rung_results(resumed: ResumedSession, *, seconds: float) -> dict[str, Json]:
    """Return the results for a rung's record; `seconds` of the whole training so far."""
    session = resumed.session
    progress = session.progress
    train = session.stage
    return {
        "step": progress.step,
        "num_steps_planned": session.schedule.num_steps,
        "best_step": progress.best_step,
        "best_dev_score": defined(progress.best_score),
        "dev_history": [[one.step, defined(one.score)] for one in progress.history],
        "sentences": progress.step * train.sentences_per_step,
        "seconds_total": seconds,
        **before(resumed),
    }


def before(resumed: ResumedSession) -> dict[str, Json]:
    """Return results for the record about the rung that a session resumed from; empty without one."""
    if not resumed.step:
        return {}
    return {"seconds_before": round(resumed.seconds, 3), "sentences_before": resumed.step * resumed.session.stage.sentences_per_step}


def publish_training(resumed: ResumedSession, stage: Train | Rung, context: Context, ranks: Ranks, *, started: float) -> Artifact | None:
    """Publish the result of a session; return None on all ranks but the first.

    Args:
        started: `time.perf_counter()` at the start of this part.

    Raises:
        ArtifactLost: a rank found an input changed during training; raised on all ranks.
    """
    with ranks.errors_on_all():
        check_inputs()
    context = replace(context, runtime=context.runtime.with_workers(ranks.world_size))  # for the record
    with context.store.staged() if ranks.is_first else scratch_folder(Path(tempfile.gettempdir()), "rank") as folder:
        if isinstance(stage, Rung):
            save_on_ranks(resumed.session, folder, ranks)
            total = resumed.session.seconds_since(started)
            results, seconds = rung_results(resumed, seconds=total), total - resumed.seconds
        else:
            results = resumed.session.finish(folder) | before(resumed)
            seconds = resumed.session.seconds_since(started)
        return commit(stage, folder, context, seconds=seconds, results=results) if ranks.is_first else None


def events_until(
    stage: Train | Rung, session: TrainSession, *, vote: Callable[[], float] = lambda: 0.0
) -> Generator[StepReport | DevScore, None, None]:
    """Yield the events of a session until the end of a rung or of the training; `vote` as in `TrainSession.events`."""
    if not isinstance(stage, Rung):
        yield from session.events(vote=vote)
        return
    if session.has_come_to(stage.share):
        return
    with closing(session.events(vote=vote)) as events:
        for event in events:
            yield event
            if session.has_come_to(stage.share):
                return


def save_on_ranks(session: TrainSession, folder: Path, ranks: Ranks) -> None:
    """Write the checkpoint of all ranks into the first rank's folder; each rank has a separate one, perhaps on another host."""
    own = folder / CHECKPOINT
    session.save(own)
    files = {} if ranks.is_first else {str(path.relative_to(own)): path.read_bytes() for path in own.rglob("*") if path.is_file()}
    for others in ranks.gather(files):
        assert isinstance(others, dict)
        for name, content in others.items():
            path = own / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    if not ranks.is_first:
        shutil.rmtree(own, ignore_errors=True)


def _below(stage: Train | Rung, context: Context) -> Artifact | None:
    """The highest finished rung below the stage, of the context's shares."""
    top = stage.share if isinstance(stage, Rung) else 1.0
    for share in sorted((share for share in context.shares if share < top), reverse=True):
        found = context.store.get(Rung(of=stage.whole, share=share))
        if found is not None:
            return found
    return None


def _load(session: TrainSession, found: Artifact, context: Context) -> str | None:
    """Load a rung's checkpoint; return why it cannot be used, None if it was loaded."""
    try:
        session.load(context.store.folder(found) / CHECKPOINT)
    except UnusableCheckpoint as error:
        return str(error)
    except (OSError, StoreError) as error:
        if words_for(error) or words_for(error.__cause__):  # it may be intact
            raise
        return error.found if isinstance(error, StoreError) else first_line(error)
    return None


log = logging.getLogger(__name__)

Listener = Callable[[Stage, TrainSession | None, StepReport | DevScore | Artifact], None]


@subnormals_flushed()
def train_here(stage: Train | Rung, context: Context, *, listen: Listener | None = None) -> Artifact:
    """Train on one rank with the torch engine, resuming from a rung if there is one."""
    started = time.perf_counter()
    device = device_of(context.runtime)
    bank = placed(file_bank(stage.whole, context), stage.whole, context, device)
    make = partial(TrainSession, stage.whole, context, make_engine=partial(TorchEngine, device=device), bank=bank)
    resumed = from_rung(make(), stage, context, make=make, ranks=ALONE)
    if resumed.note is not None:
        log.warning("%s: %s", stage.label, resumed.note)
    for event in events_until(stage, resumed.session):
        if listen is not None:
            listen(stage, resumed.session, event)
    artifact = publish_training(resumed, stage, context, ALONE, started=started)
    assert artifact is not None, "the only rank is the first"
    return artifact


def file_bank(stage: Train, context: Context) -> StoredBank | None:
    """Return the banks of a training as memory-mapped files; None if its objective uses none."""
    return FileBank([folder_of(bank, context) for bank in stage.banks]) if stage.banks else None
