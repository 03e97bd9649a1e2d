"""What an encoder's page on the hub says: scores with intervals, data with leaks, settings, licence, citations; all from records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sentdist.errors import StoreError
from sentdist.plan.stage import Json
from sentdist.plan.stages import CORPORA, Overlap
from sentdist.report import citations
from sentdist.report.columns import table_columns
from sentdist.report.leaks import LEAKS_HEADER, leak_rows
from sentdist.report.rows import ResultRow, group_rows
from sentdist.store.record import Record
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.table_text import markdown_table, markdown_text

CORPUS_KINDS = tuple(corpus.kind for corpus in CORPORA)
HIDDEN = ("columns", "limit_seed", "near", "sides", "kind", "name", "own")  # of a corpus: what no reader asks for


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
    text = [
        f"# {name.partition('/')[2]}",
        f"A sentence encoder: {encoder['checkpoint']} (revision {encoder['revision']}), trained with {' + '.join(_terms(objective))}. "
        "Sentences with like meanings have embeddings with a high cosine.",
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        f'embeddings = SentenceTransformer("{name}").encode(["A dog runs.", "A puppy is running."])\n```',
        "## Scores",
        _score_table(scores),
        "## Data",
        *(_data_table(corpus) for corpus in corpora),
        _leak_table(store, corpora),
        "## Settings",
        markdown_table(
            ("setting", "value"), [(markdown_text(one), markdown_text(value)) for one, value in _settings(fields, record)], num_left=2
        ),
        "## Licence",
        f"{licence}, as far as its makers can grant it; the base model and the data have licences of their own."
        if licence
        else "None is stated. The base model and the data have licences of their own.",
        "## Citation",
        citations.to_markdown(citations.cite(set(works) & citations.CITATIONS.keys())),
    ]
    return _metadata(encoder, scores, name=name, licence=licence, language=language) + "\n\n".join(part for part in text if part) + "\n"


def _metadata(encoder: dict[str, Json], scores: Sequence[_Score], *, name: str, licence: str | None, language: str) -> str:
    """The hub's own part at the head, as JSON values, which are YAML."""
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
    return "---\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in metadata.items()) + "---\n\n"


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
        columns = table_columns(group_rows([_row(values, known)]), list(known), average=False) if known else None
        for task, value in values.items():
            column = None if columns is None else columns.by_name.get(task)
            interval = None if column is None else column.interval(column.entries[0].label)
            words = "" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"
            size = columns.sizes.get(task, (0, 0))[0] if columns is not None else 0
            found[task] = (task, _measure_of(kinds[task]), float(value), words, size)
    return list(found.values())


def _row(scores: Mapping[str, float], items: Mapping[str, Path]) -> ResultRow:
    return ResultRow(method="it", label="it", params={}, seed=0, scores=dict(scores), items=dict(items), is_fixed=True)


def _score_table(scores: Sequence[_Score]) -> str:
    if not scores:
        return "Not scored on any test set yet."
    rows = [
        (markdown_text(task), measure, f"{score:.2f}", interval or "–", f"{size:,}" if size else "–")
        for task, measure, score, interval, size in scores
    ]
    return markdown_table(("task", "measure", "× 100", "95 % on other items", "items"), rows, num_left=2)


def _data_table(corpus: Record) -> str:
    counts = {name: value for name, value in corpus.results.items() if name in ("num_rows", "num_sentences", "num_dropped_duplicates")}
    rows = [
        ("table", markdown_text(corpus.label)),
        *((markdown_text(name), markdown_text(str(value))) for name, value in _plain(corpus.stage["fields"])),
    ]
    rows += [
        (name.removeprefix("num_").replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in counts.items()
    ]
    return markdown_table(("training data", ""), rows, num_left=2)


def _leak_table(store: ArtifactStore, corpora: Sequence[Record]) -> str:
    keys = {corpus.key for corpus in corpora}
    found = [
        one.record
        for one in store.artifacts(Overlap.kind)
        if keys & set(one.record.inputs) and one.record.stage["revision"] == Overlap.revision
    ]
    rows = list(dict.fromkeys(row for record in found for row in leak_rows(record)))
    if not rows:
        return "Whether test items stand in the training data was not looked for."
    table = markdown_table(LEAKS_HEADER, [tuple(markdown_text(cell) for cell in row) for row in rows], num_left=2)
    return f"Test items that stand in the training data, as written, folded, nearly, or in part:\n\n{table}"


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


def _measure_of(kind: str) -> str:
    from sentdist.plan.task_kinds import TASK_KINDS

    return TASK_KINDS[kind].main[1]


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
