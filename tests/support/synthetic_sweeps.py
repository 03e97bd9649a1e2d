"""A store filled with made-up results of a real plan: reports of any size without a training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.evaluation.sts import pearson, spearman
from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import Scores, Train
from sentdist.recipe.unroll import Plan, Trial
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.links import LinkTask
from sentdist.tasks.sts import LimitedTask
from sentdist.tasks.task import Task


def fill_store(
    store: ArtifactStore,
    plan: Plan,
    *,
    noise: Callable[[Trial], float],
    num_items: dict[str, int],
    dev: Callable[[Trial], float] = lambda trial: 80.0,
    skip: Callable[[Trial], bool] = lambda trial: False,
    num_steps: int = 20,
) -> None:
    """Save the sweep and commit every stage of the trials that are not skipped.

    noise: the standard deviation of a trial's similarities around gold scores from 0 to 5; num_items: pairs or queries of each task.
    """
    save_sweep(store, sweep_record(plan))
    trials = {trial.key: trial for trial in plan.trials}
    own = {trial.scores.encoder.key: trial for trial in plan.trials if isinstance(trial.scores.encoder, Train)}
    skipped = {trial.key for trial in plan.trials if skip(trial)}
    for stage in plan.stages:
        if stage.key in skipped or (stage.key in own and own[stage.key].key in skipped):
            continue
        with store.staged() as folder:
            if isinstance(stage, Scores):
                results = _scores(stage, folder, noise(trials[stage.key]), seed=list(trials).index(stage.key), num_items=num_items)
            else:
                chosen_by: dict[str, Json] = {"dev_score": dev(own[stage.key])} if stage.key in own else {}
                results = _history(folder, num_steps, at_the_end=chosen_by) if isinstance(stage, Train) else {}
                if chosen_by:
                    results["best_dev_score"] = chosen_by["dev_score"]
            _commit(store, stage, folder, results)


def _scores(stage: Scores, folder: Path, noise: float, *, seed: int, num_items: dict[str, int]) -> dict[str, Json]:
    (folder / "items").mkdir()
    results: dict[str, Json] = {}
    for number, task in enumerate(stage.tasks):
        if isinstance(task, LinkTask):
            results |= _links(task, 90.0 - 10 * noise + seed)
            continue
        if not isinstance(task, LimitedTask):
            results[task.name] = _of_equal_items(task.name, folder, 90.0 - 10 * noise + seed)
            continue
        size = num_items[task.name]
        if task.kind == "retrieval":
            results |= _retrieval(task, folder, 90.0 - 10 * noise, size=size, seed=seed)
            continue
        gold = np.round(np.random.default_rng(number).uniform(0, 5, size) * 5) / 5
        similarities = (gold + np.random.default_rng([number, seed]).normal(0, noise, size)) / 10
        items = {"subset": ["all"] * size, "score": gold, "similarity": similarities}
        pq.write_table(pa.table(items), folder / "items" / f"{task.name}.parquet")
        score, linear = spearman(similarities, gold), pearson(similarities, gold)
        results |= {task.name: score, f"{task.name}.spearman": score, f"{task.name}.pearson": linear}
    return results


def _of_equal_items(task: str, folder: Path, score: float) -> float:
    """A made-up score whose items are all alike."""
    pq.write_table(pa.table({"row": [0, 1, 2, 3], "accuracy": [score] * 4}), folder / "items" / f"{task}.parquet")
    return score


def _retrieval(task: Task, folder: Path, level: float, *, size: int, seed: int) -> dict[str, Json]:
    """Made-up measures of queries around a level: each ten points above the one before."""
    draws = np.random.default_rng(seed).normal(level, 1.0, size)
    found = {measure: draws + 10 * place for place, measure in enumerate(TASK_KINDS["retrieval"].measures_in_table)}
    pq.write_table(pa.table({"query_id": [f"q{row}" for row in range(size)], **found}), folder / "items" / f"{task.name}.parquet")
    measures: dict[str, Json] = {f"{task.name}.{measure}": float(values.mean()) for measure, values in found.items()}
    return {task.name: measures[f"{task.name}.map"]} | measures


def _links(task: LinkTask, mrr: float) -> dict[str, Json]:
    """Made-up ranks: hits ten points around the mean reciprocal rank, the same for every relation."""
    names = [*(relation.name for relation in task.relations), "all"]
    measures = {"mrr": mrr, "hits@1": mrr - 10, "hits@3": mrr, "hits@10": mrr + 10}
    return {task.name: mrr} | {f"{task.name}.{name}.{measure}": value for name in names for measure, value in measures.items()}


def _history(folder: Path, num_steps: int, *, at_the_end: dict[str, Json]) -> dict[str, Json]:
    points: list[dict[str, Json]] = [{"step": step, "loss": 3.0 / (1 + step), "lr": 1e-5} for step in range(num_steps)]
    lines = [json.dumps(point) for point in [*points[:-1], points[-1] | at_the_end]]
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    return {"num_steps": num_steps, "stopped_early": False}


def _commit(store: ArtifactStore, stage: Stage, folder: Path, results: dict[str, Json]) -> None:
    store.commit(stage, folder, seconds=1.0, runtime={}, environment={"torch": "0"}, results=results)
