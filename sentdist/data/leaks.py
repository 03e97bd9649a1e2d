"""Find items of test sets in training corpora (pairs and sentences: exact, folded or near), and group items by common texts."""

from __future__ import annotations

import html
import unicodedata
import zlib
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from datasketch import MinHash


def fold_text(sentence: str) -> str:
    """Return the words of a sentence without case, punctuation and spacing: "A man's here." and "a man ' s here" give "a man s here"."""
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded).split())


def pairs_seen(test: Iterable[tuple[str, str]], train: Iterable[tuple[str, str]]) -> np.ndarray:
    """Return (P,) bool: whether each test pair, folded and in either order, is among the training pairs.

    STS-B train against STS12–16 test: 4755 of 12544 pairs as written and in order, 4759 in either order, 4760 after folding too.
    """

    def key(first: str, second: str) -> tuple[str, str]:
        first, second = fold_text(first), fold_text(second)
        return (second, first) if second < first else (first, second)

    seen = {key(*pair) for pair in train}
    return np.fromiter((key(*pair) in seen for pair in test), dtype=bool)


SHINGLE = 4  # characters
NUM_BANDS, ROWS_PER_BAND = 16, 5  # two texts of similarity 0.8 share a band with probability 0.998, of 0.5 with 0.4
GRAM = 5  # words of the shortest text that counts as inside another
CHANGED = range(7, 41)  # words of a text of which one may differ: shorter texts change their meaning, longer ones remain similar
# Characters that look like Latin ones (Unicode's confusables: Cyrillic, Greek, Armenian, phonetic), after folding case.
LOOKALIKES = str.maketrans("асеіјорѕхуӏԁԛԝһкмтвнгεορτυικναѵѡγσոսօցհզյɡɑıᴄᴏᴠᴡᴢꜱ", "aceijopsxyldqwhkmtbhreoptuikvavwyonuoghqjgaicovwzs")
# Invisible characters that are no format characters (Cf): Unicode's default ignorable ones, such as variation selectors.
INVISIBLE = dict.fromkeys(
    (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
)


def fold_disguised(text: str) -> str:
    """Return the words of a text without case, punctuation, spacing and disguise: HTML entities (also &amp;nbsp;), invisible characters,
    lookalikes of Latin characters."""
    plain = html.unescape(html.unescape(text)) if "&" in text else text
    if not plain.isascii():
        shown = unicodedata.normalize("NFKC", plain).translate(INVISIBLE)
        plain = "".join(letter for letter in shown if unicodedata.category(letter) != "Cf")
    folded = plain.casefold()
    if not folded.isascii():
        folded = folded.translate(LOOKALIKES)
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded).split())


class KnownTexts:
    """Index of folded texts, to which other texts are compared block by block.

    Candidates come from MinHash (Broder 1997) and are verified. Memory depends on the known texts only: 80 numbers each, and one for each
    of their words and characters.

    Args:
        folded: text -> number.
        near: least Jaccard similarity of the sets of 4-character shingles of near-duplicates.
    """

    def __init__(self, folded: dict[str, int], near: float) -> None:
        from datasketch import MinHashLSH

        self._near = near
        self._texts = {number: text for text, number in folded.items()}
        self._numbers = list(folded.values())
        self._sets = _KnownSets()
        self._index = MinHashLSH(num_perm=NUM_BANDS * ROWS_PER_BAND, params=(NUM_BANDS, ROWS_PER_BAND))
        for place, (own, sketch) in enumerate(_sketched(folded)):
            self._sets.add(own)
            self._index.insert(place, sketch)
        self._changed: defaultdict[int, list[int]] = defaultdict(list)
        self._begins: defaultdict[int, list[int]] = defaultdict(list)
        keys, owners = [], []
        for text, number in folded.items():
            words = text.split()
            for key in _less_one_word(words):
                self._changed[key].append(number)
            grams = _grams(words)
            if grams:
                self._begins[grams[0]].append(number)
            keys += grams
            owners += [number] * len(grams)
        order = np.argsort(np.array(keys, dtype=np.int64), kind="stable")
        self._keys, self._owners = np.array(keys, dtype=np.int64)[order], np.array(owners, dtype=np.int64)[order]

    def like(self, sentences: Sequence[str]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield for each folded sentence the numbers of the known texts that it resembles (or equals), and of those inside it."""
        for sentence, (own, sketch) in zip(sentences, _sketched(sentences), strict=True):
            found = {self._numbers[place] for place in self._sets.alike(own, self._index.query(sketch), near=self._near)}
            words = sentence.split()
            found.update(number for key in _less_one_word(words) for number in self._changed.get(key, ()))
            inside = self._inside(sentence, words)
            yield tuple(sorted({*found, *inside, *self._around(sentence, words)})), inside

    def are_apart(self, one: int, other: int, sentence: str) -> bool:
        """Whether two known texts occur in a folded sentence without overlap."""
        padded = f" {sentence} "
        for first, second in ((self._texts[one], self._texts[other]), (self._texts[other], self._texts[one])):
            place = padded.find(f" {first} ")
            if place >= 0 and f" {second} " in padded[place + len(first) + 1 :]:
                return True
        return False

    def _inside(self, sentence: str, words: Sequence[str]) -> tuple[int, ...]:
        candidates = {number for gram in _grams(words) for number in self._begins.get(gram, ())}
        return tuple(sorted(number for number in candidates if f" {self._texts[number]} " in f" {sentence} "))

    def _around(self, sentence: str, words: Sequence[str]) -> Iterator[int]:
        """Known texts that contain the sentence as at least half of their words."""
        grams = _grams(words[:GRAM])
        if not grams:
            return
        first, last = np.searchsorted(self._keys, [grams[0], grams[0] + 1])
        for number in np.unique(self._owners[first:last]).tolist():
            text = self._texts[number]
            if f" {sentence} " in f" {text} " and 2 * len(words) >= len(text.split()):
                yield number


def _less_one_word(words: Sequence[str]) -> Iterator[int]:
    """Keys that two texts share if one word is replaced, missing or moved: of the whole text, and of it without each word."""
    if len(words) in CHANGED:
        yield hash(" ".join(words)) >> 1
        for place in range(len(words)):
            yield hash(" ".join((*words[:place], *words[place + 1 :]))) >> 1


def _grams(words: Sequence[str]) -> list[int]:
    return [hash(" ".join(words[first:last])) >> 1 for first, last in zip(range(len(words)), range(GRAM, len(words) + 1), strict=False)]


def _shingles(folded: str) -> frozenset[bytes]:
    padded = f" {folded} "
    return (
        frozenset(padded[start : start + SHINGLE].encode() for start in range(max(1, len(padded) - SHINGLE + 1))) if folded else frozenset()
    )


def _sketched(texts: Iterable[str]) -> Iterator[tuple[frozenset[bytes], MinHash]]:
    """The set of each folded text with its sketch, one object for all: creating it takes longer than filling it."""
    # Its default, SHA-1, takes twice as long for sketches of the same quality.
    from datasketch import MinHash

    sketch = MinHash(num_perm=NUM_BANDS * ROWS_PER_BAND, seed=1, hashfunc=zlib.crc32)
    for text in texts:
        own = _shingles(text)
        sketch.clear()
        sketch.update_batch(own)
        yield own, sketch


class _KnownSets:
    """Sets of numbered shingles, compared to another set in bulk: rows from one template have hundreds of candidates."""

    def __init__(self) -> None:
        self._number_of: dict[bytes, int] = {}
        self._members = array("i")  # concatenated sets
        self._ends = array("q", [0])

    def add(self, one: frozenset[bytes]) -> None:
        self._members.extend(self._number_of.setdefault(shingle, len(self._number_of)) for shingle in one)
        self._ends.append(len(self._members))

    def alike(self, own: frozenset[bytes], places: Sequence[int], *, near: float) -> Iterator[int]:
        """Yield those of the sets (numbers in order of `add`) whose Jaccard similarity is at least `near`, never an empty one."""
        if not places:
            return
        members, ends, chosen_K = np.frombuffer(self._members, np.int32), np.frombuffer(self._ends, np.int64), np.array(places)
        is_own = np.zeros(len(self._number_of), dtype=bool)
        is_own[[self._number_of[shingle] for shingle in own if shingle in self._number_of]] = True
        first_K = ends[chosen_K]
        size_K = ends[chosen_K + 1] - first_K
        until_K = np.cumsum(size_K)
        each = np.arange(until_K[-1]) + np.repeat(first_K - until_K + size_K, size_K)
        counted = np.concatenate([[0], np.cumsum(is_own[members[each]])])
        shared_K = counted[until_K] - counted[until_K - size_K]
        similarity_K = shared_K / np.maximum(1, len(own) + size_K - shared_K)
        yield from chosen_K[(similarity_K >= near) & (shared_K > 0)].tolist()


@dataclass(frozen=True, kw_only=True)
class TaskTexts:
    """The texts of the I items of a task.

    Args:
        sentences: texts of each item: both of a pair, one of a query or a labelled text.
        pairs: (item, one, other) of the texts whose relation is the answer: a pair, or a query with each relevant document; () for labels.
        left_out: note on what the task does not score of its source.
        given_groups: (I,) group of each item in the source, "" for none; () without groups.
        known_groups: (I,) groups within a larger set of which the items are a part, such as folds; None: to be computed.
    """

    name: str
    sentences: tuple[tuple[str, ...], ...]
    pairs: tuple[tuple[int, str, str], ...]
    left_out: str = ""
    given_groups: tuple[str, ...] = ()
    known_groups: NDArray[np.int64] | None = None

    @property
    def num_items(self) -> int:
        return len(self.sentences)

    def groups(self) -> NDArray[np.int64]:
        """Return (I,) the group of each item.

        Items are linked, directly or through others, by common texts (their own or relevant documents) or a group of the source: an encoder
        that misreads a text errs on all of them. Parts of a set share group numbers.
        """
        if self.known_groups is not None:
            return self.known_groups
        given = ((item, (group,)) for item, group in enumerate(self.given_groups) if group)  # no text is a tuple
        return linked_groups(self.num_items, [*given, *self.texts_by_item()])

    @classmethod
    def of_pairs(cls, name: str, pairs: Iterable[tuple[str, str]], *, left_out: str = "", given_groups: tuple[str, ...] = ()) -> Self:
        """Return a task whose items are pairs of texts."""
        both = tuple(pairs)
        return cls(
            name=name,
            sentences=both,
            pairs=tuple((item, one, other) for item, (one, other) in enumerate(both)),
            left_out=left_out,
            given_groups=given_groups,
        )

    def texts_by_item(self) -> Iterator[tuple[int, str]]:
        """Yield each item with each of its texts, including those of its answer."""
        yield from ((item, text) for item, texts in enumerate(self.sentences) for text in texts)
        yield from ((item, text) for item, one, other in self.pairs for text in (one, other))


def shared_groups(tasks: Sequence[tuple[TaskTexts, NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    """Return for each task (I,) a number shared by groups of several tasks that common texts link, directly or through others; -1: none."""
    number_of: dict[tuple[int, int], int] = {}
    links, tasks_of = [], defaultdict[str, set[int]](set)
    for task, (texts, groups) in enumerate(tasks):
        for item, text in texts.texts_by_item():
            links.append((number_of.setdefault((task, int(groups[item])), len(number_of)), text))
            tasks_of[text].add(task)
    shared = linked_groups(len(number_of), [link for link in links if len(tasks_of[link[1]]) > 1])
    met = {number for number, text in links if len(tasks_of[text]) > 1}
    of_group = {key: int(shared[number]) if number in met else -1 for key, number in number_of.items()}
    return [np.array([of_group[task, group] for group in groups.tolist()], dtype=np.int64) for task, (_, groups) in enumerate(tasks)]


def linked_groups(num_items: int, links: Sequence[tuple[int, Hashable]]) -> NDArray[np.int64]:
    """Return (num_items,) the number of each item's group: items are linked, directly or through others, by what they share."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    place: dict[Hashable, int] = {}
    items = [item for item, _ in links]
    others = [num_items + place.setdefault(other, len(place)) for _, other in links]
    size = max(1, num_items + len(place))
    _, group = connected_components(coo_array((np.ones(len(items)), (items, others)), shape=(size, size)), directed=False)
    return np.asarray(group[:num_items], dtype=np.int64)


Level = Literal["exact", "normalised", "near", "sentence", "one"]


@dataclass(frozen=True, kw_only=True)
class LeakedItem:
    """A test item that occurs in training, at its strictest level.

    exact: one training row has the pair as written, in this order.
    normalised ("folded" in tables): the same except for case, punctuation, spacing, order, entities, invisible and lookalike characters.
    near: one row resembles both texts (near-duplicates, one word changed, one inside the other), or has both in one sentence.
    sentence: no such row, but all texts of the item occur in training after folding; a single text may also be near.
    one: only one text of the pair occurs, with other partners: for a query, a document that is relevant to another query in training.
    """

    item: int
    level: Level
    one: str
    other: str
    train_one: str
    train_other: str


@dataclass(frozen=True, kw_only=True)
class Leaks:
    """The leaked items of one task."""

    task: str
    num_items: int
    items: tuple[LeakedItem, ...]

    def count(self, *levels: Level) -> int:
        """Return the number of items leaked at one of these levels."""
        return sum(one.level in levels for one in self.items)


class LeakFinder:
    """Looks for the items of tasks in training corpora, read block by block; only sentences that resemble a test text are kept.

    Args:
        near: as in `KnownTexts`.
    """

    def __init__(self, tasks: Sequence[TaskTexts], *, near: float = 0.8) -> None:
        self._tasks = tasks
        self._numbers: dict[str, int] = {}  # of folded texts
        self._fold: dict[str, int] = {}  # text as written -> number of its folded text, -1 for one without a word
        for _, text in (found for task in tasks for found in task.texts_by_item()):
            if text not in self._fold:
                folded = fold_disguised(text)
                self._fold[text] = self._numbers.setdefault(folded, len(self._numbers)) if folded else -1
        self._near = KnownTexts(self._numbers, near)
        self._pairs = {_in_order(self._fold[one], self._fold[other]) for task in tasks for _, one, other in task.pairs}

    def find(self, blocks: Iterable[Sequence[str]], ids_CR: np.ndarray) -> list[Leaks]:
        """Return the leaks of each task in a corpus: sentences in the order of their ids, and (C, R) sentence ids of its rows."""
        num_sentences = int(ids_CR.max(initial=-1)) + 1
        found = _Found()
        start = 0
        for block in blocks:
            self._look_at(block[: max(0, num_sentences - start)], start, found)  # others are in no row
            start += len(block)
        is_seen = np.zeros(num_sentences, dtype=bool)
        is_seen[list(found.seen)] = True
        for first_R, second_R in combinations(ids_CR, 2):
            for row in np.flatnonzero(is_seen[first_R] & is_seen[second_R]).tolist():
                found.add_row(int(first_R[row]), int(second_R[row]))
        return [self._leaks_of(task, found) for task in self._tasks]

    def _look_at(self, block: Sequence[str], start: int, found: _Found) -> None:
        folded = [fold_disguised(sentence) for sentence in block]
        for place, (sentence, text, (alike, inside)) in enumerate(zip(block, folded, self._near.like(folded), strict=True), start=start):
            if alike or sentence in self._fold:
                found.seen[place] = _Seen(text=sentence, number=self._numbers.get(text, -1), alike=alike)
            for both in combinations(inside, 2):
                if both in self._pairs and self._near.are_apart(*both, text):
                    found.near.setdefault(both, (place, place))

    def _leaks_of(self, task: TaskTexts, found: _Found) -> Leaks:
        leaked: dict[int, LeakedItem] = {}
        strictness: tuple[Level, ...] = ("exact", "normalised", "near")
        texts_of: defaultdict[int, list[str]] = defaultdict(list)
        for item, one, other in task.pairs:
            texts_of[item] += [one, other]
            folded = _in_order(self._fold[one], self._fold[other])
            hits = found.exact.get((one, other)), found.normalised.get(folded), found.near.get(folded)
            level = next((place for place, ids in enumerate(hits) if ids is not None), None)
            if level is None or (item in leaked and strictness.index(leaked[item].level) <= level):
                continue
            shown_one, shown_other = (found.seen[place].text for place in hits[level] or ())
            leaked[item] = LeakedItem(
                item=item, level=strictness[level], one=one, other=other, train_one=shown_one, train_other=shown_other
            )  # fmt: skip
        in_training = {seen.number for seen in found.seen.values()} - {-1}
        # a single text may also be near; of the sentences that it resembles the first is shown
        like = {} if task.pairs else {number: seen.text for seen in reversed(found.seen.values()) for number in seen.alike}
        for item, texts in enumerate(task.sentences):
            if item not in leaked:
                is_seen = [self._fold[text] in in_training or self._fold[text] in like for text in (*texts, *texts_of[item])]
                if any(is_seen):
                    alone: Level = "sentence" if all(is_seen[: len(texts)]) else "one"
                    one, other = (*(texts_of[item] or texts), "")[:2]
                    shown = like.get(self._fold[one], "")
                    leaked[item] = LeakedItem(item=item, level=alone, one=one, other=other, train_one=shown, train_other="")
        return Leaks(task=task.name, num_items=task.num_items, items=tuple(leaked[item] for item in sorted(leaked)))


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A training sentence that equals or resembles test texts: the number of its folded text, -1 for none, and of those it resembles."""

    text: str
    number: int
    alike: tuple[int, ...]


@dataclass(kw_only=True)
class _Found:
    """Seen training sentences by id, and pairs of test texts in one training row, by level, with its sentence ids."""

    seen: dict[int, _Seen] = field(default_factory=dict)
    exact: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    normalised: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    near: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def add_row(self, first: int, second: int) -> None:
        ids, one, other = (first, second), self.seen[first], self.seen[second]
        self.exact.setdefault((one.text, other.text), ids)
        if min(one.number, other.number) >= 0:
            self.normalised.setdefault(_in_order(one.number, other.number), ids)
        for pair in product(one.alike, other.alike):
            if first != second or pair[0] == pair[1]:  # one sentence twice in a row resembles both of two similar texts, but pairs none
                self.near.setdefault(_in_order(*pair), ids)


def _in_order(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one <= other else (other, one)
