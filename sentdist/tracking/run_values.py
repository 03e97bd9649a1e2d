"""Turn stages and records into what a run shows: flat parameters, data sets, metrics and curves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from sentdist.frozen import Frozen
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.objectives import AnyObjective, Sum, phi_of
from sentdist.plan.specs import EncoderSpec, LexicalSpec, Task
from sentdist.plan.stage import Json, Stage, canonical_fields, topological
from sentdist.plan.stages import Bank, Scores, Selection, Targets, Train
from sentdist.plan.task_kinds import ScoredTask, have_mean, split_of
from sentdist.plan.task_names import kind_of_scored
from sentdist.plan.tasks import TASK_GROUPS, group_parts
from sentdist.plan.wording import value_text
from sentdist.store.record import MissingStage, Record
from sentdist.store.sweep import TrialRecord

DataSet = tuple[str, str, str]  # name, digest, and what it is read for: train, dev or test

NOT_SHOWN = ("source", "source_revision", "parts", "relations", "fold", "document_field", "without")  # of a corpus


def trial_parameters(trial: TrialRecord, scores: Stage | None) -> dict[str, str]:
    """Return the method, seed and fold of a trial, and the parameters of its scores (None: unknown) and training."""
    found: dict[str, Json] = {"method": trial.method, "cell": trial.cell, "seed": trial.seed, "fold": trial.fold}
    of_scores = _scores(scores) if isinstance(scores, Scores) else {}
    return _texts(found | of_scores | {"seed": trial.seed, "fold": trial.fold})


def stage_parameters(stage: Stage) -> dict[str, str]:
    """Return the parameters of a stage, without unset ones (None); raise TypeError for a kind that plans do not contain."""
    return _texts(_stage(stage) | {"kind": stage.kind})


def data_sets(stage: Stage) -> list[DataSet]:
    """Return the data that a stage reads, directly or through its inputs, without the corpus of probes, which trains nothing.

    Raises:
        TypeError: a kind of stage that plans do not contain.
    """
    made = stage.encoder if isinstance(stage, Scores) else stage
    stages = (*(topological((made,)) if isinstance(made, Stage) else ()), stage)
    return list(dict.fromkeys(found for one in stages for found in _own_data(one)))


def _stage(stage: Stage) -> dict[str, Json]:
    match stage:
        case CorpusStage():
            return _corpus(stage)
        case Targets():
            own: dict[str, Json] = {"tagger": stage.tagger, "tagger_revision": stage.tagger_revision, "num_words": stage.num_words}
            return _under("targets", own) | _stage(stage.corpus)
        case Train():
            return _train(stage)
        case Bank():
            bank: dict[str, Json] = {"dtype": stage.dtype, "max_length": stage.max_length, "precision": stage.precision}
            return _stage(stage.encoder) | _stage(stage.corpus) | _under("bank", bank)
        case Scores():
            return _scores(stage)
        case MissingStage():
            return {}
    raise TypeError(f"parameters of the stage {stage.kind} are not implemented")


def _corpus(stage: CorpusStage) -> dict[str, Json]:
    own = {
        name: value for name, value in canonical_fields(stage, stage.kind).items() if name not in NOT_SHOWN and not isinstance(value, dict)
    }
    names: dict[str, Json] = {
        "corpus": " + ".join(dict.fromkeys(one.source for one in stage.sources)),
        "corpus.revision": ", ".join(one.source_revision for one in stage.sources),
    }
    return names | _under("corpus", own) | {"fold": None if stage.training_fold is None else stage.training_fold.number}


def _train(stage: Train) -> dict[str, Json]:
    found = _encoder(stage.encoder) | _stage(stage.corpus)
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
    limit = selection.task.limit if isinstance(selection.task, Task) else None
    return {"selection.task": selection.name, "selection.every_fraction": selection.every_fraction, "selection.limit": limit}


def _scores(stage: Scores) -> dict[str, Json]:
    found = _encoder(stage.encoder) if isinstance(stage.encoder, EncoderSpec | LexicalSpec) else _stage(stage.encoder)
    view = canonical_fields(stage.view, "view")
    found |= _under("view", {name: value for name, value in view.items() if value not in (None, "none") and not isinstance(value, dict)})
    names: list[Json] = [task.name for task in stage.tasks]
    return found | {"evaluation.tasks": names, "evaluation.max_length": stage.max_length, "evaluation.precision": stage.precision}


def _encoder(encoder: EncoderSpec | LexicalSpec) -> dict[str, Json]:
    if isinstance(encoder, LexicalSpec):
        return {"encoder": encoder.name}  # no encoder: words alone
    found: dict[str, Json] = {"encoder": encoder.checkpoint, "encoder.revision": encoder.revision, "encoder.pooling": encoder.pooling}
    return found | {"encoder.initialization": "random" if encoder.initialization == "random" else None, "encoder.layers": encoder.layers}


def _own_data(stage: Stage) -> Iterator[DataSet]:
    match stage:
        case CorpusStage():
            yield from ((_named(one.source, one.split), one.source_revision, "train") for one in stage.sources)
        case Train():
            yield from (_task(task, "dev") for task in stage.dev_tasks)
        case Scores():
            yield from (_task(task, "test") for task in stage.tasks)
        case Targets() | Bank() | MissingStage():
            return
        case _:
            raise TypeError(f"data sets of the stage {stage.kind} are not implemented")


def _task(task: ScoredTask, context: str) -> DataSet:
    return _named(task.source, split_of(task)), task.revision, context


def _named(source: str, split: str | None) -> str:
    return f"{source} ({split})" if split else source


def _under(section: str, values: Mapping[str, Json]) -> dict[str, Json]:
    return {f"{section}.{name}": value for name, value in values.items()}


def _texts(values: Mapping[str, Json]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: Json) -> str:
    return ", ".join(_text(item) for item in value) if isinstance(value, list) else str(value)


CURVE = {"loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate", "sentences_per_s": "sentences_per_s", "dev_score": "dev_score"}


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    value: float
    at_ms: int  # by the clock of the process that measured it
    step: int


def curve_metrics(point: Mapping[str, Json]) -> dict[str, float]:
    """Return the finite metrics of one line of a history."""
    return {shown: number for name, shown in CURVE.items() if (number := _number(point.get(name))) is not None}


def curve_points(history: str) -> list[Point]:
    """Return the metrics of all lines of a history."""
    return [
        Point(name, value, at_ms=int(float(line.get("at") or 0) * 1000), step=int(line["step"]))
        for line in map(json.loads, history.splitlines())
        for name, value in curve_metrics(line).items()
    ]


def final_metrics(record: Record) -> dict[str, float]:
    """Return the metrics of a finished stage: numeric results, duration, and for scores the averages of task groups.

    A training's mean throughput is `mean_sentences_per_s`, since `sentences_per_s` is its curve; the parts of its time are
    `time.forward_s` and so on. A measure that equals the task's main score (`stsb.spearman`) is left out. Numbers are rounded
    to at least four digits; the record keeps all.
    """
    numbers = {name: number for name, value in record.results.items() if (number := _number(value)) is not None}
    found = {
        metric_name(_with_unit(name)): number
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
        f"avg_{group}": fmean(fmean(scores[task] for task in part) for part in group_parts(group))
        for group, tasks in TASK_GROUPS.items()
        if all(task in scores for task in tasks) and _are_alike(tasks)
    }
    if not found and len(scores) > 1 and _are_alike(scores):
        found["avg"] = sum(scores.values()) / len(scores)
    return found


def primary_metric(tasks: Sequence[str]) -> str:
    """Return the metric that compares trials on these tasks: the first average, else the first task."""
    unrolled = [task for given in tasks for task in TASK_GROUPS.get(given, (given,))]
    return next(iter(averages(dict.fromkeys(unrolled, 0.0))), metric_name(unrolled[0]))


def metric_name(name: str) -> str:
    """Return a name that MLflow accepts: `acc@1` becomes `acc_at_1`."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


def _are_alike(tasks: Iterable[str]) -> bool:
    kinds = {kind_of_scored(task) for task in tasks}
    known = {kind for kind in kinds if kind is not None}
    return known == kinds and have_mean(known)


def _with_unit(name: str) -> str:
    return f"time.{name.removeprefix('seconds.')}_s" if name.startswith("seconds.") else name


def shown(number: float) -> float:
    """Round a number for a page: to four digits, from 100 on to two decimals."""
    return float(f"{number:.4g}") if abs(number) < 100 else round(number, 2)


def _number(value: Json) -> float | None:
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        return None
    return float(value)
