"""Read test sets in the original files of their authors as the tables that tasks expect."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.sources.file_facts import FileFacts
from sentdist.data.sources.files import existing_root
from sentdist.errors import DataError, first_line
from sentdist.files import reading

if TYPE_CHECKING:
    import pyarrow as pa


LONGEST_FIELD = 1 << 24  # some answers exceed Python's default
ReleasedRow = dict[str, str | int | float]


def find(name: str, data_root: Path | None) -> Path | None:
    """Return the file or folder of `name` below the data root if it is a known release; else None."""
    path = existing_root(name, data_root) / name
    return path if _reader(path) is not None else None


def read(name: str, path: Path) -> pa.Table:
    """Return all rows of a release; raise DataError for missing parts and lines that differ from the release."""
    import pyarrow as pa

    reader = _reader(path)
    assert reader is not None, "`find` returned it as a release"
    for part in path.iterdir() if path.is_dir() else (path,):
        with reading(part, expected="the file as its authors released it", where=name):
            pass
    try:
        rows = list(reader(path))
    except FileNotFoundError as error:
        raise DataError(
            where=name, found=f"no {Path(str(error.filename)).name}", expected="all files of the release", remedy="Fetch the missing part."
        ) from error
    except Exception as error:  # csv.Error, RecursionError and the errors of malformed lines have no common ancestor
        found = f"a line that cannot be read ({type(error).__name__}: {first_line(error)})"
        raise DataError(
            where=f"{name} ({path})", found=found, expected="the file as its authors released it", remedy="Fetch it again."
        ) from error
    if not rows:
        raise DataError(where=f"{name} ({path})", found="no rows", expected="at least one", remedy="Fetch it again.")
    return pa.Table.from_pylist(rows)


def content(path: Path) -> str:
    """Return a digest of the names and contents of the files of a release."""
    digest = hashlib.sha256()
    for part in sorted(path.glob("*")) if path.is_dir() else [path]:
        if part.is_file():
            with reading(part, expected="the file as its authors released it"):
                digest.update(part.name.encode() + part.read_bytes())
    return f"sha256:{digest.hexdigest()[:16]}"


def facts(name: str, path: Path) -> FileFacts:
    """Return digest, rows, columns and splits of a release."""
    table = read(name, path)
    counts = table["split"].value_counts().to_pylist() if "split" in table.column_names else []
    return FileFacts(
        digest=content(path),
        num_rows=table.num_rows,
        columns=tuple(table.column_names),
        splits=tuple((str(entry["values"]), int(entry["counts"])) for entry in counts),
    )


def _reader(path: Path) -> Callable[[Path], Iterator[ReleasedRow]] | None:
    if os.path.lexists(path) and not path.is_dir():
        if path.name.startswith("Twitter_URL_Corpus") and path.suffix == ".txt":
            return _twitter_url
        return {"test.data": _pit, "sem_text_rel_ranked.csv": _str2022}.get(path.name)
    if os.path.lexists(path / "text_tokenized.txt"):
        return _askubuntu
    if os.path.lexists(path / "retrieval_split.json"):
        return _cqadupstack
    return _scidocs if os.path.lexists(path / "data.json") else None


def _paraphrase(first: str, second: str, votes: int) -> Iterator[ReleasedRow]:
    """A pair with at most 2 of 5 or 6 votes is no paraphrase, with 4 or more it is one; with 3 it is left out (USEB, arXiv 2104.06979)."""
    if votes != 3:
        yield {"sentence1": first, "sentence2": second, "label": int(votes > 3)}


def _twitter_url(path: Path) -> Iterator[ReleasedRow]:
    """sentence, sentence, "(4, 6)": 4 of 6 workers said paraphrase (Lan et al. 2017)."""
    for first, second, votes, *_ in _lines(path):
        yield from _paraphrase(first, second, int(votes.strip("() ").split(",")[0]))


def _pit(path: Path) -> Iterator[ReleasedRow]:
    """topic, its name, sentence, sentence, an expert's grade 0 to 5, tags (SemEval-2015 Task 1)."""
    for _, _, first, second, grade, *_ in _lines(path):
        yield from _paraphrase(first, second, int(grade))


def _str2022(path: Path) -> Iterator[ReleasedRow]:
    """PairID, Text with both sentences on a line each, Score from 0 to 1 (Abdalla et al. 2023)."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            first, second = row["Text"].split("\n")
            yield {"sentence1": first.strip(), "sentence2": second.strip(), "score": float(row["Score"])}


def _askubuntu(folder: Path) -> Iterator[ReleasedRow]:
    """Titles of candidates in BM25 order; queries without a similar question are left out (Lei et al. 2016; USEB's protocol)."""
    titles = {key: title.strip() for key, title, *_ in _lines(folder / "text_tokenized.txt")}
    for split in ("dev", "test"):
        for query, similar, candidates, scores in _lines(folder / f"{split}.txt"):
            relevant = set(similar.split())
            ranked = sorted(zip(candidates.split(), map(float, scores.split()), strict=True), key=lambda pair: -pair[1])
            for candidate, _ in ranked if relevant else ():
                yield {
                    "split": split, "query_id": query, "query": titles[query], "document_id": candidate, "document": titles[candidate],
                    "relevance": int(candidate in relevant),
                }  # fmt: skip


def _scidocs(folder: Path) -> Iterator[ReleasedRow]:
    """Titles of papers; the four relations of test are splits, as are those of valid (`cite-valid`); papers without a title are left out
    (Cohan et al. 2020, as in USEB)."""
    data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    titles = {key: paper["title"] for key, paper in data["corpus"].items() if paper["title"]}
    parts = [*data["test"].items(), *((f"{relation}-valid", queries) for relation, queries in data.get("valid", {}).items())]
    for split, queries in parts:
        for query, judged in queries.items():
            for document, relevance in judged.items():
                if query in titles and document in titles:
                    yield {
                        "split": split, "query_id": query, "query": titles[query], "document_id": document, "document": titles[document],
                        "relevance": int(relevance),
                    }  # fmt: skip


def _cqadupstack(folder: Path) -> Iterator[ReleasedRow]:
    """A row per question and duplicate, with their forum (Hoogeveen et al. 2015, as in USEB)."""
    forums, judged = cqadupstack_parts(folder)
    for split, by_forum in judged.items():
        for forum, queries in by_forum.items():
            for query, duplicates in queries.items():
                for document in duplicates:
                    yield {
                        "split": split, "forum": forum, "query_id": query, "query": forums[forum][query], "document_id": document,
                        "document": forums[forum][document],
                    }  # fmt: skip


def cqadupstack_parts(folder: Path) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, dict[str, list[str]]]]]:
    """Return forum -> id -> question, and split -> forum -> id of a question -> ids of its duplicates."""
    forums, judged = (json.loads((folder / name).read_text(encoding="utf-8")) for name in ("corpus.json", "retrieval_split.json"))
    return forums, judged


def _lines(path: Path) -> Iterator[Sequence[str]]:
    if not path.stat().st_size:
        raise ValueError(f"{path.name} is empty")
    with path.open(encoding="utf-8", newline="\n") as file:
        yield from (line.rstrip("\r\n").split("\t") for line in file if line.strip())  # Twitter-URL breaks lines after links


SPLITS = ("queries", "questions")
_QUESTION = "faq-"  # prefix for the id of an FAQ's question among the queries

_COUGH = ("FAQ_Bank_eval.csv", "User_Query_Bank.csv", ("Annotated_Relevance_Set.csv", "Annotated_Relevance_Set"))
_LABEL = "Label"  # the first word of the judgements' column: "Label (mean score > 3 as positive)"


@dataclass(frozen=True, kw_only=True)
class FaqTables:
    """Three tables: document_id, question, answer; query_id, query; split, query_id, document_id, relevance."""

    documents: pa.Table
    queries: pa.Table
    judgements: pa.Table

    def judged(self, split: str | None) -> pa.Table:
        """Return the judgements of a split; None: all."""
        import pyarrow.compute as compute

        return self.judgements if split is None else self.judgements.filter(compute.equal(self.judgements["split"], split))


@dataclass(frozen=True, kw_only=True)
class FaqRelease:
    """The files of a release, and their reader."""

    paths: tuple[Path, ...]
    reader: Callable[[tuple[Path, ...]], _Parts]

    def tables(self, name: str) -> FaqTables:
        """Return the tables; raise DataError for files that differ from the release."""
        import pyarrow as pa

        for path in self.paths:
            with reading(path, expected="the file as its authors released it", where=name):
                pass
        try:
            parts = self.reader(self.paths)
        except Exception as error:  # csv.Error, ParseError and the errors of malformed rows have no common ancestor
            found = f"files that cannot be read ({type(error).__name__}: {first_line(error)})"
            expected = "the files as their authors released them"
            raise DataError(where=f"{name} ({self.paths[0].parent})", found=found, expected=expected, remedy="Fetch them again.") from error
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


def find_faq(folder: Path) -> FaqRelease | None:
    """Return the FAQ release in a folder; None if there is none. Raises DataError for missing parts."""
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
            raise DataError(
                where=str(folder), found=f"no {path.name}", expected="all files of the release", remedy="Fetch the missing part."
            )
    return FaqRelease(paths=(folder / bank, folder / queries, judged), reader=_cough)


def _faqir(paths: tuple[Path, ...]) -> _Parts:
    """One XML file: groups of queries, FAQ pairs, and for each group the pooled pairs with annotations (1 relevant … 4 irrelevant). A pair
    is relevant to the queries of a group if an annotator gave it a 1 (Karan & Šnajder 2016; "useful", 2, is not enough)."""
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
                raise ValueError(f"a relevant FAQ {document!r}, which the file does not contain")
            for key in groups.get(_text(listed, "grpid"), ()) if document in known else ():
                judged[key, document] = max(relevance, judged.get((key, document), 0))
    return _Parts(documents=documents, queries=queries, judged=[(*pair, relevance) for pair, relevance in judged.items()])


def _all(element: ElementTree.Element, tag: str) -> Iterable[ElementTree.Element]:
    """Descendants with a tag, whose case differs between the release's description and its file."""
    return (one for one in element.iter() if one.tag.lower() == tag)


def _text(element: ElementTree.Element, tag: str) -> str:
    return " ".join(next(((one.text or "") for one in element if one.tag.lower() == tag), "").split())


def _cough(paths: tuple[Path, ...]) -> _Parts:
    """The FAQs (index, question, answer, …), users' queries (index, query) and judged pairs (Query_index, FAQ_index, …, a label "positive"
    or "negative"). Negative judgements of queries that the release's list lacks are left out."""
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
    csv.field_size_limit(LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file)


def _joined(text: str | None) -> str:
    return " ".join((text or "").split())
