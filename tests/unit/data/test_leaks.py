"""Leaks: which test items stand in training, at which level, and the counts that are known of STS-B."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sentdist.data.leaks import LeakFinder, Leaks, TaskTexts
from sentdist.data.pairs import Pairs, read_pairs

TEST = [
    ("A man plays a guitar.", "Somebody makes music."),  # as written
    ("a dog runs in the park", "THE ANIMAL MOVES"),  # folded, other way round
    ("The quick brown fox jumps over the lazy dog.", "A fox leaps over a sleeping dog."),  # one letter apart
    ("It rains.", "It snows."),  # both there, in different rows
    ("Nobody knows this.", "Nobody knows that."),
    ("?", "!"),  # no words: only as written
]
TRAIN = [
    ("A man plays a guitar.", "Somebody makes music.", "A man sleeps."),
    ("The animal moves!", "A dog runs in the park.", "It rains"),
    ("The quick brown fox jumps over the lazy dogs.", "Far away.", "A fox leaps over a sleeping dog."),
    ("It snows.", "?", "!"),
]


def _task(name: str, pairs: list[tuple[str, str]]) -> TaskTexts:
    return TaskTexts(name=name, sentences=tuple(pairs), pairs=tuple((item, *pair) for item, pair in enumerate(pairs)))


def _look(rows: list[tuple[str, ...]], tasks: list[TaskTexts]) -> list[Leaks]:
    ids: dict[str, int] = {}
    table = np.array([[ids.setdefault(sentence, len(ids)) for sentence in row] for row in rows]).T
    sentences = list(ids)
    return LeakFinder(tasks).find([sentences[:4], sentences[4:]], table)


def test_every_level_is_found() -> None:
    (found,) = _look(TRAIN, [_task("t", TEST)])
    assert {leaked.item: leaked.level for leaked in found.items} == {0: "exact", 1: "normalised", 2: "near", 3: "sentence", 5: "exact"}
    assert found.num_items == 6 and found.count("exact") == 2 and found.count("exact", "normalised", "near") == 4
    near = next(leaked for leaked in found.items if leaked.level == "near")
    assert near.train_one == "The quick brown fox jumps over the lazy dogs." and near.other == "A fox leaps over a sleeping dog."


def test_sentences_without_pairs_are_no_pairs() -> None:
    alone = [(sentence,) for row in TRAIN for sentence in row]
    (found,) = _look(alone, [_task("t", TEST)])
    assert {leaked.level for leaked in found.items} == {"sentence"} and found.count("sentence") == 3  # 0, 1 and 3; "?" has no words to fold


def test_a_query_leaks_with_a_relevant_document_only() -> None:
    task = TaskTexts(
        name="faq", sentences=(("It rains.",), ("It snows.",)), pairs=((0, "It rains.", "the animal moves"), (1, "It snows.", "Far away."))
    )
    (found,) = _look(TRAIN, [task])
    assert {leaked.item: leaked.level for leaked in found.items} == {0: "normalised", 1: "sentence"}


def test_near_is_a_threshold() -> None:
    ids = np.array([[0], [1]])
    words = "one two three four five six seven eight nine ten"
    for ending, expected in ((" eleven", "near"), (" eleven twelve thirteen fourteen fifteen", None)):
        (found,) = LeakFinder([_task("t", [(words, "the very same text")])]).find([[words + ending, "the very same text"]], ids)
        assert ({leaked.level for leaked in found.items} or {None}) == {expected}


def test_an_empty_corpus_holds_nothing() -> None:
    (found,) = LeakFinder([_task("t", TEST)]).find([], np.empty((2, 0), dtype=np.int64))
    assert found.items == ()


def _pairs(pairs: Pairs) -> list[tuple[str, str]]:
    return list(zip(pairs.sentence1, pairs.sentence2, strict=True))


@pytest.mark.data
def test_sts_b_train_holds_what_is_known_of_it(data_root: Path) -> None:
    years = [f"sts{year}" for year in (12, 13, 14, 15, 16)]
    tasks = [_task(year, _pairs(read_pairs(f"sts/{year}", split="test", data_root=data_root))) for year in years]
    found = _look(list(_pairs(read_pairs("sts/stsb", split="train", data_root=data_root))), tasks)
    assert [leaks.count("exact") for leaks in found] == [999, 597, 1860, 1102, 197]
    assert sum(leaks.count("exact") for leaks in found) == 4755 and sum(leaks.num_items for leaks in found) == 12544
    assert sum(leaks.count("exact", "normalised") for leaks in found) == 4760
