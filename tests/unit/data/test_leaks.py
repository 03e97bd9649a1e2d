"""Leaks: which test items stand in training, at which level, and the counts that are known of STS-B."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sentdist.data.leaks import LeakFinder, Leaks, TaskTexts
from sentdist.data.sts_pairs import Pairs, read_pairs

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
    assert near.one == "The quick brown fox jumps over the lazy dog." and near.train_other == near.other
    assert near.train_one == "The quick brown fox jumps over the lazy dogs." and near.other == "A fox leaps over a sleeping dog."


def test_a_query_leaks_with_a_relevant_document_only() -> None:
    task = TaskTexts(
        name="faq",
        sentences=(("It rains.",), ("It snows.",), ("A man sleeps!",)),
        pairs=((0, "It rains.", "the animal moves"), (1, "It snows.", "Far away."), (2, "A man sleeps!", "Unheard of.")),
    )
    (found,) = _look(TRAIN, [task])
    assert {leaked.item: leaked.level for leaked in found.items} == {0: "normalised", 1: "sentence", 2: "sentence"}


def test_near_is_a_threshold() -> None:
    ids = np.array([[0], [1]])
    words = "one two three four five six seven eight nine ten"
    for ending, expected in ((" eleven", "near"), (" eleven twelve thirteen fourteen fifteen", "one")):
        (found,) = LeakFinder([_task("t", [(f"{words} last", "the very same text")])]).find([[words + ending, "the very same text"]], ids)
        assert {leaked.level for leaked in found.items} == {expected}


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


FLIGHT = "The airline cancelled all flights between both islands after the storm on Monday"
REPAIR = "Engineers repaired the damaged bridge within three weeks of the heavy flood last year"
FORMS: dict[str, tuple[str, ...]] = {
    "inside longer texts": (f"Local news. {FLIGHT}, officials said. More follows.", f"We read today: {REPAIR}. So be it."),
    "of which a training text is most": (" ".join(FLIGHT.split()[:-3]), " ".join(REPAIR.split()[2:])),
    "glued into one text": (f"{FLIGHT}. {REPAIR}.", "Something else entirely stands here for once"),
    "one word changed": (FLIGHT.replace("storm", "blizzard"), REPAIR.replace("flood", "earthquake")),
    "one word left out": (FLIGHT.replace(" all", ""), REPAIR.replace(" heavy", "")),
}
DISGUISES: dict[str, tuple[str, str]] = {
    "entities": (FLIGHT.replace(" ", "&nbsp;", 3), REPAIR.replace(" ", "&amp;#32;", 2)),
    "zero widths": (FLIGHT.replace("storm", "st\u200borm"), REPAIR.replace("bridge", "bri\u200b\u2060dge")),
    "homoglyphs": (FLIGHT.replace("a", "\u0430").replace("o", "\u043e"), REPAIR.replace("e", "\u0435").replace("p", "\u0440")),
    "Greek capitals": (FLIGHT.upper().replace("A", "\u0391").replace("T", "\u03a4"), REPAIR),
    "full width": ("".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in FLIGHT), REPAIR),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_pair_and_a_text_alone_are_found_nearly(form: str) -> None:
    one, other = FORMS[form]
    alone = TaskTexts(name="labels", sentences=((FLIGHT,), ("Who sleeps?",), (REPAIR,)), pairs=())
    for train in ((one, other), (other, one)):
        pair, turned, texts = _look(
            [("Nothing of the sort", "is written in here"), train], [_task("t", [(FLIGHT, REPAIR)]), _task("u", [(REPAIR, FLIGHT)]), alone]
        )
        assert [leaked.level for leaked in (*pair.items, *turned.items)] == ["near", "near"], form
        assert {leaked.item: leaked.level for leaked in texts.items} == {0: "sentence", 2: "sentence"}
        assert {leaked.train_one for leaked in texts.items} <= {one, other}


def test_each_task_has_leaks_of_its_own() -> None:
    tasks = [_task("rain", TEST), _task("glued", [(FLIGHT, REPAIR), ("It rains.", "Far away.")]), _task("none", [("Who asks?", "Nobody.")])]
    tasks.append(TaskTexts(name="labels", sentences=(("A man sleeps!",), ("Who sleeps?",)), pairs=()))
    rows = [*TRAIN, ("Far away.", "Nobody", f"{FLIGHT}. {REPAIR}.")]
    together = _look(rows, tasks)
    assert together == [_look(rows, [task])[0] for task in tasks]
    assert [leaks.task for leaks in together] == ["rain", "glued", "none", "labels"] and together[1].items[0].level == "near"


def test_an_item_of_several_pairs_has_its_strictest_level_and_its_texts_in_order() -> None:
    task = TaskTexts(name="faq", sentences=((FLIGHT,),), pairs=((0, FLIGHT, REPAIR), (0, FLIGHT, "Far away."), (0, FLIGHT, "It rains.")))
    near = (FLIGHT.replace("storm", "blizzard"), REPAIR)
    (found,) = _look([near, ("It rains!", FLIGHT.upper()), (FLIGHT, "Far away.")], [task])
    (leaked,) = found.items
    assert (leaked.level, leaked.other) == ("exact", "Far away.")
    assert (leaked.train_one, leaked.train_other) == (FLIGHT, "Far away.")


def test_a_disguised_pair_is_found() -> None:
    for name, pair in DISGUISES.items():
        (found,) = _look([pair], [_task("t", [(REPAIR, FLIGHT)])])
        assert [leaked.level for leaked in found.items] == ["normalised"] and pair != (FLIGHT, REPAIR), name


def test_one_sentence_of_a_pair_with_another_partner_counts_apart() -> None:
    pair = _task("t", [(FLIGHT, REPAIR), ("Who asks?", "Nobody does.")])
    faq = TaskTexts(name="faq", sentences=(("Who flies?",), ("Who asks?",)), pairs=((0, "Who flies?", REPAIR), (0, "Who flies?", FLIGHT)))
    for task in (pair, faq):
        (found,) = _look([(FLIGHT, "Nobody knows why")], [task])
        assert {leaked.item: leaked.level for leaked in found.items} == {0: "one"}
        assert found.count("one") == 1 and found.count("exact", "normalised", "near", "sentence") == 0
    assert LeakFinder([pair]).find([], np.empty((2, 0), dtype=np.int64))[0].items == ()


@pytest.mark.parametrize(
    ("test", "train"),
    [
        (("A man is smoking.", "A man is skating."), ("A man is surfing.", "A man is sailing.")),
        (("A man plays a guitar.", "A man plays the guitar."), ("A man plays a guitar!", "A man plays a guitar!")),
        ((FLIGHT, f"{FLIGHT}, again"), (f"News: {FLIGHT}, again, and again", "Far away")),
        ((FLIGHT, FLIGHT.replace("storm", "blizzard")), (FLIGHT, FLIGHT)),
    ],
)
def test_what_only_looks_alike_is_no_leak(test: tuple[str, str], train: tuple[str, str]) -> None:
    (found,) = _look([train], [_task("t", [test])])
    assert found.count("exact", "normalised", "near") == 0
