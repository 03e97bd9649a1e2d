"""Corpora that need no file: generated from a seed, the same on every machine, no sentence in two splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sentdist.data.generated import helpdesk
from sentdist.data.generated.helpdesk import Draw
from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.files import check_split
from sentdist.errors import DataError
from sentdist.spelling import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "generated/"
REVISION = "helpdesk-1"  # raised by whoever changes what comes out; a test holds the digest of every table
SEED = "helpdesk-1"  # stays while the text of a split does: other sizes draw the same rows, fewer or more


@dataclass(frozen=True, kw_only=True)
class GeneratedSource:
    """A generated source. splits: name → rows; columns as `read` gives them."""

    columns: tuple[str, ...]
    splits: dict[str, int]
    about: str


GENERATED: dict[str, GeneratedSource] = {
    "generated/nli": GeneratedSource(
        columns=("split", "sent0", "sent1", "hard_neg"),
        splits={"train": 2000, "dev": 200, "test": 200},
        about="what a customer reports, the note of it, the note of a similar case",
    ),
    "generated/sts": GeneratedSource(
        columns=("subset", "split", "sentence1", "sentence2", "score"),
        splits={"train": 2000, "dev": 500, "test": 200},  # each encoder of the demo is scored on the test pairs
        about="a report, a note, and how alike their cases are, 0 to 5",
    ),
    "generated/faq": GeneratedSource(
        columns=("query_id", "document_id", "relevance", "query", "question", "answer"),
        splits={},  # cross-validation over its queries takes their place
        about="reports and notes: of the same case 2, of the same fault of the machine 1",
    ),
}
FAQ_JUDGEMENTS = 336


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
    """Return the three tables of generated/faq: relevance 2 for the note of the very case, 1 for what is said of all causes."""
    import pyarrow as pa

    draw = Draw(SEED, "faq")
    documents: dict[str, tuple[str, str, str]] = {}
    queries, judgements = [], []
    for number, case in enumerate(helpdesk.cases("test")):
        general, own = f"{case.machine} {case.fault}", f"{case.machine} {case.fault} {case.cause}"
        documents[general] = (general, helpdesk.question(case, draw), helpdesk.advice(case))
        documents[own] = (own, helpdesk.report(case, draw), helpdesk.note(case, draw))
        queries.append((f"q{number}", helpdesk.report(case, draw)))
        judgements += [(f"q{number}", own), (f"q{number}", general)]
    grades = pa.array([2, 1] * len(queries), pa.int64())
    return GeneratedFaq(
        documents=_strings(list(documents.values()), ("document_id", "question", "answer")),
        queries=_strings(queries, ("query_id", "query")),
        judgements=_strings(judgements, ("query_id", "document_id")).append_column("relevance", grades),
    )


@cache
def _nli(split: str) -> pa.Table:
    draw = Draw(SEED, "nli", split)
    rows: dict[tuple[str, str, str], None] = {}
    while len(rows) < GENERATED["generated/nli"].splits[split]:
        case = draw.one(helpdesk.cases(split))
        other = helpdesk.changed(case, draw.one((("machine",), ("fault",), ("cause",))), draw, split)
        rows[helpdesk.report(case, draw), helpdesk.note(case, draw), helpdesk.note(other, draw)] = None
    return _table(split, list(rows), ("sent0", "sent1", "hard_neg"))


@cache
def _sts(split: str) -> pa.Table:
    import pyarrow as pa

    draw = Draw(SEED, "sts", split)
    rows: dict[tuple[str, str], float] = {}
    while len(rows) < GENERATED["generated/sts"].splits[split]:
        case = draw.one(helpdesk.cases(split))
        other = helpdesk.changed(case, [name for name in helpdesk.WEIGHTS if draw.chance(0.5)], draw, split)
        rows[helpdesk.report(case, draw), helpdesk.note(other, draw)] = helpdesk.likeness(case, other)
    table = _table(split, list(rows), ("sentence1", "sentence2")).append_column("score", pa.array(rows.values(), pa.float64()))
    return table.add_column(0, "subset", pa.array(["helpdesk"] * len(rows), pa.large_string()))


_GENERATORS: dict[str, Callable[[str], pa.Table]] = {"generated/nli": _nli, "generated/sts": _sts}


def _table(split: str, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> pa.Table:
    return _strings([(split, *row) for row in rows], ("split", *columns))


def _strings(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    return pa.table([pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)], names=list(columns))


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
