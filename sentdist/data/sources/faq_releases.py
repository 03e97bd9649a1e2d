"""FAQ collections in the very files that their authors released, read as the three tables of a retrieval source.

Both have two splits of judgements: `queries`, what annotators said of users' queries, and `questions`, each FAQ's own question, to which
its own answer alone is relevant.
"""

from __future__ import annotations

import csv
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import DataError, first_line
from sentdist.reading import reading

if TYPE_CHECKING:
    import pyarrow as pa

SPLITS = ("queries", "questions")
_QUESTION = "faq-"  # before the id of an FAQ, the id of its own question among the queries

_COUGH = ("FAQ_Bank_eval.csv", "User_Query_Bank.csv", ("Annotated_Relevance_Set.csv", "Annotated_Relevance_Set"))
_LABEL = "Label"  # the first word of the judgements' column: "Label (mean score > 3 as positive)"


@dataclass(frozen=True, kw_only=True)
class FaqTables:
    """documents: document_id, question, answer. queries: query_id, query. judgements: split, query_id, document_id, relevance."""

    documents: pa.Table
    queries: pa.Table
    judgements: pa.Table

    def judged(self, split: str | None) -> pa.Table:
        """The judgements of a split; of all if None."""
        import pyarrow.compute as compute

        return self.judgements if split is None else self.judgements.filter(compute.equal(self.judgements["split"], split))


@dataclass(frozen=True, kw_only=True)
class FaqRelease:
    """The files of a release, and who reads them."""

    paths: tuple[Path, ...]
    reader: Callable[[tuple[Path, ...]], _Parts]

    def tables(self, name: str) -> FaqTables:
        """Raises DataError for files that are not as they were released."""
        import pyarrow as pa

        for path in self.paths:
            with reading(path, expected="the file as its authors released it", where=name):
                pass
        try:
            parts = self.reader(self.paths)
        except Exception as error:  # csv.Error and ParseError have no ancestor in common with what a row of another form raises
            raise DataError(
                where=f"{name} ({self.paths[0].parent})", found=f"files that cannot be read ({type(error).__name__}: {first_line(error)})",
                expected="the files as their authors released them", remedy="Fetch them again.",
            ) from error  # fmt: skip
        if not parts.documents or not parts.judged:
            raise DataError(
                where=f"{name} ({self.paths[0].parent})", found="no FAQs or no judgements", expected="both", remedy="Fetch them again."
            )
        own = [(key, question) for key, question, answer in parts.documents if question and answer]
        judged = [("queries", *row) for row in parts.judged] + [("questions", f"{_QUESTION}{key}", key, 1) for key, _ in own]
        queries = [*parts.queries, *((f"{_QUESTION}{key}", question) for key, question in own)]

        def table(columns: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> pa.Table:
            return pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))

        return FaqTables(
            documents=table(("document_id", "question", "answer"), parts.documents),
            queries=table(("query_id", "query"), queries),
            judgements=table(("split", "query_id", "document_id", "relevance"), judged),
        )


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """documents: id, question, answer. queries: id, text. judged: id of query, of document, relevance 0 or 1."""

    documents: list[tuple[str, str, str]]
    queries: list[tuple[str, str]]
    judged: list[tuple[str, str, int]]


def find(folder: Path) -> FaqRelease | None:
    """The release that a folder holds; None where it holds none. Raises DataError for one that lacks a part."""
    if not folder.is_dir():
        return None
    if (found := next(iter(sorted(folder.glob("FAQIR*.xml"))), None)) is not None:
        return FaqRelease(paths=(found,), reader=_faqir)
    bank, queries, judgements = _COUGH
    if not (folder / bank).is_file():
        return None
    judged = next((folder / name for name in judgements if (folder / name).is_file()), folder / judgements[0])
    for path in (folder / queries, judged):
        if not path.is_file():
            raise DataError(where=str(folder), found=f"no {path.name}", expected="the release, whole", remedy="Fetch the missing part.")
    return FaqRelease(paths=(folder / bank, folder / queries, judged), reader=_cough)


def _faqir(paths: tuple[Path, ...]) -> _Parts:
    """One XML file: queries in groups, FAQ pairs, and for each group the pooled pairs with their annotations, from 1 = relevant
    to 4 = irrelevant.

    A pair is relevant to the queries of a group where an annotator gave it a 1 (Karan & Šnajder 2016; "useful", 2, is not enough).
    """
    root = ElementTree.parse(paths[0]).getroot()
    documents = [(_text(one, "id"), _text(one, "question"), _text(one, "answer")) for one in _all(root, "qapair")]
    groups: dict[str, list[str]] = {}
    queries = []
    for one in _all(root, "query"):
        key, text = _text(one, "queryid"), _text(one, "querystring")
        if text:
            queries.append((key, text))
            groups.setdefault(_text(one, "querygroupid"), []).append(key)
    known = {key for key, *_ in documents}
    judged: dict[tuple[str, str], int] = {}
    for listed in _all(root, "ircandidatelist"):
        for candidate in _all(listed, "ircandidate"):
            document = _text(candidate, "id")
            relevance = int(any(int(_text(one, "val")) == 1 for one in _all(candidate, "annotation")))
            if relevance and document not in known:
                raise ValueError(f"a relevant FAQ {document!r}, which the file does not hold")
            for key in groups.get(_text(listed, "grpid"), ()) if document in known else ():
                judged[key, document] = max(relevance, judged.get((key, document), 0))
    return _Parts(documents=documents, queries=queries, judged=[(*pair, relevance) for pair, relevance in judged.items()])


def _all(element: ElementTree.Element, tag: str) -> Iterable[ElementTree.Element]:
    """Elements below of a tag, whose case differs between the release's own description and its file."""
    return (one for one in element.iter() if one.tag.lower() == tag)


def _text(element: ElementTree.Element, tag: str) -> str:
    """The text of a child; "" without one."""
    return " ".join(next(((one.text or "") for one in element if one.tag.lower() == tag), "").split())


def _cough(paths: tuple[Path, ...]) -> _Parts:
    """The bank for evaluation (index, question, answer, …), users' queries (index, query) and judged pairs (Query_index, FAQ_index, …,
    a label "positive" or "negative"). Negative judgements of queries that the release's own list lacks are left out."""
    bank, asked, judgements = (list(_rows(path)) for path in paths)
    documents = [(row["index"], _joined(row["question"]), _joined(row["answer"])) for row in bank]
    queries = [(row["index"], _joined(row["query"])) for row in asked]
    documents_known, queries_known = {key for key, *_ in documents}, {key for key, _ in queries}
    judged: dict[tuple[str, str], int] = {}
    for row in judgements:
        pair = row["Query_index"], row["FAQ_index"]
        label = next(value for column, value in row.items() if column.startswith(_LABEL)).strip().lower()
        if label not in ("positive", "negative"):
            raise ValueError(f"label {label!r}")
        if pair[0] in queries_known and pair[1] in documents_known:
            judged[pair] = max(int(label == "positive"), judged.get(pair, 0))
        elif label == "positive":
            raise ValueError(f"a positive judgement of query {pair[0]} and FAQ {pair[1]}, which are not both there")
    return _Parts(documents=documents, queries=queries, judged=[(*pair, relevance) for pair, relevance in judged.items()])


def _rows(path: Path) -> Iterable[dict[str, str]]:
    before = csv.field_size_limit(sys.maxsize)  # some answers are longer than what the module takes
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file)
    finally:
        csv.field_size_limit(before)


def _joined(text: str | None) -> str:
    return " ".join((text or "").split())
