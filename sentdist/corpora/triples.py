"""Build triples (head, relation, tail) of several relations with hard negatives, the training data of RSE (arXiv 2212.08802, Section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentdist.data.corpus import numbered_texts
from sentdist.data.sampler import MAX_DRAWS, random_words, shuffled
from sentdist.data.tables import check_columns
from sentdist.errors import DataError

ENTAILMENT, CONTRADICTION = "entailment", "contradiction"


@dataclass(frozen=True, kw_only=True)
class RelationSource:
    """One relation, its tables, and the construction of its pairs.

    Args:
        construction, columns: "pairs": (head, tail). "nli": (premise, hypothesis, label), entailed pairs with contradictions as hard
            negatives. "captions": (group, text), every two texts of a group, the earlier one as head. "same": (text,), a sentence with
            itself, which differ only by the encoder's dropout.
        only: (column, value) of the rows to use, for files with other pairs; None: all.
        cap: maximum number of pairs; None: all.
    """

    name: str
    tables: tuple[pa.Table, ...]
    construction: str = "pairs"
    columns: tuple[str, ...] = ("sentence1", "sentence2")
    only: tuple[str, str] | None = None
    cap: int | None = None


@dataclass(frozen=True, kw_only=True)
class RelationCounts:
    """Counts of a relation: distinct pairs, pairs in the table, and rows whose hard negative contradicts their own head."""

    num_pairs: int
    num_kept: int
    num_own_negatives: int = 0


@dataclass(frozen=True, kw_only=True)
class Triples:
    """A table of anchor, positive, negative (large_string) and relation (int32, index in `names`), by relation, then by anchor."""

    table: pa.Table
    names: tuple[str, ...]
    counts: dict[str, RelationCounts]


@dataclass(frozen=True, kw_only=True)
class HeldOutTriples:
    """T triples that training does not see, for link prediction.

    Args:
        heads: T sentences.
        tails: K distinct sentences, all tails of these triples.
        tail: (T,) index of the true tail.
        relation: (T,) index in `names`.
        known: (P, 2) pairs (triple, tail) of other true tails of a triple's head and relation, in any part; a ranking excludes them.
    """

    heads: tuple[str, ...]
    tails: tuple[str, ...]
    tail: np.ndarray
    relation: np.ndarray
    known: np.ndarray
    names: tuple[str, ...]


def join_relations(sources: Sequence[RelationSource], *, cap_rule: str = "first", held_out: int = 0, seed: int = 0) -> Triples:
    """Return the triples of all relations.

    Distinct pairs are grouped by head in order of first appearance; rows with an empty sentence are ignored, as are sentences paired with
    themselves except in "same". Each row has one hard negative: a tail of the same relation; for "nli" a contradiction of the premise, or
    of another premise if it has none; never the head or one of its tails in this relation (in the release it may equal the positive).
    Every choice depends on the seed, the relation's name and its rows only.

    Args:
        cap_rule: pairs that a cap keeps: "first", as in the release, or "sample".
        held_out: pairs of each relation to leave out for dev, and as many for test, drawn before the cap; see `held_out_relations`.

    Raises:
        DataError: absent columns, a relation without a pair, too few pairs to hold out, or too few tails to draw from.
    """
    tables, counts = [], {}
    for number, source in enumerate(sources):
        pairs = _pairs(source)
        kept = _rows_of_part(pairs, "train", held_out, seed)
        if (cap := source.cap) is not None and cap < len(kept):
            kept = kept[:cap] if cap_rule == "first" else np.sort(kept[shuffled(len(kept), seed=seed, stream=f"cap {source.name}")[:cap]])
        negatives, num_own = _hard_negatives(pairs, kept, seed)
        tables.append(
            pa.table(
                {
                    "anchor": pairs.strings.take(pa.array(pairs.heads[kept])),
                    "positive": pairs.strings.take(pa.array(pairs.tails[kept])),
                    "negative": pairs.strings.take(pa.array(negatives)),
                    "relation": pa.array(np.full(len(kept), number, dtype=np.int32)),
                }
            )
        )
        counts[source.name] = RelationCounts(num_pairs=len(pairs.heads), num_kept=len(kept), num_own_negatives=num_own)
    return Triples(table=pa.concat_tables(tables).combine_chunks(), names=tuple(source.name for source in sources), counts=counts)


def held_out_relations(sources: Sequence[RelationSource], *, held_out: int, part: str, seed: int = 0) -> HeldOutTriples:
    """Return the pairs that `join_relations` with the same arguments leaves out for `part`, "dev" or "test"; raise DataError as it does."""
    heads: list[str] = []
    tails: list[str] = []
    relations: list[int] = []
    known_texts: list[tuple[int, str]] = []
    for number, source in enumerate(sources):
        pairs = _pairs(source)
        for row in _rows_of_part(pairs, part, held_out, seed):
            others = pairs.tails_of(int(pairs.heads[row]))
            known_texts += [(len(heads), pairs.text(tail)) for tail in others if tail != pairs.tails[row]]
            heads.append(pairs.text(int(pairs.heads[row])))
            tails.append(pairs.text(int(pairs.tails[row])))
            relations.append(number)
    place = {text: number for number, text in enumerate(dict.fromkeys(tails))}
    known = [(row, place[text]) for row, text in known_texts if text in place]
    return HeldOutTriples(
        heads=tuple(heads),
        tails=tuple(place),
        tail=np.array([place[text] for text in tails], dtype=np.int64),
        relation=np.array(relations, dtype=np.int64),
        known=np.array(known, dtype=np.int64).reshape(-1, 2),
        names=tuple(source.name for source in sources),
    )


@dataclass(frozen=True, kw_only=True)
class _Pairs:
    """The distinct pairs of one relation as numbers of strings, sorted by head (in order of first appearance), then by appearance.

    heads, tails: (R,). codes: (R,) sorted, head · S + tail. contradictions: (H, 2) distinct (head, string), sorted by head, none of which
    is a pair.
    """

    name: str
    strings: pa.LargeStringArray
    heads: np.ndarray
    tails: np.ndarray
    codes: np.ndarray
    contradictions: np.ndarray

    def holds(self, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """Which pairs are in this relation."""
        code = heads * len(self.strings) + tails
        return np.isin(code, self.codes)

    def tails_of(self, head: int) -> list[int]:
        low, high = np.searchsorted(self.codes, [head * len(self.strings), (head + 1) * len(self.strings)])
        return [int(code) % len(self.strings) for code in self.codes[low:high]]

    def text(self, number: int) -> str:
        return str(self.strings[number].as_py())


def _pairs(source: RelationSource) -> _Pairs:
    tables = [_rows_that_count(source, table) for table in source.tables]
    second_column = source.columns[0] if source.construction == "same" else source.columns[1]
    first, second = _column(tables, source.columns[0]), _column(tables, second_column)
    labels = _labels(source, tables)
    kept = pc.and_(_filled(first), _filled(second))
    first, second, labels = first.filter(kept), second.filter(kept), labels[kept.to_numpy()]
    strings, (heads, tails) = numbered_texts([first, second])
    if source.construction == "captions":
        heads, tails = _pairs_of_groups(heads, tails)
        labels = np.zeros(len(heads), dtype=np.int64)
    is_pair = (labels == 0) & ((heads != tails) | (source.construction == "same"))
    heads_R, tails_R = _grouped(heads[is_pair], tails[is_pair], len(strings))
    if len(heads_R) == 0:
        remedy = "Check its source, split, columns and label."
        raise DataError(where=f"relation {source.name}", found=f"no pair in {len(first)} rows", expected="at least one", remedy=remedy)
    codes = np.sort(heads_R * len(strings) + tails_R)
    against = np.unique(np.stack([heads[labels == 1], tails[labels == 1]], axis=1), axis=0).reshape(-1, 2)
    against = against[~np.isin(against[:, 0] * len(strings) + against[:, 1], codes) & (against[:, 0] != against[:, 1])]
    return _Pairs(name=source.name, strings=strings, heads=heads_R, tails=tails_R, codes=codes, contradictions=against)


def _rows_that_count(source: RelationSource, table: pa.Table) -> pa.Table:
    if source.only is None:
        check_columns(f"relation {source.name}", table.column_names, source.columns)
        return table
    column, value = source.only
    check_columns(f"relation {source.name}", table.column_names, (*source.columns, column))
    return table.filter(pc.fill_null(pc.equal(table[column].cast(pa.large_string()), value), False))


def _column(tables: Sequence[pa.Table], name: str) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for table in tables for chunk in table[name].cast(pa.large_string()).chunks], pa.large_string())


def _filled(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False)


def _labels(source: RelationSource, tables: Sequence[pa.Table]) -> np.ndarray:
    """(rows,) 0 for a pair of the relation, 1 for a contradiction, −1 for neither."""
    if source.construction != "nli":
        return np.zeros(sum(table.num_rows for table in tables), dtype=np.int64)
    wanted = pa.array([ENTAILMENT, CONTRADICTION], pa.large_string())
    found = [pc.index_in(table[source.columns[2]].cast(pa.large_string()), value_set=wanted) for table in tables]
    return np.concatenate([pc.fill_null(part, -1).to_numpy().astype(np.int64) for part in found])


def _pairs_of_groups(groups: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every two texts of a group, the earlier one first; groups in order of first appearance."""
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    group, text = first[number][order], texts[order]
    largest = int(np.unique(group, return_counts=True)[1].max(initial=0))
    earlier = [np.flatnonzero(group[distance:] == group[:-distance]) for distance in range(1, largest)]
    left = np.concatenate([*earlier, np.zeros(0, dtype=np.int64)])
    right = np.concatenate([*(rows + distance for distance, rows in enumerate(earlier, start=1)), np.zeros(0, dtype=np.int64)])
    in_order = np.lexsort((right, left))
    return text[left[in_order]], text[right[in_order]]


def _grouped(heads: np.ndarray, tails: np.ndarray, num_strings: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs grouped by head; heads and pairs in order of first appearance."""
    _, first = np.unique(heads * num_strings + tails, return_index=True)  # below 2⁶³ for 3 · 10⁹ sentences
    kept = np.sort(first)
    heads, tails = heads[kept], tails[kept]
    _, first_of_head, number = np.unique(heads, return_index=True, return_inverse=True)
    order = np.argsort(first_of_head[number], kind="stable")
    return heads[order], tails[order]


def _rows_of_part(pairs: _Pairs, part: str, held_out: int, seed: int) -> np.ndarray:
    """Rows of a part, ascending: `held_out` for test, as many for dev, the rest for train."""
    num_rows = len(pairs.heads)
    if held_out and num_rows <= 2 * held_out:
        expected = f"more than {2 * held_out}, to hold out {held_out} twice"
        raise DataError(where=f"relation {pairs.name}", found=f"{num_rows} pairs", expected=expected, remedy="Hold out fewer pairs.")
    order = shuffled(num_rows, seed=seed, stream=f"held out {pairs.name}") if held_out else np.arange(num_rows)
    bounds = {"test": (0, held_out), "dev": (held_out, 2 * held_out), "train": (2 * held_out, num_rows)}[part]
    return np.sort(order[slice(*bounds)])


def _hard_negatives(pairs: _Pairs, kept: np.ndarray, seed: int) -> tuple[np.ndarray, int]:
    """A string for each kept row, and the number of those that contradict the row's own head."""
    heads = pairs.heads[kept]
    negatives = np.full(len(kept), -1, dtype=np.int64)
    pool = pairs.contradictions[:, 1] if len(pairs.contradictions) else pairs.tails[kept]
    low, high = (np.searchsorted(pairs.contradictions[:, 0], heads, side=side) for side in ("left", "right"))
    own = np.flatnonzero(high > low)
    words = random_words(len(kept), seed=seed, stream=f"contradictions {pairs.name}")[own]
    negatives[own] = pairs.contradictions[low[own] + (words % (high - low)[own].astype(np.uint64)).astype(np.int64), 1]
    rows = np.flatnonzero(negatives < 0)
    for draw in range(MAX_DRAWS):
        if len(rows) == 0:
            return negatives, len(own)
        words = random_words(len(rows), seed=seed, stream=f"negatives {pairs.name} {draw}")
        drawn = pool[(words % np.uint64(len(pool))).astype(np.int64)]
        is_right = (drawn != heads[rows]) & ~pairs.holds(heads[rows], drawn)
        negatives[rows[is_right]] = drawn[is_right]
        rows = rows[~is_right]
    if len(rows):
        found = f'no other tail for "{pairs.text(int(heads[rows[0]]))}" in {MAX_DRAWS} draws'
        remedy = "Use more rows of this relation, or omit it."
        raise DataError(where=f"relation {pairs.name}", found=found, expected="many more tails than a head has", remedy=remedy)
    return negatives, len(own)
