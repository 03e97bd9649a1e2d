"""Corpora that need no file: generated from a seed, the same on every machine, no sentence in two splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sentdist.data.generated import scene_pairs, scenes
from sentdist.data.generated.faq_texts import faq_rows
from sentdist.data.generated.scenes import Draw
from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.files import check_split
from sentdist.errors import DataError
from sentdist.spelling import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "generated/"
REVISION = "scenes-2"  # raised by whoever changes what comes out; a test holds the digest of every table
SEED = "scenes-1"  # stays while the text of a split does: other sizes draw the same rows, fewer or more


@dataclass(frozen=True, kw_only=True)
class GeneratedSource:
    """A generated source. splits: name → rows; columns as `read` gives them."""

    columns: tuple[str, ...]
    splits: dict[str, int]
    about: str


GENERATED: dict[str, GeneratedSource] = {
    "generated/nli": GeneratedSource(
        columns=("split", "sent0", "sent1", "hard_neg"),
        splits={"train": 6000, "dev": 600, "test": 600},
        about="a scene, what follows from it, what contradicts it",
    ),
    "generated/sts": GeneratedSource(
        columns=("subset", "split", "sentence1", "sentence2", "score"),
        splits={"train": 2000, "dev": 1000, "test": 400},  # each encoder of the demo is scored on the test pairs
        about="two scenes and how alike they are, 0 to 5",
    ),
    "generated/faq": GeneratedSource(
        columns=("query_id", "document_id", "relevance", "query", "question", "answer"),
        splits={},  # cross-validation over its queries takes their place
        about="a shop's questions and answers, judged 2 and 1",
    ),
}
FAQ_JUDGEMENTS = 1536


@dataclass(frozen=True, kw_only=True)
class GeneratedFaq:
    """documents: document_id, question, answer; queries: query_id, query; judgements: query_id, document_id, relevance."""

    documents: pa.Table
    queries: pa.Table
    judgements: pa.Table


def split_sizes(name: str) -> dict[str, int]:
    """Return split → rows without generating anything. Raises DataError for an unknown name."""
    return _source(name).splits


def num_rows(name: str) -> int:
    """Return the rows of all splits together; for generated/faq the judgements."""
    return sum(split_sizes(name).values()) or FAQ_JUDGEMENTS


def columns_of(name: str) -> tuple[str, ...]:
    """Return the columns of a source without generating anything."""
    return _source(name).columns


def read(name: str, *, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a generated source. Raises DataError for an unknown name, split or column."""
    import pyarrow as pa

    source = _source(name)
    check_split(name, tuple(source.splits), split)
    if columns is not None:
        check_columns(name, source.columns, columns)
    if name == "generated/faq":
        table = _joined(faq_tables())
    else:
        table = pa.concat_tables([_GENERATORS[name](part) for part in source.splits if split in (None, part)])
    return table.select(list(dict.fromkeys(columns or source.columns)))


@cache
def faq_tables() -> GeneratedFaq:
    """Return the three tables of generated/faq."""
    import pyarrow as pa

    text = pa.large_string()
    documents, queries, judgements = faq_rows(SEED)
    return GeneratedFaq(
        documents=pa.Table.from_pylist(documents, schema=pa.schema([("document_id", text), ("question", text), ("answer", text)])),
        queries=pa.Table.from_pylist(queries, schema=pa.schema([("query_id", text), ("query", text)])),
        judgements=pa.Table.from_pylist(
            judgements, schema=pa.schema([("query_id", text), ("document_id", text), ("relevance", pa.int64())])
        ),
    )


@cache
def _nli(split: str) -> pa.Table:
    draw = Draw(SEED, "nli", split)
    rows: dict[tuple[str, str, str], None] = {}
    while len(rows) < GENERATED["generated/nli"].splits[split]:
        scene = scenes.draw_scene(draw, split, detail=0.75)
        against, negated = scene_pairs.contradicted(scene, draw, split)
        premise = scenes.describe(scene, draw)
        entailed = scenes.describe(scene_pairs.weakened(scene, draw, split), draw)
        contradiction = scenes.describe(against, draw, negated=negated)
        if premise != entailed:
            rows[premise, entailed, contradiction] = None
    return _table(split, dict(zip(("sent0", "sent1", "hard_neg"), zip(*rows, strict=True), strict=True)))


@cache
def _sts(split: str) -> pa.Table:
    draw = Draw(SEED, "sts", split)
    rows: dict[tuple[str, str], float] = {}
    while len(rows) < GENERATED["generated/sts"].splits[split]:
        one, other = scene_pairs.graded(draw, split)
        first, second = scenes.describe(one, draw), scenes.describe(other, draw)
        if first != second:
            rows[first, second] = scene_pairs.likeness(one, other)
    first_column, second_column = zip(*rows, strict=True)
    return _table(split, {"sentence1": first_column, "sentence2": second_column}, subset="scenes", score=list(rows.values()))


_GENERATORS: dict[str, Callable[[str], pa.Table]] = {"generated/nli": _nli, "generated/sts": _sts}


def _table(split: str, sentences: dict[str, tuple[str, ...]], *, subset: str | None = None, score: list[float] | None = None) -> pa.Table:
    import pyarrow as pa

    length = len(next(iter(sentences.values())))
    columns = {} if subset is None else {"subset": pa.array([subset] * length, pa.large_string())}
    columns["split"] = pa.array([split] * length, pa.large_string())
    columns |= {name: pa.array(texts, pa.large_string()) for name, texts in sentences.items()}
    return pa.table(columns if score is None else columns | {"score": pa.array(score, pa.float64())})


def _joined(tables: GeneratedFaq) -> pa.Table:
    return tables.judgements.join(tables.queries, "query_id", use_threads=False).join(tables.documents, "document_id", use_threads=False)


def _source(name: str) -> GeneratedSource:
    if name not in GENERATED:
        raise DataError(
            where=name,
            found="no generated source of that name",
            expected=f"one of {', '.join(GENERATED)}",
            remedy=did_you_mean(name, GENERATED, "Choose one of them.", alike=0.3),
        )
    return GENERATED[name]
