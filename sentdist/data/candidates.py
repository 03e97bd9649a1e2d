"""Queries with a few candidates each, to be put in order, checked row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sentdist.data.cells import groups_in, row_name, text_in
from sentdist.data.retrieval import and_more, remove_rows, repetitions, whole_grade
from sentdist.data.sources.candidate_lists import as_rows
from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.pinned import read_source
from sentdist.data.sources.retrieval_files import DOCUMENT_ID, QUERY_ID
from sentdist.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """R rows, a query and one of its candidates each, in the order of the file, which is the order that ties keep.

    relevance: integers ≥ 0, 0 = not relevant. num_unanswerable: queries without a relevant candidate, whose rows are left out:
    no order is better than another for them. groups: what the query of each row belongs to, "" for nothing; () where the source does not
    say.
    """

    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    relevance: tuple[int, ...]
    num_unanswerable: int = 0
    groups: tuple[str, ...] = ()


def read_candidates(
    name: str,
    *,
    query: Sequence[str] = ("query",),
    document: Sequence[str] = ("document",),
    split: str | None = None,
    data_root: Path | None = None,
    hub_revision: str | None = None,
) -> Candidates:
    """Return the rows of a source with columns query_id, document_id, relevance and texts, or with mteb's lists of positives and negatives;
    `query` and `document` name columns that are joined by a space.

    Raises:
        DataError: absent columns, an empty text, a relevance that is no integer, a candidate twice, a query of two texts, no query that
            can be answered.
    """
    table = as_rows(name, read_source(name, split=split, data_root=data_root, hub_revision=hub_revision))
    query_id, document_id = (next((one for one in known if one in table.column_names), known[0]) for known in (QUERY_ID, DOCUMENT_ID))
    check_columns(name, table.column_names, [query_id, document_id, "relevance", *query, *document], may_name=False)
    rows = table.select(list(dict.fromkeys([query_id, document_id, "relevance", *query, *document]))).to_pylist()
    grades = [whole_grade(row["relevance"], where=name, row=number) for number, row in enumerate(rows)]
    keys = [(str(row[query_id]), str(row[document_id])) for row in rows]
    if len(set(keys)) < len(keys):
        again = repetitions(keys)
        query, candidate = keys[again[0]]
        raise _complaint(name, f"candidate {candidate} of query {query} twice{and_more(again)}", "each candidate once", remove_rows(again))
    texts: dict[str, str] = {}
    for number, key in enumerate(keys):
        said = " ".join(str(rows[number][column]) for column in query)
        if said != texts.setdefault(key[0], said):
            found = f"query {key[0]} with another text in {row_name(number)} than before"
            raise _complaint(name, found, "one text for each query_id", "Give the queries ids of their own.")
    groups = groups_in(table, range(len(rows)))
    group_of = dict(zip((key[0] for key in keys), groups, strict=False))
    if apart := [number for number, group in enumerate(groups) if group != group_of[keys[number][0]]]:
        query_name = keys[apart[0]][0]
        found = f"query {query_name} in groups {groups[apart[0]] or 'none'} and {group_of[query_name] or 'none'}"
        raise _complaint(name, found, "one group for each query_id", "Correct the column group.")
    answerable = {key[0] for key, grade in zip(keys, grades, strict=True) if grade > 0}
    kept = [number for number, key in enumerate(keys) if key[0] in answerable]
    if not kept:
        raise _complaint(name, "no query with a relevant candidate", "at least one", "Check the column relevance.")
    return Candidates(
        query_ids=tuple(keys[number][0] for number in kept),
        queries=tuple(_text(name, number, query, rows[number]) for number in kept),
        document_ids=tuple(keys[number][1] for number in kept),
        documents=tuple(_text(name, number, document, rows[number]) for number in kept),
        relevance=tuple(grades[number] for number in kept),
        groups=tuple(groups[number] for number in kept) if groups else (),
        num_unanswerable=len({key[0] for key in keys} - answerable),
    )


def _text(name: str, number: int, columns: Sequence[str], row: dict[str, object]) -> str:
    text = " ".join(" ".join(text_in(row[column], where=name, row=number, column=column).split()) for column in columns).strip()
    if not text:
        raise _complaint(name, f"no {' or '.join(columns)} in {row_name(number)}", "a text", "Complete or drop the row.")
    return text


def _complaint(name: str, found: str, expected: str, remedy: str) -> DataError:
    return DataError(where=name, found=found, expected=expected, remedy=remedy)
