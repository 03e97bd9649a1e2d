"""Sources `generated/…`, which need no data root: texts of a help desk, drawn once by a program and kept beside this module.

A case is a machine with a fault and a cause; splits share no machine with its fault. A report tells a case in a customer's
words, a note in those of the staff. nli: a report, the note of its case, the note of a similar case. sts: a report, a note,
and how many parts their cases share, 0 to 5. faq: reports ask for notes, of the same case (relevance 2) or fault (1).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.files import FileFacts, chosen
from sentdist.data.tables import find_table
from sentdist.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "generated/"
REVISION = "helpdesk-1"  # to be raised when a file changes; a test holds the digest of every table
FOLDER = Path(__file__).with_name("helpdesk")

GENERATED = {  # kept here, so that planning needs no pyarrow
    "generated/nli": FileFacts(
        digest=REVISION, num_rows=2400, columns=("split", "sent0", "sent1", "hard_neg"),
        splits=(("train", 2000), ("dev", 200), ("test", 200)),
    ),
    "generated/sts": FileFacts(
        digest=REVISION, num_rows=2700, columns=("subset", "split", "sentence1", "sentence2", "score"),
        splits=(("train", 2000), ("dev", 500), ("test", 200)),
    ),
    "generated/faq": FileFacts(
        digest=REVISION, num_rows=336, columns=("query_id", "document_id", "relevance", "query", "question", "answer"), splits=(),
    ),
}  # fmt: skip


def facts_of(name: str) -> FileFacts:
    """Return the facts of a source; raise DataError for an unknown name."""
    if name not in GENERATED:
        remedy = did_you_mean(name, GENERATED, "Choose one of them.", alike=0.3)
        raise DataError(where=name, found="no generated source of that name", expected=f"one of {', '.join(GENERATED)}", remedy=remedy)
    return GENERATED[name]


def read(name: str, *, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a source."""
    return chosen(name, table_of(name.removeprefix(PREFIX)), split=split, columns=columns)


@cache
def table_of(name: str) -> pa.Table:
    """Return a table: nli, sts or faq, or a part of the last: faq_documents, faq_queries or faq_qrels."""
    return find_table(f"{PREFIX}{name}", FOLDER / f"{name}.parquet").read()
