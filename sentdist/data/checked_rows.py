"""Read and check rows of evaluation tasks: candidates to rank, forums, labelled rows, texts and graded pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentdist.data import releases
from sentdist.data.cells import GROUP, groups_in, number_in, row_name, text_in
from sentdist.data.files import WHOLE
from sentdist.data.retrieval import DOCUMENT_ID, QUERY_ID, check_distinct, whole_grade
from sentdist.data.sources import NEGATIVE, POSITIVE, QUERY, ROW_COLUMNS, are_lists, read_source
from sentdist.data.tables import check_columns
from sentdist.errors import DataError, brief

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """R rows of a query and one of its candidates, in file order, which breaks ties.

    Args:
        relevance: integers ≥ 0, 0 = not relevant.
        num_unanswerable: queries without a relevant candidate, which are left out: every order is equally good for them.
        groups: group of each row's query, "" for none; () without groups.
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
    """Return the rows of a source with columns query_id, document_id, relevance and texts, or with mteb's lists of positives and negatives.

    Args:
        query, document: columns that are joined by a space.

    Raises:
        DataError: absent columns, an empty text, a non-integer relevance, a repeated candidate, a query with two texts, or no query with a
            relevant candidate.
    """
    table = as_rows(name, read_source(name, split=split, data_root=data_root, hub_revision=hub_revision))
    query_id, document_id = (next((one for one in known if one in table.column_names), known[0]) for known in (QUERY_ID, DOCUMENT_ID))
    check_columns(name, table.column_names, [query_id, document_id, "relevance", *query, *document])
    every = range(table.num_rows)
    query_ids, document_ids = ([str(one) for one in table[column].to_pylist()] for column in (query_id, document_id))
    check_distinct(name, [f"{one} of query {other}" for one, other in zip(document_ids, query_ids, strict=True)], "candidate")
    grades = [whole_grade(grade, where=name, row=row) for row, grade in enumerate(table["relevance"].to_pylist())]
    queries, documents = (_joined_texts(name, table, columns) for columns in (query, document))
    groups = groups_in(table, every) or ("",) * table.num_rows
    first: dict[str, int] = {}
    for row, key in enumerate(query_ids):
        before = first.setdefault(key, row)
        if (queries[row], groups[row]) != (queries[before], groups[before]):
            found = f"query {key} with another text or group in {row_name(row)} than before"
            raise DataError(where=name, found=found, expected="one text and group for each query_id", remedy="Correct the rows.")
    answerable = {key for key, grade in zip(query_ids, grades, strict=True) if grade > 0}
    kept = [row for row in every if query_ids[row] in answerable]
    if not kept:
        remedy = "Check the column relevance."
        raise DataError(where=name, found="no query with a relevant candidate", expected="at least one", remedy=remedy)
    if (empty := next((row for row in kept if not queries[row] or not documents[row]), None)) is not None:
        found = f"no {' or '.join(document if queries[empty] else query)} in {row_name(empty)}"
        raise DataError(where=name, found=found, expected="a text", remedy="Complete or drop the row.")
    return Candidates(
        query_ids=tuple(query_ids[row] for row in kept),
        queries=tuple(queries[row] for row in kept),
        document_ids=tuple(document_ids[row] for row in kept),
        documents=tuple(documents[row] for row in kept),
        relevance=tuple(grades[row] for row in kept),
        groups=tuple(groups[row] for row in kept) if any(groups) else (),
        num_unanswerable=len(first) - len(answerable),
    )


def _joined_texts(name: str, table: pa.Table, columns: Sequence[str]) -> list[str]:
    """The texts of some columns, joined by a space."""
    parts = zip(*(_texts_of(name, table, column, range(table.num_rows)) for column in columns), strict=True)
    return [" ".join(row).strip() for row in parts]


def as_rows(name: str, table: pa.Table) -> pa.Table:
    """Return a table with lists of candidates as one row per candidate; any other table unchanged.

    Each row is a separate query, and its group applies to its candidates. Negatives come first: an encoder that cannot distinguish
    candidates keeps the order of rows, and must not win by it.
    """
    import pyarrow as pa

    if not are_lists(table.column_names):
        return table
    rows = []
    for number, given in enumerate(table.to_pylist()):
        found = [(text, relevance) for column, relevance in ((NEGATIVE, 0), (POSITIVE, 1)) for text in _listed(given[column])]
        for place, (text, relevance) in enumerate(found):
            if not isinstance(text, str):
                raise DataError(
                    where=f"{name}: {row_name(number)}, {POSITIVE if relevance else NEGATIVE}", found=brief(text),
                    expected="a text, or a list of texts", remedy="Write the texts themselves.",
                )  # fmt: skip
            rows.append((str(number), given[QUERY], f"{number}-{place}", text, relevance, given.get(GROUP)))
    columns = (*ROW_COLUMNS, *([GROUP] if GROUP in table.column_names else []))
    return pa.table({column: [row[place] for row in rows] for place, column in enumerate(columns)})


def _listed(cell: object) -> Sequence[object]:
    return cell if isinstance(cell, list) else () if cell in (None, "") else (cell,)


@dataclass(frozen=True, kw_only=True)
class Forum:
    """Q questions to ask, a pool of P others to search, and for each question the positions of its duplicates in the pool."""

    name: str
    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    pool: tuple[str, ...]
    duplicates: tuple[frozenset[int], ...]


def read_forums(name: str, *, split: str | None, data_root: Path | None) -> tuple[Forum, ...]:
    """Return the forums of a release in the format of USEB's CQADupStack: corpus.json and retrieval_split.json.

    The pool of a forum excludes the questions of the split, so that none finds itself, as in USEB's code.

    Raises:
        DataError: no such release or split.
    """
    folder = releases.find(name, data_root)
    if folder is None or not (folder / "retrieval_split.json").exists():
        expected = "a folder with corpus.json and retrieval_split.json"
        raise DataError(where=name, found="no release of that name", expected=expected, remedy="Fetch it.")
    releases.read(name, folder)  # raises DataError for a damaged release
    corpus, judged = releases.cqadupstack_parts(folder)
    if split not in judged:
        raise DataError(where=name, found=f"split {split}", expected=f"one of {', '.join(judged)}", remedy="Correct the split.")
    return tuple(_forum(forum, corpus[forum], asked) for forum, asked in judged[split].items())


def _forum(name: str, questions: dict[str, str], asked: dict[str, list[str]]) -> Forum:
    pool = [key for key in questions if key not in asked]
    place = {key: number for number, key in enumerate(pool)}
    return Forum(
        name=name,
        query_ids=tuple(f"{name}:{key}" for key in asked),
        queries=tuple(questions[key] for key in asked),
        pool=tuple(questions[key] for key in pool),
        duplicates=tuple(frozenset(place[key] for key in found if key in place) for found in asked.values()),
    )


EMPTY = "."  # SentEval's input for a text without words


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """R labelled rows.

    Args:
        texts: a tuple of R texts for each text column, whitespace collapsed, EMPTY for a text without words.
        splits: of each row, "" without splits.
        num_empty: number of empty texts.
        groups: group of each row, "" for none; () without groups.
    """

    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    splits: tuple[str, ...]
    num_empty: int
    groups: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def rows_of(self, split: str) -> list[int]:
        """Return the rows of a split, in file order."""
        return [row for row, name in enumerate(self.splits) if name == split]


def read_labelled(
    name: str,
    *,
    columns: Sequence[str] = ("text",),
    label: str = "label",
    splits: Sequence[str] | None = None,
    may_be_empty: bool = True,
    data_root: Path | None = None,
    hub_revision: str | None = None,
) -> Labelled:
    """Return the rows of a source, or of some splits, in file order; a source without splits is its train split.

    Raises:
        DataError: absent columns, a row without a label, a non-text cell, an empty text (unless `may_be_empty`), or no rows in the splits.
    """
    table = read_source(name, data_root=data_root, hub_revision=hub_revision)
    if splits is not None and set(splits) == {WHOLE} and "split" not in table.column_names:
        splits = None
    check_columns(name, table.column_names, [*columns, label, *(["split"] if splits is not None else [])])
    parts = [str(part) for part in table["split"].to_pylist()] if "split" in table.column_names else [""] * table.num_rows
    kept = [row for row, part in enumerate(parts) if splits is None or part in splits]
    if not kept:
        remedy = "Name splits that the file has."
        raise DataError(where=name, found=f"no rows in {', '.join(splits or ())}", expected="rows of these splits", remedy=remedy)
    values = table[label].to_pylist()
    for row in kept:
        if values[row] is None or values[row] == "":
            raise DataError(
                where=name, found=f"no {label} in {row_name(row)}", expected="a label in every row", remedy="Complete or drop the row."
            )
    texts = [_texts_of(name, table, column, kept, may_be_empty=may_be_empty) for column in columns]
    return Labelled(
        texts=tuple(tuple(text or EMPTY for text in column) for column in texts),
        labels=tuple(str(values[row]) for row in kept),
        splits=tuple(parts[row] for row in kept),
        num_empty=sum(not text for column in texts for text in column),
        groups=groups_in(table, kept),
    )


def truths_of(rows: Labelled, *, where: str) -> tuple[int, ...]:
    """Return binary labels (1 and 0, true and false) as 1 and 0; raise DataError for others."""
    found = [number_in(label) for label in rows.labels]
    for row, (number, label) in enumerate(zip(found, rows.labels, strict=True)):
        if number not in (0.0, 1.0):
            seen = f"label {brief(label)} in {row_name(row)} of the {rows.num_rows} that are read"
            raise DataError(where=where, found=seen, expected="1 or 0, true or false", remedy="Correct the labels.")
    return tuple(int(number == 1.0) for number in found)


def read_texts(
    name: str, *, columns: Sequence[str], split: str | None = None, data_root: Path | None = None, hub_revision: str | None = None
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return the texts of some columns of a source, by column, and the group of each row, () without groups.

    Raises:
        DataError: absent columns or split, a source without rows, a non-text cell or an empty text.
    """
    table = read_source(name, split=split, data_root=data_root, hub_revision=hub_revision)
    check_columns(name, table.column_names, columns)
    if not table.num_rows:
        raise DataError(where=name, found="no rows", expected=f"rows with {', '.join(columns)}", remedy="Complete the source.")
    rows = range(table.num_rows)
    return tuple(tuple(_texts_of(name, table, column, rows, may_be_empty=False)) for column in columns), groups_in(table, rows)


def _texts_of(name: str, table: pa.Table, column: str, rows: Sequence[int], *, may_be_empty: bool = True) -> list[str]:
    """The texts of a column, whitespace collapsed."""
    cells = table[column].to_pylist()
    return [" ".join(text_in(cells[row], where=name, row=row, column=column, may_be_empty=may_be_empty).split()) for row in rows]


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """P sentence pairs.

    Args:
        subset: the part of the task of each pair.
        score: (P,) float64.
        num_ungraded: rows without a score, which are left out.
        group: group of each pair, such as a topic; () without groups.
    """

    subset: tuple[str, ...]
    sentence1: tuple[str, ...]
    sentence2: tuple[str, ...]
    score: np.ndarray
    num_ungraded: int = 0
    group: tuple[str, ...] = ()

    @property
    def num_pairs(self) -> int:
        return len(self.sentence1)

    def only(self, rows: np.ndarray) -> Pairs:
        """Return the pairs of these rows, in this order."""

        def of(column: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(column[row] for row in rows)

        return replace(
            self, subset=of(self.subset), sentence1=of(self.sentence1), sentence2=of(self.sentence2), score=self.score[rows],
            group=of(self.group) if self.group else (),
        )  # fmt: skip


def read_pairs(
    name: str,
    *,
    split: str | None = None,
    data_root: Path | None = None,
    hub_revision: str | None = None,
    score_range: tuple[float, float] = (0.0, 5.0),
) -> Pairs:
    """Return the graded pairs of a source with columns sentence1, sentence2, score and optionally subset and group.

    Rows without a gold score (null or empty) are left out, as the STS16 release requires.

    Raises:
        DataError: a score that is NaN, no number or out of range, or an empty sentence; names the row, counted within the split.
    """
    table = read_source(name, split=split, data_root=data_root, hub_revision=hub_revision)
    check_columns(name, table.column_names, ("sentence1", "sentence2", "score"))
    where = name if split is None else f"{name}, split {split}"
    scores = [_score(where, row, score, score_range) for row, score in enumerate(table["score"].to_pylist())]
    kept = [row for row, score in enumerate(scores) if score is not None]
    if not kept:
        remedy = "Use a split whose scores are public."
        raise DataError(where=where, found="no graded pair", expected="at least one row with a score", remedy=remedy)
    subsets = table["subset"].to_pylist() if "subset" in table.column_names else [name] * table.num_rows
    sentence1, sentence2 = (table[column].to_pylist() for column in ("sentence1", "sentence2"))
    return Pairs(
        subset=tuple(str(subsets[row]) for row in kept),
        sentence1=tuple(text_in(sentence1[row], where=where, row=row, column="sentence1", may_be_empty=False) for row in kept),
        sentence2=tuple(text_in(sentence2[row], where=where, row=row, column="sentence2", may_be_empty=False) for row in kept),
        score=np.array([scores[row] for row in kept], dtype=np.float64),
        num_ungraded=table.num_rows - len(kept),
        group=groups_in(table, kept),
    )


def _score(where: str, row: int, score: object, score_range: tuple[float, float]) -> float | None:
    """The score; None for an empty cell."""
    if score is None or score == "":
        return None
    low, high = score_range
    try:
        value = float(str(score))
    except ValueError:
        value = math.nan
    if not low <= value <= high or math.isinf(value):  # also for NaN
        expected = "a finite number, with a point" if math.isinf(high) else f"a number from {low:g} to {high:g}, with a point"
        remedy = "Correct the row or remove it; a row without a score is left out."
        raise DataError(where=where, found=f"score {score} in {row_name(row)}", expected=expected, remedy=remedy)
    return value
