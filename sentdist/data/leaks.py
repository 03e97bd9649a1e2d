"""Which items of test sets a training corpus holds: whole pairs and sentences; as written, folded, or nearly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Literal

import numpy as np

from sentdist.data.near_duplicates import KnownTexts, fold_disguised
from sentdist.data.task_texts import TaskTexts

Level = Literal["exact", "normalised", "near", "sentence", "one"]


@dataclass(frozen=True, kw_only=True)
class LeakedItem:
    """One test item of which training holds something, at its strictest level.

    exact: the pair stands in one training row, as written and in this order.
    normalised (tables call it folded): but for case, punctuation, spacing, order, entities, invisible and look-alike characters.
    near: one row resembles both texts (near-duplicates, one word changed, one inside the other), or holds both in one of its sentences.
    sentence: no such row, but all texts of the item occur in training, folded; of an item that is one text alone also nearly.
    one: one of a pair's texts does, beside other partners: of a query a relevant document, which is another query's in training.
    """

    item: int
    level: Level
    one: str
    other: str
    train_one: str
    train_other: str


@dataclass(frozen=True, kw_only=True)
class Leaks:
    """What training holds of one task."""

    task: str
    num_items: int
    items: tuple[LeakedItem, ...]

    def count(self, *levels: Level) -> int:
        """How many items leaked at one of these levels."""
        return sum(one.level in levels for one in self.items)


class LeakFinder:
    """Looks for the items of some tasks in one training corpus after another.

    near: as `KnownTexts` has it. Training sentences are read block by block; only those that resemble a test text are kept.
    """

    def __init__(self, tasks: Sequence[TaskTexts], *, near: float = 0.8) -> None:
        self._tasks = tasks
        self._known = _Texts.of([text for task in tasks for text in _texts(task)])
        self._near = KnownTexts(self._known.folded, near)
        self._pairs = {_in_order(self._known.fold(one), self._known.fold(other)) for task in tasks for _, one, other in task.pairs}

    def find(self, blocks: Iterable[Sequence[str]], ids_CR: np.ndarray) -> list[Leaks]:
        """What a corpus holds of each task. blocks: its sentences in the order of their ids; ids_CR: (C, R) ids of its rows."""
        matches = _match(blocks, self._known, self._near, self._pairs, num_sentences=int(ids_CR.max(initial=-1)) + 1)
        rows = _RowMatches(near=dict(matches.glued))
        for first, second in combinations(range(len(ids_CR)), 2):
            rows.add(ids_CR[first], ids_CR[second], matches)
        return [_leaks_of(task, self._known, rows, matches) for task in self._tasks]


@dataclass(kw_only=True)
class _Texts:
    """All texts of the tasks: ids as written, and ids after folding (texts without a word have none)."""

    written: dict[str, int]
    folded: dict[str, int]
    fold_of: list[int]  # id as written -> id after folding, -1 for none

    @staticmethod
    def of(texts: Iterable[str]) -> _Texts:
        known = _Texts(written={}, folded={}, fold_of=[])
        for text in texts:
            if text not in known.written:
                known.written[text] = len(known.written)
                folded = fold_disguised(text)
                known.fold_of.append(known.folded.setdefault(folded, len(known.folded)) if folded else -1)
        return known

    def fold(self, text: str) -> int:
        return self.fold_of[self.written[text]]


@dataclass(kw_only=True)
class _Matches:
    """What training sentences are in terms of test texts. is_known: (S,) is it, or is it near, a test text? written, folded:
    (S,) ids or -1.
    near: sentence id -> folded ids, texts: sentence id -> the sentence; of those that are known.
    glued: pairs of folded ids that stand in one sentence, with its id twice."""

    is_known: np.ndarray
    written: np.ndarray
    folded: np.ndarray
    near: dict[int, tuple[int, ...]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    glued: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)


class _RowMatches:
    """The pairs of test texts that stand in one training row; each level with the row's sentence ids."""

    def __init__(self, *, near: dict[tuple[int, int], tuple[int, int]]) -> None:
        self.exact: dict[tuple[int, int], tuple[int, int]] = {}
        self.normalised: dict[tuple[int, int], tuple[int, int]] = {}
        self.near = near

    def add(self, first_R: np.ndarray, second_R: np.ndarray, matches: _Matches) -> None:
        """Take in the rows of two columns."""
        for row in np.flatnonzero(matches.is_known[first_R] & matches.is_known[second_R]).tolist():
            ids = int(first_R[row]), int(second_R[row])
            written = int(matches.written[ids[0]]), int(matches.written[ids[1]])
            folded = int(matches.folded[ids[0]]), int(matches.folded[ids[1]])
            if min(written) >= 0:
                self.exact.setdefault(written, ids)
            if min(folded) >= 0:
                self.normalised.setdefault(_in_order(*folded), ids)
            for one, other in product(matches.near[ids[0]], matches.near[ids[1]]):
                if ids[0] != ids[1] or one == other:  # a sentence beside itself resembles each of two that are alike, and pairs none
                    self.near.setdefault(_in_order(one, other), ids)


def _match(
    blocks: Iterable[Sequence[str]], known: _Texts, near: KnownTexts, pairs: set[tuple[int, int]], *, num_sentences: int
) -> _Matches:
    matches = _Matches(is_known=np.zeros(num_sentences, dtype=bool), written=np.full(num_sentences, -1), folded=np.full(num_sentences, -1))
    start = 0
    for block in blocks:
        folded = [fold_disguised(sentence) for sentence in block]
        for place, (sentence, text, (alike, inside)) in enumerate(zip(block, folded, near.like(folded), strict=True), start=start):
            if place >= num_sentences:  # sentences that stand in no row
                break
            matches.written[place] = known.written.get(sentence, -1)
            matches.folded[place] = known.folded.get(text, -1)
            if alike or matches.written[place] >= 0:
                matches.is_known[place] = True
                matches.near[place] = alike
                matches.texts[place] = sentence
            for both in combinations(inside, 2):
                if both in pairs and near.are_apart(*both, text):
                    matches.glued.setdefault(both, (place, place))
        start += len(block)
    return matches


def _leaks_of(task: TaskTexts, known: _Texts, rows: _RowMatches, matches: _Matches) -> Leaks:
    leaked: dict[int, LeakedItem] = {}
    strictness: tuple[Level, ...] = ("exact", "normalised", "near")
    for item, one, other in task.pairs:
        folded = _in_order(known.fold(one), known.fold(other))
        ids = rows.exact.get((known.written[one], known.written[other])), rows.normalised.get(folded), rows.near.get(folded)
        level = next((place for place, hit in enumerate(ids) if hit is not None), None)
        if level is None or (item in leaked and strictness.index(leaked[item].level) <= level):
            continue
        hit = ids[level]
        assert hit is not None
        leaked[item] = LeakedItem(
            item=item, level=strictness[level], one=one, other=other, train_one=matches.texts[hit[0]], train_other=matches.texts[hit[1]]
        )
    in_training = set(np.unique(matches.folded).tolist()) - {-1}
    nearly = {} if task.pairs else {number: place for place in reversed(matches.near) for number in matches.near[place]}
    of_pairs: dict[int, list[str]] = {}
    for item, one, other in task.pairs:
        of_pairs.setdefault(item, []).extend((one, other))
    for item, texts in enumerate(task.sentences):
        if item in leaked:
            continue
        seen = [known.fold(text) in in_training or known.fold(text) in nearly for text in (*texts, *of_pairs.get(item, ()))]
        alone = _level_alone(seen, num_own=len(texts))
        if alone is not None:
            one, other = (*of_pairs.get(item, texts), "")[:2]
            like = matches.texts[nearly[known.fold(one)]] if known.fold(one) in nearly else ""
            leaked[item] = LeakedItem(item=item, level=alone, one=one, other=other, train_one=like, train_other="")
    return Leaks(task=task.name, num_items=task.num_items, items=tuple(leaked[item] for item in sorted(leaked)))


def _level_alone(is_seen: Sequence[bool], *, num_own: int) -> Level | None:
    """What is said of texts that stand in no row together: the first `num_own` are the item's own, the others its pair's."""
    if all(is_seen[:num_own]):
        return "sentence"
    return "one" if any(is_seen) else None


def _texts(task: TaskTexts) -> Iterator[str]:
    for texts in task.sentences:
        yield from texts
    for _, one, other in task.pairs:
        yield from (one, other)


def _in_order(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one <= other else (other, one)
