"""Which corpora meet which test sets in a plan: what has to be compared to know of leaks."""

from __future__ import annotations

from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.stage import topological
from sentdist.plan.stages import Overlap, Train
from sentdist.plan.task_kinds import DevTask
from sentdist.plan.unroll import Plan


def overlaps_of(plan: Plan) -> tuple[Overlap, ...]:
    """A stage for every corpus that some encoder was trained on, and every dev set that chose its weights, with the tasks it is scored on.

    A training that goes on from another one, or learns from banks, has seen their corpora too.
    """
    found: dict[str, Overlap] = {}
    for trial in plan.trials:
        if not isinstance(trial.scores.encoder, Train):
            continue
        upstream = topological((trial.scores.encoder,))
        corpora = [stage for stage in upstream if isinstance(stage, CorpusStage)]
        chosen_by = dict.fromkeys(task for stage in upstream if isinstance(stage, Train) for task in stage.dev_tasks)
        sources: list[CorpusStage | DevTask] = [*corpora, *(task for task in chosen_by if task not in trial.scores.tasks)]
        for source in sources:
            overlap = Overlap(of=source, tasks=trial.scores.tasks)
            found.setdefault(overlap.key, overlap)
    return tuple(found.values())
