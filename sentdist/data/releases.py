"""Read test sets in the original files of their authors as the tables that tasks expect."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.files import FileFacts, existing_root, split_sizes
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
    with _as_released(name, path):
        rows = list(reader(path))
        if not rows:
            raise ValueError("no rows")
    return pa.Table.from_pylist(rows)


def facts(name: str, path: Path) -> FileFacts:
    """Return rows, columns and splits of a release, and a digest of the names and contents of its files."""
    table = read(name, path)
    digest = hashlib.sha256()
    for part in sorted(path.glob("*")) if path.is_dir() else [path]:
        if part.is_file():
            digest.update(part.name.encode() + part.read_bytes())
    return FileFacts(
        digest=f"sha256:{digest.hexdigest()[:16]}", num_rows=table.num_rows, columns=tuple(table.column_names), splits=split_sizes(table)
    )


@contextmanager
def _as_released(name: str, path: Path) -> Iterator[None]:
    """Turn errors of a missing file or a malformed line into one that names the release."""
    with reading(None, where=f"{name} ({path})", expected="all files as their authors released them", remedy="Fetch it again."):
        try:
            yield
        except FileNotFoundError as error:
            raise ValueError(f"no {Path(str(error.filename)).name}") from error


def _reader(path: Path) -> Callable[[Path], Iterator[ReleasedRow]] | None:
    if os.path.lexists(path) and not path.is_dir():
        if path.name.startswith("Twitter_URL_Corpus") and path.suffix == ".txt":
            return _twitter_url
        return {"test.data": _pit, "sem_text_rel_ranked.csv": _str2022}.get(path.name)
    known = {"text_tokenized.txt": _askubuntu, "retrieval_split.json": _cqadupstack, "data.json": _scidocs}
    return next((reader for file, reader in known.items() if os.path.lexists(path / file)), None)


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
    for row in _rows(path):
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
                yield _judged(split, query, candidate, titles, int(candidate in relevant))


def _judged(split: str, query: str, document: str, titles: dict[str, str], relevance: int) -> ReleasedRow:
    return {
        "split": split, "query_id": query, "query": titles[query], "document_id": document, "document": titles[document],
        "relevance": relevance,
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
                    yield _judged(split, query, document, titles, int(relevance))


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
    with path.open(encoding="utf-8", newline="\n") as file:
        yield from (line.rstrip("\r\n").split("\t") for line in file if line.strip())  # Twitter-URL breaks lines after links


def _rows(path: Path) -> Iterable[dict[str, str]]:
    csv.field_size_limit(LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file)


_COUGH = ("FAQ_Bank_eval.csv", "User_Query_Bank.csv", "Annotated_Relevance_Set.csv")

Documents = list[tuple[str, str, str]]  # id, question, answer
Queries = list[tuple[str, str]]  # id, text
Judgements = dict[tuple[str, str], int]  # id of query, id of document -> relevance 0 or 1


def faq_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of the FAQ release in a folder, FAQIR or COUGH; () if there is none."""
    if (folder / _COUGH[0]).is_file():
        judged = folder / _COUGH[2]  # the release names it without suffix
        return (folder / _COUGH[0], folder / _COUGH[1], judged if judged.is_file() else judged.with_suffix(""))
    return tuple(sorted(folder.glob("FAQIR*.xml"))[:1])


def read_faqs(name: str, paths: Sequence[Path]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return documents (document_id, question, answer), queries (query_id, query) and judgements (split, query_id, document_id, relevance).

    Splits: "queries" of users, as judged, and "questions", each FAQ's own one, to which its answer alone is relevant.

    Raises:
        DataError: files that are missing or differ from the release.
    """
    import pyarrow as pa

    with _as_released(name, paths[0].parent):
        documents, queries, relevance = _cough(*paths) if len(paths) > 1 else _faqir(paths[0])
        if not documents or not relevance:
            raise ValueError("no FAQs or no judgements")
    own = [(key, question) for key, question, answer in documents if question and answer]
    judged = [("queries", *pair, grade) for pair, grade in relevance.items()] + [("questions", f"faq-{key}", key, 1) for key, _ in own]

    def table(columns: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> pa.Table:
        return pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))

    return (
        table(("document_id", "question", "answer"), documents),
        table(("query_id", "query"), [*queries, *((f"faq-{key}", question) for key, question in own)]),
        table(("split", "query_id", "document_id", "relevance"), judged),
    )


def _faqir(path: Path) -> tuple[Documents, Queries, Judgements]:
    """One XML file: groups of queries, FAQ pairs, and for each group the pooled pairs with annotations (1 relevant … 4 irrelevant). A pair
    is relevant to the queries of a group if an annotator gave it a 1 (Karan & Šnajder 2016; "useful", 2, is not enough)."""
    root = ElementTree.parse(path).getroot()
    documents = [(_text(one, "id"), _text(one, "question"), _text(one, "answer")) for one in _all(root, "qapair")]
    groups: dict[str, list[str]] = {}
    queries = []
    for one in _all(root, "query"):
        key, text = _text(one, "queryid"), _text(one, "querystring")
        if text:
            queries.append((key, text))
            groups.setdefault(_text(one, "querygroupid"), []).append(key)
    known = {key for key, *_ in documents}
    judged: Judgements = {}
    for listed in _all(root, "ircandidatelist"):
        for candidate in _all(listed, "ircandidate"):
            document = _text(candidate, "id")
            relevance = int(any(int(_text(one, "val")) == 1 for one in _all(candidate, "annotation")))
            if relevance and document not in known:
                raise ValueError(f"a relevant FAQ {document!r}, which the file does not contain")
            for key in groups.get(_text(listed, "grpid"), ()) if document in known else ():
                judged[key, document] = max(relevance, judged.get((key, document), 0))
    return documents, queries, judged


def _all(element: ElementTree.Element, tag: str) -> Iterable[ElementTree.Element]:
    """Descendants with a tag, whose case differs between the release's description and its file."""
    return (one for one in element.iter() if one.tag.lower() == tag)


def _text(element: ElementTree.Element, tag: str) -> str:
    return _joined(next((one.text for one in element if one.tag.lower() == tag), None))


def _cough(bank: Path, asked: Path, judgements: Path) -> tuple[Documents, Queries, Judgements]:
    """The FAQs (index, question, answer, …), users' queries (index, query) and judged pairs (Query_index, FAQ_index, …, a label "positive"
    or "negative"). Negative judgements of queries that the release's list lacks are left out."""
    documents = [(row["index"], _joined(row["question"]), _joined(row["answer"])) for row in _rows(bank)]
    queries = [(row["index"], _joined(row["query"])) for row in _rows(asked)]
    known_documents, known_queries = {key for key, *_ in documents}, {key for key, _ in queries}
    judged: Judgements = {}
    for row in _rows(judgements):
        pair = row["Query_index"], row["FAQ_index"]
        label = next(value for column, value in row.items() if column.startswith("Label")).strip().lower()  # "Label (mean score > 3 …"
        relevance = ("negative", "positive").index(label)
        if pair[0] in known_queries and pair[1] in known_documents:
            judged[pair] = max(relevance, judged.get(pair, 0))
        elif relevance:
            raise ValueError(f"a positive judgement of query {pair[0]} and FAQ {pair[1]}, which are not both there")
    return documents, queries, judged


def _joined(text: str | None) -> str:
    return " ".join((text or "").split())
