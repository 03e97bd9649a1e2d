"""Scores by the best of several relations, each alone, and the mean of several tasks' scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sentdist.evaluation.means import mean_of_all
from sentdist.evaluation.relational import BY
from sentdist.stages.scores.scorer import CosineScorer, RelationalScorer, Scorer
from sentdist.stages.tasks.loaded_task import LoadedTask, TaskScore


def score_by(task: LoadedTask, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
    """The task's score; where the best relation counts, that of the best, with the main score by each among the measures."""
    if isinstance(scorer, CosineScorer) or scorer.scoring.combine == "sum":
        return task.score(embeddings_SD, scorer)
    found = {
        next(alone.relations): task.score(embeddings_SD, RelationalScorer(relations=scorer.relations, scoring=alone))
        for alone in scorer.scoring.alone
    }
    best = max(found.values(), key=lambda score: -np.inf if score.main is None else score.main)
    return replace(best, measures={**best.measures, **{f"{BY}{relation}": score.main for relation, score in found.items()}})


def mean_of_parts(parts: Sequence[Sequence[TaskScore]]) -> float | None:
    """The mean over parts of the mean over their tasks' main scores; where tasks were scored by several relations, that of the relation
    which is best for the part. None where a score is not defined."""
    return mean_of_all(_best_mean(part) for part in parts)


def _best_mean(part: Sequence[TaskScore]) -> float | None:
    names = [name for name in part[0].measures if name.startswith(BY)]
    values = [[score.measures[name] for score in part] for name in names] or [[score.main for score in part]]
    return max((mean for row in values if (mean := mean_of_all(row)) is not None), default=None)
