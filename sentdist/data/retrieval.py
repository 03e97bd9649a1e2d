"""Read and check queries, documents and judgements of a retrieval source; divide its queries into folds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from sentdist.data import generated
from sentdist.data.cells import groups_in, row_name
from sentdist.data.sampler import digest_u64
from sentdist.data.sources import files, releases, retrieval_files
from sentdist.data.tables import check_columns
from sentdist.errors import DataError, counted

if TYPE_CHECKING:
    import pyarrow as pa


GENERATED = "generated/faq"  # the collection without files
MOST_NAMED = 10  # rows listed in an error
DOCUMENT_FIELDS = ("answer", "question", "question_answer")


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """A collection of documents with judged queries.

    Args:
        queries, documents: parallel to query_ids and document_ids.
        qrels: query id → document id → relevance, an integer ≥ 0, 0 = not relevant; every query has an entry.
        empty_document_ids: documents without text, which are left out; their judgements stay, so that a relevant one counts as not found
            (Cranfield has two).
        groups: group of each query, "" for none; () without groups.
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
        """Queries that are themselves a document, but no answer (as in ArguAna): it has their id, contains their text and is not relevant.
        The id alone is not enough: many sources number both from 1."""
        text_of = dict(zip(self.document_ids, self.documents, strict=True))
        return frozenset(
            query
            for query, text in zip(self.query_ids, self.queries, strict=True)
            if text.strip() in text_of.get(query, "") and not self.qrels[query].get(query)
        )


def read_retrieval(name: str, *, split: str | None = None, data_root: Path | None = None, document_field: str = "answer") -> Retrieval:
    """Return a retrieval source with the judged queries of a split (None: all) and its whole collection.

    Args:
        document_field: text of an FAQ document: "answer", "question", or "question_answer" (joined by a space); other documents are title
            and text, as in BEIR, and accept only "answer".

    Raises:
        DataError: a missing part, repeated or unknown ids, empty queries, a collection without text, or a non-integer relevance.
    """
    if name == GENERATED:
        files.check_split(name, (), split)
        tables = generated.faq_tables()
        return assemble(
            name, documents=tables.documents, queries=tables.queries, judgements=tables.judgements, document_field=document_field
        )
    parts = None if name.startswith("hub:") else retrieval_files.find(name, data_root)
    if parts is None:
        expected = f"{name}_docs (or _faqs), {name}_queries, {name}_qrels, or a BEIR folder, under the data root"
        remedy = "Score a file of questions and answers as own=FILE; generated/faq needs no files."
        raise DataError(where=name, found="no documents, queries and qrels of that name", expected=expected, remedy=remedy)
    if parts.release is not None:
        files.check_split(name, releases.SPLITS, split)
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
    """Check the three tables against each other and join them, without unjudged queries."""
    document_ids = _unique_ids(name, "document", documents["document_id"].to_pylist())
    texts = _document_texts(name, documents, document_field)
    query_ids = _unique_ids(name, "query", queries["query_id"].to_pylist())
    qrels = _qrels(name, judgements, set(query_ids), set(document_ids))
    judged = [(query, text) for query, text in zip(query_ids, queries["query"].to_pylist(), strict=True) if query in qrels]
    for query, text in judged:
        if not (text or "").strip():
            remedy = "Remove the query and its judgements."
            raise DataError(where=name, found=f"an empty query {query}", expected="text in every judged query", remedy=remedy)
    filled = [(document, text) for document, text in zip(document_ids, texts, strict=True) if text]
    if not filled:
        raise DataError(
            where=name, found="no document with text", expected="a collection of documents", remedy="Add text to the documents."
        )
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
        expected = f"one of {', '.join(DOCUMENT_FIELDS)}"
        raise DataError(where=name, found=f'document_field "{document_field}"', expected=expected, remedy="Choose one of them.")
    fields: Sequence[str]
    if "answer" in documents.column_names:
        fields = document_field.split("_")
    elif document_field != "answer":
        expected = "documents with a question and an answer"
        raise DataError(where=name, found=f'document_field "{document_field}"', expected=expected, remedy='Use "answer": the whole text.')
    else:
        fields = [field for field in ("title", "text") if field in documents.column_names]
    check_columns(name, documents.column_names, fields or ["text"])
    columns = [documents[field].to_pylist() for field in fields]
    return [" ".join(part.strip() for part in parts if part and part.strip()) for parts in zip(*columns, strict=True)]


def _unique_ids(name: str, what: str, ids: list[str | None]) -> list[str]:
    if not all(ids):
        raise DataError(where=name, found=f"a {what} without an id", expected=f"an id for every {what}", remedy="Number them.")
    if again := repetitions(ids):
        expected = f"each {what} id once"
        raise DataError(where=name, found=f"{what} id {ids[again[0]]} again{and_more(again)}", expected=expected, remedy=remove_rows(again))
    return [str(value) for value in ids]


def repetitions(keys: Sequence[Hashable]) -> list[int]:
    """Return the rows whose key occurs in an earlier row."""
    first: dict[Hashable, int] = {}
    return [row for row, key in enumerate(keys) if first.setdefault(key, row) != row]


def and_more(rows: Sequence[int], what: str = "") -> str:
    """Return the suffix of a message on the first row: ", and 2 more"; "" for a single row."""
    if len(rows) < 2:
        return ""
    return f", and {counted(len(rows) - 1, what) if what else f'{len(rows) - 1:,}'} more"


def remove_rows(rows: Sequence[int]) -> str:
    """Return the remedy for repeated rows."""
    return f"Remove {', '.join(row_name(row) for row in rows[:MOST_NAMED])}{', …' if len(rows) > MOST_NAMED else ''}."


def _qrels(name: str, judgements: pa.Table, queries: set[str], documents: set[str]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    again: list[tuple[int, str, str]] = []
    for row, judgement in enumerate(judgements.to_pylist()):
        query, document = judgement["query_id"], judgement["document_id"]
        if query not in queries:
            found = f"query {query} in {row_name(row)} of the judgements"
            raise DataError(where=name, found=found, expected="a query of the source", remedy="Complete the queries.")
        if document not in documents:
            found = f"document {document} in {row_name(row)} of the judgements"
            raise DataError(where=name, found=found, expected="a document of the source", remedy="Complete the documents.")
        if document in qrels.setdefault(query, {}):
            again.append((row, query, document))
        qrels[query][document] = whole_grade(judgement["relevance"], where=name, row=row)
    if again:
        rows = [row for row, _, _ in again]
        _, query, document = again[0]
        found = f"query {query} and document {document} judged twice{and_more(rows, 'pair')}"
        raise DataError(where=name, found=found, expected="one judgement a pair", remedy=remove_rows(rows))
    return qrels


def whole_grade(relevance: object, *, where: str, row: int) -> int:
    """Return a judgement's grade, 0 for negative grades (TREC: off-topic); raise DataError for a non-integer."""
    try:
        value = float(str(relevance))
    except ValueError:
        value = math.nan
    if not value.is_integer():
        found = f"relevance {relevance} in {row_name(row)} of the judgements"
        raise DataError(where=where, found=found, expected="an integer", remedy="Correct the judgement.")
    return max(0, int(value))


Role = Literal["train", "dev", "test"]
By = Literal["query", "answer"]


def fold_of_queries(query_ids: Sequence[str], *, num_folds: int, seed: int, groups: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return query id → fold, independent of the order of the queries; fold sizes differ by at most one without groups.

    RCL (arXiv 2209.13241) evaluates FAQ retrieval by an unspecified "5-fold method"; these folds are over queries, by published seed.

    Args:
        groups: query id → name of its group, which stays together; the largest groups first, each into the smallest fold.

    Raises:
        DataError: fewer than three folds (train, dev and test need one each), fewer queries than folds, or repeated ids.
    """
    if num_folds < 3:
        raise _folds_complaint(f"{num_folds} folds", "at least 3: one for test, one for dev, the rest for train")
    if len(set(query_ids)) != len(query_ids):
        raise _folds_complaint("a query id that occurs twice", "each query id once")
    if len(query_ids) < num_folds:
        raise _folds_complaint(f"{len(query_ids)} queries", f"at least one for each of the {num_folds} folds")
    if groups is not None:
        return _fold_of_groups(query_ids, groups, num_folds, seed)
    ranked = sorted(query_ids, key=lambda query: (digest_u64(seed, query), query))
    return {query: rank % num_folds for rank, query in enumerate(ranked)}


def _fold_of_groups(query_ids: Sequence[str], groups: Mapping[str, str], num_folds: int, seed: int) -> dict[str, int]:
    members: defaultdict[str, list[str]] = defaultdict(list)
    for query in query_ids:
        members[groups[query]].append(query)
    if len(members) < num_folds:
        raise _folds_complaint(
            f"{len(members)} groups of {len(query_ids)} queries that share no answer", f"at least one for each of {num_folds} folds"
        )
    sizes, folds = [0] * num_folds, dict[str, int]()
    for name in sorted(members, key=lambda name: (-len(members[name]), digest_u64(seed, name), name)):
        fold = sizes.index(min(sizes))
        sizes[fold] += len(members[name])
        folds |= dict.fromkeys(members[name], fold)
    return folds


def groups_by_answer(retrieval: Retrieval) -> dict[str, str]:
    """Return query id → its group: queries linked, directly or through others, by relevant documents of equal id or text."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    texts = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    for query in retrieval.query_ids:
        own = find(f"query {query}")
        for document, relevance in retrieval.qrels[query].items():
            if relevance > 0:
                first, other = sorted((own, find(f"text {texts[document]}" if document in texts else f"document {document}")))
                leader[other] = first
                own = first
    groups: dict[str, str] = {query: find(f"query {query}") for query in retrieval.query_ids}
    names: dict[str, str] = {}
    for query in sorted(groups):
        names.setdefault(groups[query], query)  # its first query by id: independent of their order
    return {query: names[group] for query, group in groups.items()}


def groups_of(retrieval: Retrieval, by: By) -> dict[str, str] | None:
    """Return the groups of queries that stay in one fold; None: none. "answer": no relevant document of a test query is in train."""
    return groups_by_answer(retrieval) if by == "answer" else None


def queries_for(
    query_ids: Sequence[str], *, fold: int, num_folds: int, seed: int, role: Role, groups: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the queries of `role` in round `fold`, in their order: fold k is test, fold k + 1 (cyclic) is dev, the rest train."""
    if not 0 <= fold < num_folds:
        raise _folds_complaint(f"fold {fold}", f"0 to {num_folds - 1}")
    if role not in get_args(Role):
        raise _folds_complaint(f'role "{role}"', f"one of {', '.join(get_args(Role))}")
    folds = fold_of_queries(query_ids, num_folds=num_folds, seed=seed, groups=groups)
    roles: dict[int, Role] = {fold: "test", (fold + 1) % num_folds: "dev"}
    return tuple(query for query in query_ids if roles.get(folds[query], "train") == role)


def fold_of_retrieval(retrieval: Retrieval, *, fold: int, num_folds: int, seed: int, role: Role, by: By = "query") -> Retrieval:
    """Return the source with only the queries of a role, but all documents."""
    groups = groups_of(retrieval, by)
    chosen = set(queries_for(retrieval.query_ids, fold=fold, num_folds=num_folds, seed=seed, role=role, groups=groups))
    kept = [(query, text) for query, text in zip(retrieval.query_ids, retrieval.queries, strict=True) if query in chosen]
    return replace(
        retrieval,
        query_ids=tuple(query for query, _ in kept),
        queries=tuple(text for _, text in kept),
        qrels={query: retrieval.qrels[query] for query, _ in kept},
    )


def faq_pairs(retrieval: Retrieval, *, fold: int, num_folds: int, seed: int, role: Role = "train", by: By = "query") -> pa.Table:
    """Return columns anchor and positive: queries of the role with each distinct relevant text; raise DataError if there is none."""
    import pyarrow as pa

    texts = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    part = fold_of_retrieval(retrieval, fold=fold, num_folds=num_folds, seed=seed, role=role, by=by)
    rows = dict.fromkeys(
        (query, texts[document])
        for query_id, query in zip(part.query_ids, part.queries, strict=True)
        for document, relevance in part.qrels[query_id].items()
        if relevance > 0 and document in texts
    )
    if not rows:
        raise _folds_complaint(f"no document of relevance 1 or more for the {role} queries of fold {fold}", "at least one")
    anchors, positives = zip(*rows, strict=True)
    return pa.table({"anchor": pa.array(anchors, pa.large_string()), "positive": pa.array(positives, pa.large_string())})


def _folds_complaint(found: str, expected: str) -> DataError:
    return DataError(
        where="folds over queries", found=found, expected=expected, remedy="Correct the fold in the recipe, or use more queries."
    )
