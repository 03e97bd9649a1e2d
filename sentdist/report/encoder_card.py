"""What an encoder's page on the hub says: scores with intervals, data with leaks, settings, licence, citations; all from records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentdist.citation import Citation
from sentdist.errors import StoreError
from sentdist.plan.stage import Json
from sentdist.plan.stages import CORPORA, Overlap
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import citations
from sentdist.report.columns import table_columns
from sentdist.report.evaluated import IT
from sentdist.report.leaks import leak_rows
from sentdist.report.rows import ResultRow, group_rows
from sentdist.report.templating import render
from sentdist.store.record import Record
from sentdist.store.store import Artifact, ArtifactStore

CORPUS_KINDS = tuple(corpus.kind for corpus in CORPORA)
HIDDEN = ("columns", "limit_seed", "near", "sides", "kind", "name", "own")  # of a corpus: what no reader asks for


@dataclass(frozen=True, kw_only=True)
class CardPage:
    """What the template of a card shows. name: OWNER/NAME. metadata: the hub's own part at the head, whose JSON values are YAML.
    corpora: rows of a table each. leaks: under LEAKS_HEADER."""

    name: str
    title: str
    metadata: Mapping[str, Json]
    checkpoint: str
    revision: str
    objective: str
    scores: Sequence[tuple[str, ...]]
    corpora: Sequence[Sequence[tuple[str, str]]]
    leaks: Sequence[tuple[str, ...]]
    settings: Sequence[tuple[str, str]]
    licence: str | None
    citations: Sequence[Citation]


def encoder_card(store: ArtifactStore, trained: Artifact, *, name: str, licence: str | None, language: str = "en") -> str:
    """The README.md of a trained encoder: metadata, then text; scores are those of all evaluations that the store has of it.

    name: of the repository, OWNER/NAME. licence: as the hub spells one (apache-2.0); None: the page says that none is stated.

    Raises:
        StoreError: an artifact that is no training.
    """
    record = trained.record
    if record.kind != "train":
        raise StoreError(
            where=record.place, found=f"a {record.kind}", expected="the key of a training", remedy="`sentdist models` lists them."
        )
    fields = _dict(record.stage["fields"])
    encoder, objective = _dict(fields["encoder"]), _dict(fields["objective"])
    scores = _scores(store, record.key)
    upstream = _upstream(store, record)
    corpora = [one.record for one in store.artifacts() if one.record.kind in CORPUS_KINDS and one.key in upstream]
    works = [work for term in _terms(objective) for work in _works_of(term)] + ["sbert", "sentdist"]
    page = CardPage(
        name=name,
        title=name.partition("/")[2],
        metadata=_metadata(encoder, scores, name=name, licence=licence, language=language),
        checkpoint=str(encoder["checkpoint"]),
        revision=str(encoder["revision"]),
        objective=" + ".join(_terms(objective)),
        scores=[
            (task, measure, f"{score:.2f}", interval or "–", f"{size:,}" if size else "–")
            for task, measure, score, interval, size in scores
        ],
        corpora=[_data_rows(corpus) for corpus in corpora],
        leaks=_leak_rows(store, corpora),
        settings=_settings(fields, record),
        licence=licence,
        citations=citations.cite(set(works) & citations.CITATIONS.keys()),
    )
    return render("encoder_card.md.jinja", page=page)


def _metadata(encoder: dict[str, Json], scores: Sequence[_Score], *, name: str, licence: str | None, language: str) -> dict[str, Json]:
    """The hub's own part at the head."""
    metadata: dict[str, Json] = {
        "language": language,
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", "sentdist"],
    }
    if licence:
        metadata["license"] = licence
    if "/" in str(encoder["checkpoint"]):
        metadata["base_model"] = encoder["checkpoint"]
    if scores:
        metadata["model-index"] = [
            {
                "name": name.partition("/")[2],
                "results": [
                    {
                        "task": {"type": "sentence-similarity"},
                        "dataset": {"name": task, "type": "sentdist"},
                        "metrics": [{"type": measure, "value": round(score, 2)}],
                    }
                    for task, measure, score, _, _ in scores
                ],
            }
        ]
    return metadata


_Score = tuple[str, str, float, str, int]  # task, measure, × 100, interval in words, items


def _scores(store: ArtifactStore, key: str) -> list[_Score]:
    """Of each task the score of this encoder as it stands, without a view, with the 95 % interval over other items."""
    found: dict[str, _Score] = {}
    for artifact in store.artifacts("scores"):
        fields = _dict(artifact.record.stage["fields"])
        if fields["encoder"] != {"stage": key}:
            continue
        tasks = fields["tasks"]
        assert isinstance(tasks, list)
        kinds = {str(_dict(task)["name"]): str(_dict(task)["kind"]) for task in tasks if _dict(task)["kind"] != "geometry"}
        values = {task: value for task in kinds if isinstance(value := artifact.record.results.get(task), int | float)}
        folder = store.folder(artifact)
        items = {task: folder / "items" / f"{task}.parquet" for task in values}
        known = {task: path for task, path in items.items() if path.is_file()}
        measures = {task: TASK_KINDS[kind].main for task, kind in kinds.items()}
        columns = table_columns(group_rows([_row(values, known)]), {task: measures[task] for task in known}, average=False)
        for task, value in values.items():
            interval = columns.interval(task, IT)
            words = "" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"
            size = columns.sizes.get(task, (0, 0))[0]
            found[task] = (task, measures[task].title, float(value), words, size)
    return list(found.values())


def _row(scores: Mapping[str, float], items: Mapping[str, Path]) -> ResultRow:
    return ResultRow(method=IT, label=IT, params={}, seed=0, scores=dict(scores), items=dict(items), is_fixed=True)


def _data_rows(corpus: Record) -> list[tuple[str, str]]:
    counts = {name: value for name, value in corpus.results.items() if name in ("num_rows", "num_sentences", "num_dropped_duplicates")}
    told = [
        (name.removeprefix("num_").replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in counts.items()
    ]
    return [("table", corpus.label), *_plain(corpus.stage["fields"]), *told]


def _leak_rows(store: ArtifactStore, corpora: Sequence[Record]) -> list[tuple[str, ...]]:
    """Under LEAKS_HEADER; none where nobody looked."""
    keys = {corpus.key for corpus in corpora}
    found = [
        one.record
        for one in store.artifacts(Overlap.kind)
        if keys & set(one.record.inputs) and one.record.stage["revision"] == Overlap.revision
    ]
    return list(dict.fromkeys(row for record in found for row in leak_rows(record)))


def _plain(fields: Json) -> list[tuple[str, str]]:
    """The values of a corpus that say what it is."""
    found = []
    for name, value in _dict(fields).items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            found += [(f"part {number}", ", ".join(f"{one} {text}" for one, text in _plain(part))) for number, part in enumerate(value, 1)]
        elif value not in (None, [], False) and name not in HIDDEN and not isinstance(value, dict):
            found.append((name, str(value)))
    return found


def _settings(fields: dict[str, Json], record: Record) -> list[tuple[str, str]]:
    objective = _dict(fields["objective"])
    found = {
        "objective": " + ".join(_terms(objective)),
        **{name: value for name, value in objective.items() if name not in ("name", "terms")},
    }
    found |= {**_dict(fields["training"]), "pooling": _dict(fields["encoder"])["pooling"], "seed": fields["seed"]}
    found |= {name: record.results[name] for name in ("num_steps", "best_dev_score") if name in record.results}
    selection = fields.get("selection")
    if isinstance(selection, dict):
        found["chosen on"] = str(_dict(selection["task"])["name"])
    return [
        (name, f"{value:.4g}" if isinstance(value, float) else str(value))
        for name, value in {**found, "stage": record.key}.items()
        if value is not None
    ]


def _terms(objective: dict[str, Json]) -> list[str]:
    terms = objective.get("terms")
    if not isinstance(terms, list):
        return [str(objective["name"])]
    return [str(_dict(_dict(term)["objective"])["name"]) for term in terms]


def _works_of(term: str) -> list[str]:
    from sentdist.plan.objectives import OBJECTIVES

    return [work.key for work in OBJECTIVES[term].citations] if term in OBJECTIVES else []


def _upstream(store: ArtifactStore, record: Record) -> set[str]:
    """Keys of all that a training is built on."""
    known = {artifact.key: artifact.record for artifact in store.artifacts()}
    waiting, found = [*record.inputs], set[str]()
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += known[key].inputs if key in known else ()
    return found


def _dict(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value
