"""Queries, documents and graded judgements that have been checked against each other."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.cells import groups_in, row_name
from sentdist.data.generated import corpora as generated
from sentdist.data.sources import faq_releases, files, retrieval_files
from sentdist.data.sources.column_names import check_columns
from sentdist.errors import DataError, counted

if TYPE_CHECKING:
    import pyarrow as pa

GENERATED = "generated/faq"  # the collection that needs no files
MOST_NAMED = 10  # rows that an error lists
DOCUMENT_FIELDS = ("answer", "question", "question_answer")


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """A collection of documents with queries judged against it.

    queries and documents run parallel to query_ids and document_ids.
    qrels: query id → document id → relevance, an integer ≥ 0, 0 = not relevant;
    every query has an entry. empty_document_ids: documents without text, which are left out of the collection;
    their judgements stay, so that a relevant one counts as not found (Cranfield has two). groups: what each query belongs to, "" for
    nothing; () where the source does not say.
    """

    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    qrels: dict[str, dict[str, int]]
    empty_document_ids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def are_documents(self) -> frozenset[str]:
        """Queries that are themselves a document, and no answer: of the same id, with a text that it holds, and not judged relevant
        (ArguAna's are arguments of its collection). An id alone says nothing: many number both from 1 on."""
        text_of = dict(zip(self.document_ids, self.documents, strict=True))
        return frozenset(
            query
            for query, text in zip(self.query_ids, self.queries, strict=True)
            if text.strip() in text_of.get(query, "") and not self.qrels[query].get(query)
        )


def read_retrieval(name: str, *, split: str | None = None, data_root: Path | None = None, document_field: str = "answer") -> Retrieval:
    """Return a retrieval source with the judged queries of a split (None: of all) and its whole collection.

    document_field says what of an FAQ is the document: its answer, its question, or both joined by a space;
    documents that are no FAQs are their title and text, as in BEIR, and take only "answer".
    Raises DataError for a missing part, ids that occur twice or nowhere, empty queries, a collection without any text,
    a relevance that is not an integer.
    """
    if name == GENERATED:
        files.check_split(name, (), split)
        tables = generated.faq_tables()
        return assemble(
            name, documents=tables.documents, queries=tables.queries, judgements=tables.judgements, document_field=document_field
        )
    parts = None if name.startswith("hub:") else retrieval_files.find(name, data_root)
    if parts is None:
        raise DataError(
            where=name,
            found="no documents, queries and qrels of that name",
            expected=f"{name}_docs (or _faqs), {name}_queries, {name}_qrels, or a BEIR folder, under the data root",
            remedy="A file of questions and answers is scored as own=FILE; generated/faq needs no files.",
        )
    if parts.release is not None:
        files.check_split(name, faq_releases.SPLITS, split)
        faqs = parts.release.tables(name)
        return assemble(name, documents=faqs.documents, queries=faqs.queries, judgements=faqs.judged(split), document_field=document_field)
    known = [part for part, _ in parts.judgements if part] or [part for part, _ in files.file_facts(name, parts.judgements[0][1]).splits]
    split = files.part_of(known, split)
    files.check_split(name, known, split)
    return assemble(
        name,
        documents=retrieval_files.read_documents(name, parts),
        queries=retrieval_files.read_queries(name, parts),
        judgements=retrieval_files.read_judgements(name, parts, split),
        document_field=document_field,
    )


def assemble(name: str, *, documents: pa.Table, queries: pa.Table, judgements: pa.Table, document_field: str) -> Retrieval:
    """Check the three tables against each other and return them as one value. Queries without a judgement are left out."""
    document_ids = _unique_ids(name, "document", documents["document_id"].to_pylist())
    texts = _document_texts(name, documents, document_field)
    query_ids = _unique_ids(name, "query", queries["query_id"].to_pylist())
    qrels = _qrels(name, judgements, set(query_ids), set(document_ids))
    judged = [(query, text) for query, text in zip(query_ids, queries["query"].to_pylist(), strict=True) if query in qrels]
    for query, text in judged:
        if not (text or "").strip():
            raise _complaint(name, f"an empty query {query}", "text in every judged query", "Remove the query and its judgements.")
    filled = [(document, text) for document, text in zip(document_ids, texts, strict=True) if text]
    if not filled:
        raise _complaint(name, "no document with text", "a collection of documents", "Fill the documents in.")
    return Retrieval(
        query_ids=tuple(query for query, _ in judged),
        queries=tuple(text for _, text in judged),
        document_ids=tuple(document for document, _ in filled),
        documents=tuple(text for _, text in filled),
        qrels={query: qrels[query] for query, _ in judged},
        empty_document_ids=tuple(document for document, text in zip(document_ids, texts, strict=True) if not text),
        groups=groups_in(queries, (row for row, query in enumerate(query_ids) if query in qrels)),
    )


def _document_texts(name: str, documents: pa.Table, document_field: str) -> list[str]:
    if document_field not in DOCUMENT_FIELDS:
        raise _complaint(name, f'document_field "{document_field}"', f"one of {', '.join(DOCUMENT_FIELDS)}", "Choose one of them.")
    fields: Sequence[str]
    if "answer" in documents.column_names:
        fields = document_field.split("_")
    elif document_field != "answer":
        raise _complaint(
            name, f'document_field "{document_field}"', "documents with a question and an answer", 'Leave it at "answer": the whole text.'
        )
    else:
        fields = [field for field in ("title", "text") if field in documents.column_names]
    check_columns(name, documents.column_names, fields or ["text"], may_name=False)
    columns = [documents[field].to_pylist() for field in fields]
    return [" ".join(part.strip() for part in parts if part and part.strip()) for parts in zip(*columns, strict=True)]


def _unique_ids(name: str, what: str, ids: list[str | None]) -> list[str]:
    if not all(ids):
        raise _complaint(name, f"a {what} without an id", f"an id for every {what}", "Number them.")
    if again := repetitions(ids):
        raise _complaint(name, f"{what} id {ids[again[0]]} again{and_more(again)}", f"each {what} id once", remove_rows(again))
    return [str(value) for value in ids]


def repetitions(keys: Sequence[Hashable]) -> list[int]:
    """The rows whose key an earlier row has."""
    first: dict[Hashable, int] = {}
    return [row for row, key in enumerate(keys) if first.setdefault(key, row) != row]


def and_more(rows: Sequence[int], what: str = "") -> str:
    """How many rows there are beside the first, behind what was said of it."""
    if len(rows) < 2:
        return ""
    return f", and {counted(len(rows) - 1, what) if what else f'{len(rows) - 1:,}'} more"


def remove_rows(rows: Sequence[int]) -> str:
    """What to do with rows that are too many."""
    return f"Remove {', '.join(row_name(row) for row in rows[:MOST_NAMED])}{', …' if len(rows) > MOST_NAMED else ''}."


def _qrels(name: str, judgements: pa.Table, queries: set[str], documents: set[str]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    again: list[tuple[int, str, str]] = []
    for row, judgement in enumerate(judgements.to_pylist()):
        query, document = judgement["query_id"], judgement["document_id"]
        if query not in queries:
            raise _complaint(name, f"query {query} in {row_name(row)} of the judgements", "a query of the source", "Complete the queries.")
        if document not in documents:
            raise _complaint(
                name, f"document {document} in {row_name(row)} of the judgements", "a document of the source", "Complete the documents."
            )
        if document in qrels.setdefault(query, {}):
            again.append((row, query, document))
        qrels[query][document] = whole_grade(judgement["relevance"], where=name, row=row)
    if again:
        rows = [row for row, _, _ in again]
        _, query, document = again[0]
        found = f"query {query} and document {document} judged twice{and_more(rows, 'pair')}"
        raise _complaint(name, found, "one judgement a pair", remove_rows(rows))
    return qrels


def whole_grade(relevance: object, *, where: str, row: int) -> int:
    """A judgement's grade, 0 for the grades below 0 that TREC gives to what is not even about the subject; DataError for no integer."""
    try:
        value = float(str(relevance))
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise _complaint(where, f"relevance {relevance} in {row_name(row)} of the judgements", "an integer", "Correct the judgement.")
    return max(0, int(value))


def _complaint(name: str, found: str, expected: str, remedy: str) -> DataError:
    return DataError(where=name, found=found, expected=expected, remedy=remedy)
