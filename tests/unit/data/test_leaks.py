"""Leaks: which test items stand in training, at which level, and the counts that are known of STS-B."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.data.checked_rows import Pairs, read_pairs
from sentdist.data.leaks import LeakFinder, Leaks, TaskTexts

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


def test_sentences_without_pairs_are_no_pairs() -> None:
    alone = [(sentence,) for row in TRAIN for sentence in row]
    (found,) = _look(alone, [_task("t", TEST)])
    assert {leaked.level for leaked in found.items} <= {"sentence", "one"} and found.count(
        "sentence"
    ) == 3  # 0, 1 and 3; "?" has no words to fold


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
    "soft hyphens": (FLIGHT.replace("cancelled", "can\u00adcel\u00adled"), REPAIR),
    "zero widths": (FLIGHT.replace("storm", "st\u200borm"), REPAIR.replace("bridge", "bri\u200b\u2060dge")),
    "homoglyphs": (FLIGHT.replace("a", "\u0430").replace("o", "\u043e"), REPAIR.replace("e", "\u0435").replace("p", "\u0440")),
    "Greek capitals": (FLIGHT.upper().replace("A", "\u0391").replace("T", "\u03a4"), REPAIR),
    "variation selectors": (FLIGHT.replace("storm", "st\ufe0form"), REPAIR.replace("bridge", "bri\u034fd\u3164ge")),
    "rarer letters": (
        FLIGHT.replace("n", "\u0578").replace("g", "\u0261").replace("i", "\u0131"),
        REPAIR.replace("o", "\u0585").replace("u", "\u057d"),
    ),
    "full width": ("".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in FLIGHT), REPAIR),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_pair_is_found_nearly(form: str) -> None:
    (found,) = _look([("Nothing of the sort", "is written in here"), FORMS[form]], [_task("t", [(FLIGHT, REPAIR)])])
    assert [leaked.level for leaked in found.items] == ["near"], form


@pytest.mark.parametrize("form", FORMS)
def test_a_pair_is_found_nearly_the_other_way_round(form: str) -> None:
    for train, test in (((FORMS[form][1], FORMS[form][0]), (FLIGHT, REPAIR)), (FORMS[form], (REPAIR, FLIGHT))):
        (found,) = _look([train], [_task("t", [test])])
        assert [leaked.level for leaked in found.items] == ["near"], form


def test_a_pair_of_one_text_is_found_nearly_beside_itself() -> None:
    changed = FLIGHT.replace("storm", "blizzard")
    (found,) = _look([(changed, changed)], [_task("t", [(FLIGHT, FLIGHT)])])
    assert [leaked.level for leaked in found.items] == ["near"]


def test_each_task_has_leaks_of_its_own() -> None:
    """Several tasks at once as each of them alone, pairs that are glued together among them."""
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


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_pair_is_found(disguise: str) -> None:
    assert DISGUISES[disguise] != (FLIGHT, REPAIR)
    (found,) = _look([DISGUISES[disguise]], [_task("t", [(REPAIR, FLIGHT)])])
    assert [leaked.level for leaked in found.items] == ["normalised"], disguise


def test_one_sentence_of_a_pair_with_another_partner_counts_apart() -> None:
    (found,) = _look([(FLIGHT, "Nobody knows why")], [_task("t", [(FLIGHT, REPAIR), ("Who asks?", "Nobody does.")])])
    assert {leaked.item: leaked.level for leaked in found.items} == {0: "one"}
    assert found.count("one") == 1 and found.count("exact", "normalised", "near", "sentence") == 0


@pytest.mark.parametrize(
    ("test", "train"),
    [
        (("A man is smoking.", "A man is skating."), ("A man is surfing.", "A man is sailing.")),  # a word of four says something else
        (("A man plays a guitar.", "A man plays the guitar."), ("A man plays a guitar!", "A man plays a guitar!")),  # beside itself
        ((FLIGHT, f"{FLIGHT}, again"), (f"News: {FLIGHT}, again, and again", "Far away")),  # one inside the other, in one text
        ((FLIGHT, REPAIR), (FLIGHT.replace("storm", "blizzard"), "Nobody repaired the bridge")),
        ((FLIGHT, FLIGHT.replace("storm", "blizzard")), (FLIGHT, FLIGHT)),  # like both, and beside nothing but itself
    ],
)
def test_what_only_looks_alike_is_no_leak(test: tuple[str, str], train: tuple[str, str]) -> None:
    (found,) = _look([train], [_task("t", [test])])
    assert found.count("exact", "normalised", "near") == 0


@pytest.mark.data
def test_clean_data_raise_no_alarm(data_root: Path) -> None:
    """Wikipedia's sentences and their splits against STS, paraphrases and questions; of NLI one pair of captions, which is a find."""
    tasks = [
        _task(name, _pairs(read_pairs(f"sts/{name}", split="test", data_root=data_root))[:800])
        for name in ("sts13", "sts15", "stsb", "sick")
    ]
    table = pq.read_table(data_root / "pairs/wikisplit.parquet").slice(0, 1500)
    rows = list(zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True))
    assert [leaks.count("exact", "normalised", "near") for leaks in _look(rows, tasks)] == [0, 0, 0, 0]


def test_an_answer_that_another_query_was_trained_with_counts_apart() -> None:
    task = TaskTexts(name="faq", sentences=(("Who flies?",), ("Who asks?",)), pairs=((0, "Who flies?", REPAIR), (0, "Who flies?", FLIGHT)))
    (found,) = _look([("What happened?", REPAIR)], [task])
    assert {leaked.item: leaked.level for leaked in found.items} == {0: "one"}


@pytest.mark.parametrize("form", FORMS)
def test_a_text_alone_is_found_nearly_too(form: str) -> None:
    """Of a test of labels or clusters, whose items have no partner."""
    task = TaskTexts(name="labels", sentences=((FLIGHT,), ("Who sleeps?",), (REPAIR,)), pairs=())
    (found,) = _look([("Nothing of the sort", "is written in here"), FORMS[form]], [task])
    assert {leaked.item: leaked.level for leaked in found.items} == {0: "sentence", 2: "sentence"}, form
    assert {leaked.train_one for leaked in found.items} <= set(FORMS[form])


def test_a_text_alone_is_no_find_where_another_only_looks_alike() -> None:
    task = TaskTexts(name="labels", sentences=(("A man is smoking.",), (FLIGHT,)), pairs=())
    (found,) = _look([("A man is surfing.", f"Yesterday the airline cancelled all flights, {REPAIR}")], [task])
    assert not found.items
