"""Write the model card of an encoder from records: scores with intervals, data with leaks, settings, licence, citations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sentdist.corpora import CORPORA
from sentdist.corpora.kind import CorpusStage
from sentdist.errors import StoreError, listed
from sentdist.recipe.objectives import terms_of
from sentdist.recipe.specs import EncoderSpec, View
from sentdist.recipe.stage import Json, as_number, canonical_fields, topological
from sentdist.recipe.stages import Scores, Train, chosen_and_scored
from sentdist.report import citations
from sentdist.report.citations import works_of_stages
from sentdist.report.comparisons import table_columns
from sentdist.report.evaluated import IT
from sentdist.report.leaks import current_overlaps, leak_rows
from sentdist.report.score_rows import ResultRow, group_rows
from sentdist.report.templating import render
from sentdist.store.record import Record, restored
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.tasks.kinds import TASK_KINDS

CORPUS_STAGE_KINDS = tuple(corpus.kind for corpus in CORPORA)
COUNTS = {"num_rows": "rows", "num_sentences": "different sentences"}


def encoder_card(
    store: ArtifactStore,
    trained: Artifact,
    *,
    name: str,
    licence: str | None,
    language: Sequence[str],
    has_unit_length: bool,
    base: str | None = None,
    scored_as: EncoderSpec | None = None,
    num_seeds: int = 1,
) -> str:
    """Return the README.md of a trained encoder, with the scores of all its evaluations in the store.

    Args:
        name: name by which it is loaded: OWNER/NAME on the hub, or a folder.
        licence: hub id of the licence (apache-2.0); None: not stated.
        language: hub codes of the languages of the texts; empty: not stated.
        has_unit_length: whether sentence-transformers returns embeddings of length 1.
        base: hub id of the base model, if its checkpoint has another name.
        scored_as: the scored encoder, if it is the average of `num_seeds` trainings that differ only by seed.

    Raises:
        StoreError: the artifact is not a training.
    """
    record = trained.record
    train, all_records = _training_of(record, store)
    scores = _scores(store, train, scored_as or train, all_records)
    upstream = {stage.key for stage in topological((train,))}
    corpora = [one for one in all_records.values() if one.kind in CORPUS_STAGE_KINDS and one.key in upstream]
    terms = list(terms_of(train.objective))
    works = {*works_of_stages((train,)), "sbert"}  # the folder is in sentence-transformers' format
    page = dict(
        name=name,
        title=PurePosixPath(name).name,
        metadata=_metadata(base or train.encoder.checkpoint, scores, name=name, licence=licence, language=language),
        checkpoint=train.encoder.checkpoint,
        revision=train.encoder.revision,
        has_unit_length=has_unit_length,
        objective=" + ".join(term.name for term in terms) + (f", the average of {num_seeds} seeds" if num_seeds > 1 else ""),
        scores=[
            (one.task, one.measure, _number(one.value), one.interval, _number(one.untouched), f"{one.size:,}" if one.size else "–")
            for one in scores
        ],
        flattered=[one.task for one in scores if one.has_chosen],
        corpora=[_data_rows(corpus, all_records) for corpus in corpora],
        leaks=_leak_rows(store, corpora),
        settings=_settings(train, record),
        licence=licence,
        citations=citations.cite(works),
    )
    return render("encoder_card.md.jinja", page=page)


def _training_of(record: Record, store: ArtifactStore) -> tuple[Train, Mapping[str, Record]]:
    """The training as a stage, and all records of its store."""
    if record.kind != "train":
        raise StoreError(
            where=record.place, found=f"a {record.kind}", expected="the key of a training", remedy="`sentdist list encoders` lists them.",
        )  # fmt: skip
    all_records = {artifact.key: artifact.record for artifact in store.artifacts()} | {record.key: record}
    train = restored(record.key, all_records)
    if not isinstance(train, Train):
        raise StoreError(
            where=record.place, found="a training of another version of sentdist", expected="fields that this one knows",
            remedy="Make the card with the version that trained it.",
        )  # fmt: skip
    return train, all_records


def _metadata(base: str, scores: Sequence[_Score], *, name: str, licence: str | None, language: Sequence[str]) -> dict[str, Json]:
    """The metadata header of the hub."""
    metadata: dict[str, Json] = {"language": list(language)} if language else {}
    metadata |= {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", "sentdist"],
    }
    if licence:
        metadata["license"] = licence
    if "/" in base:
        metadata["base_model"] = base
    if scores:
        metadata["model-index"] = [
            {
                "name": PurePosixPath(name).name,
                "results": [
                    {
                        "task": {"type": "sentence-similarity"},
                        "dataset": {"name": one.task, "type": "sentdist"},
                        "metrics": [{"type": one.measure, "value": round(one.value, 2)}],
                    }
                    for one in scores
                ],
            }
        ]
    return metadata


@dataclass(frozen=True, kw_only=True)
class _Score:
    """value: × 100. interval: in words. untouched: score of the base model; None: not in the store. has_chosen: these data chose the
    weights."""

    task: str
    measure: str
    value: float
    interval: str
    untouched: float | None
    size: int
    has_chosen: bool


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"


def _scores(store: ArtifactStore, train: Train, encoder: Train | EncoderSpec, known: Mapping[str, Record]) -> list[_Score]:
    """The score of this encoder on each task, without a view, with its 95 % interval over other items."""
    by_task: dict[str, _Score] = {}
    for artifact in store.artifacts("scores"):
        is_near = isinstance(encoder, EncoderSpec) or encoder.key in artifact.record.inputs
        scores = restored(artifact.key, known) if is_near else None
        if not isinstance(scores, Scores) or scores.encoder != encoder or scores.view != View():
            continue
        kinds = {task.name: task.kind for task in scores.tasks if TASK_KINDS[task.kind].is_compared}
        values = {task: value for task in kinds if (value := as_number(artifact.record.results.get(task))) is not None}
        folder = store.folder(artifact)
        items = {task: folder / "items" / f"{task}.parquet" for task in values if TASK_KINDS[kinds[task]].has_intervals}
        there = {task: path for task, path in items.items() if path.is_file()}
        measures = {task: TASK_KINDS[kind].main for task, kind in kinds.items()}
        columns = table_columns(group_rows([_row(values, there)]), {task: measures[task] for task in there}, average=False)
        chosen = chosen_and_scored(train.selection, scores.tasks)
        of_base = store.get(scores.model_copy(update={"encoder": train.encoder}))
        for task, value in values.items():
            interval = columns.interval(task, IT)
            by_task[task] = _Score(
                task=task, measure=measures[task].title, value=value,
                interval="–" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}",
                untouched=None if of_base is None else as_number(of_base.record.results.get(task)), size=columns.sizes.get(task, (0, 0))[0],
                has_chosen=task in chosen,
            )  # fmt: skip
    return list(by_task.values())


def _row(scores: Mapping[str, float], items: Mapping[str, Path]) -> ResultRow:
    return ResultRow(method=IT, label=IT, params={}, seed=0, scores=dict(scores), items=dict(items), is_fixed=True)


def _data_rows(corpus: Record, known: Mapping[str, Record]) -> list[tuple[str, str]]:
    stage = restored(corpus.key, known)
    sources = listed(stage.described) if isinstance(stage, CorpusStage) else ""
    named = {"table": corpus.label, "source": sources}
    counts = {title: corpus.results.get(name) for name, title in COUNTS.items()}
    return [*named.items(), *((title, f"{value:,}") for title, value in counts.items() if isinstance(value, int))]


def _leak_rows(store: ArtifactStore, corpora: Sequence[Record]) -> list[tuple[str, ...]]:
    """Rows under LEAKS_HEADER; [] if leaks were not checked."""
    keys = {corpus.key for corpus in corpora}
    found = [one.record for one in current_overlaps(store) if keys & set(one.record.inputs)]
    return list(dict.fromkeys(row for record in found for row in leak_rows(record)))


def _settings(train: Train, record: Record) -> list[tuple[str, str]]:
    objective = canonical_fields(train.objective, "objective")
    found = {
        "objective": " + ".join(term.name for term in terms_of(train.objective)),
        **{name: value for name, value in objective.items() if name not in ("name", "terms")},
    }
    found |= {**canonical_fields(train.training, "training"), "pooling": train.encoder.pooling, "seed": train.seed}
    found |= {name: record.results[name] for name in ("num_steps", "best_dev_score") if name in record.results}
    if train.selection is not None:
        found["chosen on"] = train.selection.name
    return [
        (name, f"{value:.4g}" if isinstance(value, float) else str(value))
        for name, value in {**found, "stage": record.key}.items()
        if value is not None
    ]
