"""Sources `generated/…`, which need no data root: texts of a help desk, drawn once by a program and kept beside this module.

A case is a machine with a fault and a cause; splits share no machine with its fault. A report tells a case in a customer's
words, a note in those of the staff. nli: a report, the note of its case, the note of a similar case. sts: a report, a note,
and how many parts their cases share, 0 to 5. faq: reports ask for notes, of the same case (relevance 2) or fault (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.sources.files import check_split
from sentdist.data.tables import check_columns, find_table
from sentdist.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "generated/"
REVISION = "helpdesk-1"  # to be raised when a file changes; a test holds the digest of every table
FOLDER = Path(__file__).with_name("helpdesk")


@dataclass(frozen=True, kw_only=True)
class GeneratedSource:
    """A source. splits: name → number of rows, {} for one without splits."""

    columns: tuple[str, ...]
    splits: dict[str, int]
    num_rows: int


GENERATED: dict[str, GeneratedSource] = {
    "generated/nli": GeneratedSource(
        columns=("split", "sent0", "sent1", "hard_neg"), splits={"train": 2000, "dev": 200, "test": 200}, num_rows=2400
    ),
    "generated/sts": GeneratedSource(
        columns=("subset", "split", "sentence1", "sentence2", "score"), splits={"train": 2000, "dev": 500, "test": 200}, num_rows=2700
    ),
    "generated/faq": GeneratedSource(
        columns=("query_id", "document_id", "relevance", "query", "question", "answer"), splits={}, num_rows=336
    ),
}


@dataclass(frozen=True, kw_only=True)
class GeneratedFaq:
    """documents: document_id, question, answer; queries: query_id, query; judgements: query_id, document_id, relevance."""

    documents: pa.Table
    queries: pa.Table
    judgements: pa.Table


def source_of(name: str) -> GeneratedSource:
    """Return the facts of a source without reading it; raise DataError for an unknown name."""
    if name not in GENERATED:
        remedy = did_you_mean(name, GENERATED, "Choose one of them.", alike=0.3)
        raise DataError(where=name, found="no generated source of that name", expected=f"one of {', '.join(GENERATED)}", remedy=remedy)
    return GENERATED[name]


def read(name: str, *, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a source; raise DataError for an unknown name, split or column."""
    import pyarrow.compute as pc

    source = source_of(name)
    check_split(name, tuple(source.splits), split)
    check_columns(name, source.columns, columns or ())
    table = _table(name.removeprefix(PREFIX))
    table = table if split is None else table.filter(pc.equal(table["split"], split))
    return table.select(list(dict.fromkeys(columns or source.columns)))


def faq_tables() -> GeneratedFaq:
    """Return the tables of generated/faq."""
    return GeneratedFaq(documents=_table("faq_documents"), queries=_table("faq_queries"), judgements=_table("faq_qrels"))


@cache
def _table(name: str) -> pa.Table:
    return find_table(f"{PREFIX}{name}", FOLDER / f"{name}.parquet").read()
