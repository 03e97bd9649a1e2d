"""Find, read and check the queries, documents and judgements of a retrieval source; divide its queries into folds."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.data import files, generated, releases
from sentdist.data.cells import groups_in, row_name
from sentdist.data.files import FileFacts
from sentdist.data.leaks import linked_groups
from sentdist.data.sampler import digest_u64
from sentdist.data.tables import check_columns, content_digest
from sentdist.errors import DataError, listed

if TYPE_CHECKING:
    import pyarrow as pa


GENERATED = "generated/faq"  # the collection without files
# Names of the parts of a retrieval source and of their columns; the first match wins.
DOCUMENT_FILES = ("documents", "docs", "faqs")
QUERY_ID = ("query_id", "query-id", "_id")
DOCUMENT_ID = ("document_id", "doc_id", "faq_id", "corpus-id", "_id")
QUERY_TEXT = ("query", "text")
RELEVANCE = ("relevance", "score")
SHAPES = "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), or tables NAME_docs (or _faqs), NAME_queries and NAME_qrels"


@dataclass(frozen=True, kw_only=True)
class Collection:
    """The files of a retrieval source.

    Args:
        judgements: (split, file); the split is None if a column `split`, or nothing, distinguishes the splits.
        release: files of an FAQ release instead, see `releases.read_faqs`.
    """

    documents: Path
    queries: Path
    judgements: tuple[tuple[str | None, Path], ...]
    release: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.release or (self.documents, self.queries, *(path for _, path in self.judgements))


def find_collection(name: str, data_root: Path | None) -> Collection | None:
    """Return the files of the retrieval source `name`, or None if it is none.

    There are three layouts: files NAME_docs (or _faqs), NAME_queries and NAME_qrels; a folder as in BEIR (Thakur et al. 2021,
    arXiv 2104.08663), with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; or a folder with an FAQ release of its authors.

    Raises:
        DataError: some of the parts are missing.
    """
    folder = files.existing_root(name, data_root) / name
    if release := releases.faq_files(folder):
        return Collection(documents=release[0], queries=release[0], judgements=(), release=release)
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    if corpus.is_file():
        judged = tuple((path.stem, path) for path in sorted((folder / "qrels").glob("*.tsv")))
        if not queries.is_file() or not judged:
            raise DataError(where=name, found="corpus.jsonl alone", expected=SHAPES, remedy="Complete the folder.")
        return Collection(documents=corpus, queries=queries, judgements=judged)
    parts = {part: files.with_suffixes(folder.with_name(f"{folder.name}_{part}")) for part in (*DOCUMENT_FILES, "queries")}
    parts["qrels"] = files.with_suffixes(folder.with_name(f"{folder.name}_qrels"), *files.TREC)
    documents = next((found for part in DOCUMENT_FILES if (found := parts[part])), [])
    if not documents and not parts["queries"] and not parts["qrels"]:
        return None
    if not documents or not parts["queries"] or not parts["qrels"]:
        present = ", ".join(path.name for found in parts.values() for path in found)
        raise DataError(where=name, found=present, expected=SHAPES.replace("NAME", folder.name), remedy="Fetch the missing part.")
    return Collection(documents=documents[0], queries=parts["queries"][0], judgements=((None, parts["qrels"][0]),))


def facts_of(name: str, collection: Collection) -> FileFacts:
    """Return a digest of the files, the number of judgements, by split, and the columns of the documents."""
    if collection.release:
        documents, _, judgements = releases.read_faqs(name, collection.release)
        digests = list(map(content_digest, collection.release))
        columns, num_rows, splits = documents.column_names, judgements.num_rows, files.split_sizes(judgements)
    else:
        facts = [files.file_facts(name, path) for path in collection.paths]
        digests, columns, judged = [one.digest for one in facts], list(facts[0].columns), facts[2:]
        num_rows = sum(one.num_rows for one in judged)
        named = [(part, one.num_rows) for (part, _), one in zip(collection.judgements, judged, strict=True) if part is not None]
        splits = tuple(named) or judged[0].splits
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    return FileFacts(digest=f"sha256:{digest}", num_rows=num_rows, columns=tuple(columns), splits=splits)


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
        tables: Sequence[pa.Table] = [generated.table_of(f"faq_{part}") for part in ("documents", "queries", "qrels")]
    else:
        collection = None if name.startswith("hub:") else find_collection(name, data_root)
        if collection is None:
            remedy = "Score a file of questions and answers as own=FILE; generated/faq needs no files."
            raise DataError(where=name, found="no documents, queries and qrels of that name", expected=SHAPES, remedy=remedy)
        splits = [part for part, _ in facts_of(name, collection).splits]
        split = files.part_of(splits, split)
        files.check_split(name, splits, split)
        tables = _tables(name, collection, split)
    documents, queries, judgements = tables
    return assemble(name, documents=documents, queries=queries, judgements=judgements, document_field=document_field)


def _tables(name: str, collection: Collection, split: str | None) -> Sequence[pa.Table]:
    """Documents, queries and the judgements of a split, with the columns document_id, query_id, query and relevance."""
    import pyarrow as pa

    if collection.release:
        documents, queries, judgements = releases.read_faqs(name, collection.release)
        return documents, queries, files.chosen(name, judgements, split=split)
    documents = _renamed(name, files.read_file(name, collection.documents), {"document_id": DOCUMENT_ID})
    queries = _renamed(name, files.read_file(name, collection.queries), {"query_id": QUERY_ID, "query": QUERY_TEXT})
    judged = []
    for part, path in collection.judgements:
        if split is None or part in (None, split):
            table = files.read_file(name, path, split=split if part is None else None)
            table = _renamed(name, table, {"query_id": QUERY_ID, "document_id": DOCUMENT_ID, "relevance": RELEVANCE})
            judged.append(table.select(["query_id", "document_id", "relevance"]))
    return documents, queries, pa.concat_tables(judged, promote_options="permissive")


def _renamed(name: str, table: pa.Table, names: Mapping[str, Sequence[str]]) -> pa.Table:
    """The table with the first known column of each of our names under that name, ids as text; the others keep theirs."""
    import pyarrow as pa

    for ours, known in names.items():
        column = next((one for one in known if one in table.column_names), None)
        if column is None:
            raise DataError(
                where=name, found=f"columns {', '.join(table.column_names)}", expected=f"one called {' or '.join(known)}",
                remedy="Rename the column in the file.",
            )  # fmt: skip
        cells = table[column].cast(pa.large_string()) if ours.endswith("_id") else table[column]
        table = table.drop_columns([column]).append_column(ours, cells)
    return table


def assemble(name: str, *, documents: pa.Table, queries: pa.Table, judgements: pa.Table, document_field: str) -> Retrieval:
    """Check the three tables against each other and join them, without unjudged queries."""
    document_ids = _unique_ids(name, "document", documents["document_id"].to_pylist())
    texts = _document_texts(name, documents, document_field)
    query_ids = _unique_ids(name, "query", queries["query_id"].to_pylist())
    qrels = _qrels(name, judgements, set(query_ids), set(document_ids))
    judged = [(query, text) for query, text in zip(query_ids, queries["query"].to_pylist(), strict=True) if query in qrels]
    filled = [(document, text) for document, text in zip(document_ids, texts, strict=True) if text]
    empty = [query for query, text in judged if not (text or "").strip()]
    if empty or not filled:
        found = f"an empty query {empty[0]}" if empty else "no document with text"
        raise DataError(where=name, found=found, expected="text in every judged query and in the documents", remedy="Complete the source.")
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
    is_faq = "answer" in documents.column_names
    if not is_faq and document_field != "answer":
        expected = '"answer", the whole text: only documents with a question and an answer have other fields'
        raise DataError(where=name, found=f'document_field "{document_field}"', expected=expected, remedy="Correct the recipe.")
    known = document_field.split("_") if is_faq else ("title", "text")
    fields = [field for field in known if is_faq or field in documents.column_names] or ["text"]
    check_columns(name, documents.column_names, fields)
    columns = [documents[field].to_pylist() for field in fields]
    return [" ".join(part.strip() for part in parts if part and part.strip()) for parts in zip(*columns, strict=True)]


def _unique_ids(name: str, what: str, ids: list[str | None]) -> list[str]:
    if not all(ids):
        raise DataError(where=name, found=f"a {what} without an id", expected=f"an id for every {what}", remedy="Number them.")
    check_distinct(name, ids, f"{what} id")
    return [str(value) for value in ids]


def check_distinct(name: str, keys: Sequence[Hashable], what: str) -> None:
    """Raise DataError if a key is in several rows, naming all but the first."""
    first: dict[Hashable, int] = {}
    again = [row for row, key in enumerate(keys) if first.setdefault(key, row) != row]
    if again:
        remedy = f"Remove {listed([row_name(row) for row in again])}."
        raise DataError(where=name, found=f"{what} {keys[again[0]]} again", expected=f"each {what} once", remedy=remedy)


def _qrels(name: str, judgements: pa.Table, queries: set[str], documents: set[str]) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    pairs = list(zip(judgements["query_id"].to_pylist(), judgements["document_id"].to_pylist(), strict=True))
    for row, ((query, document), relevance) in enumerate(zip(pairs, judgements["relevance"].to_pylist(), strict=True)):
        for what, key, known in (("query", query, queries), ("document", document, documents)):
            if key not in known:
                found, expected = f"{what} {key} in {row_name(row)} of the judgements", f"a {what} of the source"
                raise DataError(where=name, found=found, expected=expected, remedy="Complete the source.")
        qrels.setdefault(query, {})[document] = whole_grade(relevance, where=name, row=row)
    check_distinct(name, pairs, "judgement")
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
    if num_folds < 3 or not num_folds <= len(set(query_ids)) == len(query_ids):
        found = f"{num_folds} folds of {len(query_ids)} queries with {len(set(query_ids))} ids"
        raise _unfoldable(found, "at least 3 folds, a query for each, and an id for each query")
    if groups is not None:
        return _fold_of_groups(query_ids, groups, num_folds, seed)
    ranked = sorted(query_ids, key=lambda query: (digest_u64(seed, query), query))
    return {query: rank % num_folds for rank, query in enumerate(ranked)}


def _fold_of_groups(query_ids: Sequence[str], groups: Mapping[str, str], num_folds: int, seed: int) -> dict[str, int]:
    members: defaultdict[str, list[str]] = defaultdict(list)
    for query in query_ids:
        members[groups[query]].append(query)
    if len(members) < num_folds:
        raise _unfoldable(f"{len(members)} groups of {len(query_ids)} queries that share no answer", f"{num_folds} for as many folds")
    sizes, folds = [0] * num_folds, dict[str, int]()
    for name in sorted(members, key=lambda name: (-len(members[name]), digest_u64(seed, name), name)):
        fold = sizes.index(min(sizes))
        sizes[fold] += len(members[name])
        folds |= dict.fromkeys(members[name], fold)
    return folds


def groups_by_answer(retrieval: Retrieval) -> dict[str, str]:
    """Return query id → its group: queries linked, directly or through others, by relevant documents of equal id or text.

    With groups, no relevant document of a test query is in train.
    """
    texts = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    links = [
        (row, texts.get(document, (document,)))  # no text is a tuple
        for row, query in enumerate(retrieval.query_ids)
        for document, relevance in retrieval.qrels[query].items()
        if relevance > 0
    ]
    groups = dict(zip(retrieval.query_ids, linked_groups(len(retrieval.query_ids), links).tolist(), strict=True))
    names: dict[int, str] = {}
    for query in sorted(groups):
        names.setdefault(groups[query], query)  # its first query by id: independent of their order
    return {query: names[group] for query, group in groups.items()}


def queries_for(
    query_ids: Sequence[str], *, fold: int, num_folds: int, seed: int, role: Role, groups: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the queries of `role` in round `fold`, in their order: fold k is test, fold k + 1 (cyclic) is dev, the rest train."""
    if not 0 <= fold < num_folds:
        raise _unfoldable(f"fold {fold}", f"0 to {num_folds - 1}")
    folds = fold_of_queries(query_ids, num_folds=num_folds, seed=seed, groups=groups)
    roles: dict[int, Role] = {fold: "test", (fold + 1) % num_folds: "dev"}
    return tuple(query for query in query_ids if roles.get(folds[query], "train") == role)


def faq_pairs(retrieval: Retrieval, *, fold: int, num_folds: int, seed: int, by: By = "query") -> pa.Table:
    """Return columns anchor and positive: training queries with each distinct relevant text; raise DataError if there is none."""
    import pyarrow as pa

    texts = dict(zip(retrieval.document_ids, retrieval.documents, strict=True))
    groups = groups_by_answer(retrieval) if by == "answer" else None
    trained = set(queries_for(retrieval.query_ids, fold=fold, num_folds=num_folds, seed=seed, role="train", groups=groups))
    rows = dict.fromkeys(
        (query, texts[document])
        for query_id, query in zip(retrieval.query_ids, retrieval.queries, strict=True)
        for document, relevance in retrieval.qrels[query_id].items()
        if query_id in trained and relevance > 0 and document in texts
    )
    if not rows:
        raise _unfoldable(f"no document of relevance 1 or more for the training queries of fold {fold}", "at least one")
    anchors, positives = zip(*rows, strict=True)
    return pa.table({"anchor": pa.array(anchors, pa.large_string()), "positive": pa.array(positives, pa.large_string())})


def _unfoldable(found: str, expected: str) -> DataError:
    remedy = "Correct the fold in the recipe, or use more queries."
    return DataError(where="folds over queries", found=found, expected=expected, remedy=remedy)
