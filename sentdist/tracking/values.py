"""Turn stages and records into what runs show: parameters, metrics, curves, and comparisons of the trials of a sweep."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, cast

from sentdist.corpora.kind import CorpusStage
from sentdist.frozen import Frozen
from sentdist.recipe.objectives import AnyObjective, Sum, phi_of
from sentdist.recipe.specs import EncoderSpec, LexicalSpec, Shape
from sentdist.recipe.stage import Json, Stage, canonical_fields
from sentdist.recipe.stages import Bank, Scores, Selection, Train
from sentdist.recipe.wording import value_text
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord, cells_by_dev, chosen_of_baseline, dev_chooses, dev_score
from sentdist.tasks.cards import TASK_GROUPS, group_parts
from sentdist.tasks.kinds import have_mean
from sentdist.tasks.names import OWN, kind_of_scored, named_task, own_test_names, task_names
from sentdist.tasks.sts import LimitedTask

DEV_SCORE = "best_dev_score"
Metrics = dict[str, float]
NOT_SHOWN = ("source", "source_revision", "parts", "relations", "fold", "document_field", "without")  # of a corpus


def trial_parameters(trial: TrialRecord, scores: Stage | None) -> dict[str, str]:
    """Return the method, seed and fold of a trial, and the parameters of its scores (None: unknown) and training."""
    found: dict[str, Json] = {"method": trial.method, "cell": trial.cell, "seed": trial.seed, "fold": trial.fold}
    of_scores = _scores(scores) if isinstance(scores, Scores) else {}
    shown = found | of_scores | {"seed": trial.seed, "fold": trial.fold}
    return {name: _text(value) for name, value in shown.items() if value is not None}


def _scores(stage: Scores) -> dict[str, Json]:
    found = _train(stage.encoder) if isinstance(stage.encoder, Train) else {}
    if isinstance(stage.encoder, EncoderSpec | LexicalSpec):
        found = _encoder(stage.encoder)
    view = canonical_fields(stage.view, "view")
    found |= _under("view", {name: value for name, value in view.items() if value not in (None, "none") and not isinstance(value, dict)})
    names: list[Json] = [task.name for task in stage.tasks]
    return found | {"evaluation.tasks": names, "evaluation.max_length": stage.max_length, "evaluation.precision": stage.precision}


def _train(stage: Train) -> dict[str, Json]:
    found = _encoder(stage.encoder) | (_corpus(stage.corpus) if isinstance(stage.corpus, CorpusStage) else {})
    sections: dict[str, Frozen | None] = {"training": stage.training, "regularizers": stage.regularizers, "stopping": stage.stopping}
    for name, section in sections.items():
        found |= {} if section is None else _under(name, canonical_fields(section, name))
    found |= _objective(stage.objective) | {"phi": phi_of(stage.objective)} | _selection(stage.selection)
    found["start"] = stage.start.objective.name if isinstance(stage.start, Train) else None
    if stage.banks:
        banks = [bank for bank in stage.banks if isinstance(bank, Bank)]
        phis = [phi_of(bank.encoder.objective) for bank in banks if isinstance(bank.encoder, Train)]
        found |= {"num_banks": len(stage.banks), "bank.dtype": stage.banks[0].dtype if stage.banks[0] in banks else None}
        # A set, as in cells: a chart would treat 0.01 as a number, and leave out all other values.
        found["phis"] = value_text([phi for phi in phis if phi is not None]) if any(phi is not None for phi in phis) else None
    return found | {"seed": stage.seed}


def _corpus(stage: CorpusStage) -> dict[str, Json]:
    own = {
        name: value for name, value in canonical_fields(stage, stage.kind).items() if name not in NOT_SHOWN and not isinstance(value, dict)
    }
    names: dict[str, Json] = {
        "corpus": " + ".join(dict.fromkeys(one.source for one in stage.sources)),
        "corpus.revision": ", ".join(one.source_revision for one in stage.sources),
    }
    return names | _under("corpus", own) | {"fold": None if stage.training_fold is None else stage.training_fold.number}


def _objective(objective: AnyObjective) -> dict[str, Json]:
    """Parameters of an objective; those of a sum are named by its terms: objective.supmpn.temperature."""
    if not isinstance(objective, Sum):
        return _under("objective", canonical_fields(objective, "objective"))
    found: dict[str, Json] = {"objective.name": " + ".join(term.objective.name for term in objective.terms)}
    for term in objective.terms:
        values = canonical_fields(term.objective, "objective") | {"weight": term.weight}
        found |= _under(f"objective.{term.objective.name}", {name: value for name, value in values.items() if name != "name"})
    return found


def _selection(selection: Selection | None) -> dict[str, Json]:
    if selection is None:
        return {}
    limit = selection.task.limit if isinstance(selection.task, LimitedTask) else None
    return {"selection.task": selection.name, "selection.every_fraction": selection.every_fraction, "selection.limit": limit}


def _encoder(encoder: EncoderSpec | LexicalSpec) -> dict[str, Json]:
    if isinstance(encoder, LexicalSpec):
        return {"encoder": encoder.name}  # no encoder: words alone
    found: dict[str, Json] = {"encoder": encoder.checkpoint, "encoder.revision": encoder.revision, "encoder.pooling": encoder.pooling}
    return found | {"encoder.initialization": "random" if encoder.initialization == "random" else None, "encoder.layers": encoder.layers}


def _under(section: str, values: Mapping[str, Json]) -> dict[str, Json]:
    return {f"{section}.{name}": value for name, value in values.items()}


def _text(value: Json) -> str:
    return ", ".join(_text(item) for item in value) if isinstance(value, list) else str(value)


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    value: float
    at_ms: int  # by the clock of the process that measured it
    step: int


CURVE = {"loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate", "sentences_per_s": "sentences_per_s", "dev_score": "dev_score"}


def curve_points(history: Iterable[Mapping[str, Json]]) -> list[Point]:
    """Return the finite metrics of lines of a training's history."""
    return [
        Point(shown_name, number, at_ms=int(float(str(line.get("at") or 0)) * 1000), step=int(str(line["step"])))
        for line in history
        for name, shown_name in CURVE.items()
        if (number := _number(line.get(name))) is not None
    ]


def curve_of(history: str) -> list[Point]:
    """Return the metrics of the text of a history."""
    return curve_points(map(json.loads, history.splitlines()))


def final_metrics(record: Record) -> dict[str, float]:
    """Return the metrics of a finished stage: numeric results, duration, and for scores the averages of task groups.

    A training's mean throughput is `mean_sentences_per_s`, since `sentences_per_s` is its curve; the parts of its time are
    `time.forward_s` and so on. A measure that equals the task's main score (`stsb.spearman`) is left out.
    """
    numbers = {name: number for name, value in record.results.items() if (number := _number(value)) is not None}
    found = {
        metric_name(f"time.{name.removeprefix('seconds.')}_s" if name.startswith("seconds.") else name): number
        for name, number in numbers.items()
        if "." not in name or numbers.get(name.partition(".")[0]) != number
    }
    if record.kind == "train" and "sentences_per_s" in found:
        found["mean_sentences_per_s"] = found.pop("sentences_per_s")
    if record.kind == "scores":
        found |= averages(main_scores(record))
    return {name: shown(number) for name, number in (found | {f"{record.kind}_s": record.seconds}).items()}


def main_scores(record: Record) -> dict[str, float]:
    """Return the main score (× 100) of every task: the results without a dot in their name, in order."""
    return {name: number for name, value in record.results.items() if "." not in name and (number := _number(value)) is not None}


def averages(scores: Mapping[str, float]) -> dict[str, float]:
    """Return means over complete task groups, or over all tasks (`avg`) if several form no group; only of tasks that have a mean."""
    found = {
        f"avg_{group}": statistics.fmean(statistics.fmean(scores[task] for task in part) for part in group_parts(group))
        for group, tasks in TASK_GROUPS.items()
        if all(task in scores for task in tasks) and _are_alike(tasks)
    }
    if not found and len(scores) > 1 and _are_alike(scores):
        found["avg"] = sum(scores.values()) / len(scores)
    return found


def metric_name(name: str) -> str:
    """Return a name that MLflow accepts: `acc@1` becomes `acc_at_1`."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


def _are_alike(tasks: Iterable[str]) -> bool:
    kinds = {kind_of_scored(task) for task in tasks}
    known = {kind for kind in kinds if kind is not None}
    return known == kinds and have_mean(known)


def shown(number: float) -> float:
    """Round a number for a page: to four digits, from 100 on to two decimals."""
    return float(f"{number:.4g}") if abs(number) < 100 else round(number, 2)


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else None


def closed_ms(record: Record) -> int:
    """Return when a stage ended, in ms since the epoch."""
    return int(datetime.fromisoformat(record.created_at).timestamp() * 1000)


def began_ms(record: Record) -> int:
    """Return when a stage began, in ms since the epoch."""
    return closed_ms(record) - int(record.seconds * 1000)


def distinct_trials(sweep: SweepRecord) -> dict[str, TrialRecord]:
    """Return one trial per key: methods with the same stages share a run."""
    found: dict[str, TrialRecord] = {}
    for trial in sweep.trials:
        found.setdefault(trial.key, trial)
    return found


def sweep_metric(sweep: SweepRecord) -> str:
    """Return the primary test score, the first average, else that of the first task; it is shown and chooses nothing."""
    return score_names(sweep)[0]


def order_metric(sweep: SweepRecord) -> str:
    """Return the metric that orders the trials: the dev score if dev chooses, else the primary test score."""
    return DEV_SCORE if dev_chooses(sweep) else sweep_metric(sweep)


def score_names(sweep: SweepRecord) -> tuple[str, ...]:
    """Return the metrics of averages and main scores, in the order of the recipe."""
    tasks = _tasks(sweep)
    return tuple(map(metric_name, (*averages(dict.fromkeys(tasks, 0.0)), *tasks)))


def reference(sweep: SweepRecord) -> str | None:
    """Return the method that others are compared with: the baseline, else an untouched encoder."""
    return sweep.baseline or next((trial.method for trial in sweep.trials if trial.train is None), None)


def difference_metric(sweep: SweepRecord) -> str | None:
    """Return the metric of the primary score minus the reference's; None without a reference."""
    method = reference(sweep)
    return None if method is None else metric_name(f"{sweep_metric(sweep)}_vs_{method}")


def mean_columns(sweep: SweepRecord) -> tuple[str, ...]:
    """Return the metrics that only means have; empty if each cell has one trial."""
    return (f"{sweep_metric(sweep)}_sd", "num_trials") if any(len(trials) > 1 for trials in sweep.cells.values()) else ()


def trial_metrics(trial: TrialRecord, records: Mapping[str, Record]) -> Metrics:
    """Return the scores of a scored trial with their averages, and the dev score that chose its checkpoint, unrounded."""
    scores, dev = main_scores(records[trial.key]), dev_score(trial, records)
    return {metric_name(name): value for name, value in (averages(scores) | scores).items()} | ({DEV_SCORE: dev[1]} if dev else {})


def differences(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, Metrics]:
    """Return the difference of each scored trial's primary score from the mean of the reference's trials (those that dev chose, if it did).

    Empty without a completely scored reference.
    """
    metric, name = sweep_metric(sweep), difference_metric(sweep)
    scored = {key: trial_metrics(trial, records) for key, trial in distinct_trials(sweep).items() if key in records}
    primary = {key: found[metric] for key, found in scored.items() if metric in found}
    chosen = chosen_of_baseline(sweep, records)
    keys = {trial.key for trial in (chosen.trials if chosen else sweep.trials) if chosen or trial.method == reference(sweep)}
    if name is None or not keys or not keys <= primary.keys():
        return {}
    mean = statistics.fmean(primary[key] for key in keys)
    return {key: {name: round(value - mean, 2)} for key, value in primary.items()}


def means(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, Metrics]:
    """Return of each completely scored cell the means over its trials and the standard deviation of the primary score.

    MLflow's own means of grouped runs have sixteen digits.
    """
    metric, of_trials, found = sweep_metric(sweep), differences(sweep, records), {}
    for label, trials in sweep.cells.items():
        if all(trial.key in records for trial in trials):
            own = [trial_metrics(trial, records) | of_trials.get(trial.key, {}) for trial in trials]
            common = [name for name in own[0] if all(name in one for one in own)]
            found[label] = {name: round(statistics.fmean(one[name] for one in own), 2) for name in common} | {"num_trials": float(len(own))}
            if len(own) > 1 and metric in common:
                found[label][f"{metric}_sd"] = round(statistics.stdev(one[metric] for one in own), 2)
    return found


def choice_metrics(sweep: SweepRecord, records: Mapping[str, Record]) -> Metrics:
    """Return the metrics of the sweep's run: mean dev score and mean test scores of the cell that dev chooses."""
    cells = cells_by_dev(sweep, records)
    own = means(sweep, records)[cells[0].label] if cells else {}
    return {name: own[name] for name in (DEV_SCORE, *score_names(sweep)) if name in own}


def _tasks(sweep: SweepRecord) -> list[str]:
    """The names under which the tasks of the recipe are scored."""
    evaluation, corpus = sweep.recipe["evaluation"], sweep.recipe["corpus"]
    assert isinstance(evaluation, dict) and isinstance(evaluation["tasks"], list) and isinstance(corpus, dict)
    names = task_names([str(task) for task in evaluation["tasks"]])
    own = own_test_names(str(corpus["file"]), cast(Shape, corpus["shape"])) if OWN in names else ()
    return [name for task in names for name in (own if task == OWN else (named_task(task).name,))]
