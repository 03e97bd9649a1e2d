"""Which of some known texts another text resembles: nearly the same letters, one word changed, one inside the other."""

from __future__ import annotations

import html
import unicodedata
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from datasketch import MinHash, MinHashLSH

SHINGLE = 4  # characters
NUM_BANDS, ROWS_PER_BAND = 16, 5  # two texts at similarity 0.8 meet in some band with probability 0.998, at 0.5 with 0.4
GRAM = 5  # words that two texts share where one is inside the other; shorter texts are inside too many
CHANGED = range(7, 41)  # words of a text of which one may be another: shorter ones then say something else, of longer ones the letters tell
# Letters that look like Latin ones (Unicode's confusables: Cyrillic, Greek, Armenian, phonetic), after folding case.
LOOKALIKES = str.maketrans("асеіјорѕхуӏԁԛԝһкмтвнгεορτυικναѵѡγσոսօցհզյɡɑıᴄᴏᴠᴡᴢꜱ", "aceijopsxyldqwhkmtbhreoptuikvavwyonuoghqjgaicovwzs")
# What is shown as nothing and is no format character (Cf): Unicode's default ignorable ones, such as variation selectors.
INVISIBLE = dict.fromkeys(
    (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
)


def fold_disguised(text: str) -> str:
    """The words of a text without case, punctuation and spacing, and without what hides it: entities (&amp;nbsp; too), invisible
    characters, letters of other scripts that look alike."""
    plain = html.unescape(html.unescape(text)) if "&" in text else text
    if not plain.isascii():
        shown = unicodedata.normalize("NFKC", plain).translate(INVISIBLE)
        plain = "".join(letter for letter in shown if unicodedata.category(letter) != "Cf")
    folded = plain.casefold()
    if not folded.isascii():
        folded = folded.translate(LOOKALIKES)
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded).split())


class KnownTexts:
    """Folded texts with a number each, to which others are compared one block after another.

    near: Jaccard similarity of the sets of four characters from which two texts are near-duplicates; candidates come from MinHash
    (Broder 1997) and are verified. Memory grows with the known texts alone: 80 numbers each, one for each of their words and characters.
    """

    def __init__(self, folded: dict[str, int], near: float) -> None:
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
        """For each folded sentence the numbers of the known texts that it resembles, itself included, and of those inside it."""
        for sentence, (own, sketch) in zip(sentences, _sketched(sentences), strict=True):
            found = {self._numbers[place] for place in self._sets.alike(own, self._index.query(sketch), near=self._near)}
            words = sentence.split()
            found.update(number for key in _less_one_word(words) for number in self._changed.get(key, ()))
            inside = self._inside(sentence, words)
            yield tuple(sorted({*found, *inside, *self._around(sentence, words)})), inside

    def are_apart(self, one: int, other: int, sentence: str) -> bool:
        """Whether two known texts stand in a folded sentence side by side: behind where the one stands first stands the other."""
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
        """Known texts of which the sentence is half at least."""
        grams = _grams(words[:GRAM])
        if not grams:
            return
        first, last = np.searchsorted(self._keys, [grams[0], grams[0] + 1])
        for number in np.unique(self._owners[first:last]).tolist():
            text = self._texts[number]
            if f" {sentence} " in f" {text} " and 2 * len(words) >= len(text.split()):
                yield number


def _less_one_word(words: Sequence[str]) -> Iterator[int]:
    """Keys that two texts share where one word of them is another, missing, or moved: of the whole, and of what is left without each."""
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
    """The set of each folded text with its sketch, which is one for all: to make and copy one takes longer than to fill it."""
    # Its default, SHA-1, takes twice as long for the same sketches' worth: nobody attacks a set of four letters.
    sketch = MinHash(num_perm=NUM_BANDS * ROWS_PER_BAND, seed=1, hashfunc=zlib.crc32)
    for text in texts:
        own = _shingles(text)
        sketch.clear()
        sketch.update_batch(own)
        yield own, sketch


class _KnownSets:
    """Sets of shingles, of each shingle a number. What they share with another set is counted for many of them at once: where rows are made
    by one template, a text has hundreds of candidates."""

    def __init__(self) -> None:
        self._number_of: dict[bytes, int] = {}
        self._members = array("i")  # of one set after another
        self._ends = array("q", [0])

    def add(self, one: frozenset[bytes]) -> None:
        self._members.extend(self._number_of.setdefault(shingle, len(self._number_of)) for shingle in one)
        self._ends.append(len(self._members))

    def alike(self, own: frozenset[bytes], places: Sequence[int], *, near: float) -> Iterator[int]:
        """Those of the sets that were added as these whose Jaccard similarity to a set is so large; never one without a shingle."""
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
