"""Leaks: which test items stand in training, at which level; what two texts resemble each other by."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.data.leaks import KnownTexts, LeakFinder, Leaks, TaskTexts, fold_text, pairs_seen

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


FLIGHT = "The airline cancelled all flights between both islands after the storm on Monday"
REPAIR = "Engineers repaired the damaged bridge within three weeks of the heavy flood last year"
FORMS: dict[str, tuple[str, ...]] = {
    "inside longer texts": (f"Local news. {FLIGHT}, officials said. More follows.", f"We read today: {REPAIR}. So be it."),
    "of which a training text is most": (" ".join(FLIGHT.split()[:-3]), " ".join(REPAIR.split()[2:])),
    "glued into one text": (f"{FLIGHT}. {REPAIR}.", "Something else entirely stands here for once"),
    "one word changed": (FLIGHT.replace("storm", "blizzard"), REPAIR.replace("flood", "earthquake")),
    "one word left out": (FLIGHT.replace(" all", ""), REPAIR.replace(" heavy", "")),
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


WORDS = [f"word{number}" for number in range(60)]


def _like(text: str, known: str, *, near: float = 1.0) -> bool:
    """near 1: letters alone say nothing of texts that differ."""
    ((found, _),) = KnownTexts({known: 0}, near).like([text])
    return found == (0,)


def test_the_threshold_is_a_share_of_the_sets_of_four_letters() -> None:
    """ " abcdefgh " has 7 sets of four letters, " abcdefghij " has 9: they share 6 of 10."""
    known = {text: number for number, text in enumerate(("abcdefghij",))}
    for near, expected in ((0.6, (0,)), (0.61, ())):
        ((found, _),) = KnownTexts(known, near).like(["abcdefgh"])
        assert found == expected


@pytest.mark.parametrize(
    ("count", "changed", "inside", "half"),
    [
        (4, False, False, False), (5, False, True, False), (6, False, True, False), (7, True, True, False), (9, True, True, False),
        (10, True, True, True), (40, True, True, True), (41, False, True, True),
    ],
)  # fmt: skip
def test_how_many_words_make_texts_alike(count: int, changed: bool, inside: bool, half: bool) -> None:
    """One of seven to forty words may be another; a text of five words or more may be inside another, ten may be half of the whole."""
    whole = " ".join(WORDS[:count])
    assert _like(" ".join([*WORDS[: count - 2], "other", WORDS[count - 1]]), whole) == changed
    assert _like(" ".join(["before", whole, "and", "behind"]), whole) == inside
    assert _like(" ".join(WORDS[5 : 5 + count]), " ".join(WORDS[:20])) == half or count > 15
    assert _like(whole, whole) and _like(whole, whole, near=0.5)


def _letters(text: str) -> set[str]:
    return {f" {text} "[start : start + 4] for start in range(max(1, len(text) - 1))} if text else set()


@pytest.mark.parametrize("near", [0.3, 0.8])
def test_of_many_candidates_those_are_found_that_are_as_near(near: float) -> None:
    """Rows of one template, too short for a rule about words, with texts of one letter and of none among them."""
    verbs, things = ("reset", "renew", "cancel"), ("phone", "lamp")
    texts = [f"{verb} the {thing} on device {number}" for verb in verbs for thing in things for number in range(12)]
    texts += ["", "a", "ab"]
    known = KnownTexts({text: number for number, text in enumerate(texts)}, near)
    num_found = 0
    for text, (found, _) in zip(texts, known.like(texts), strict=True):
        own = _letters(text)
        alike = {number: len(own & other) / len(own | other) for number, other in enumerate(map(_letters, texts)) if own & other}
        assert set(found) <= {number for number, share in alike.items() if share >= near}
        assert set(found) >= {number for number, share in alike.items() if share >= max(near, 0.85)}  # all such are candidates
        num_found += len(found)
    assert num_found > len(texts) or near == 1.0


def test_pairs_are_seen_folded_and_in_either_order() -> None:
    assert {fold_text(text) for text in ("A man's here.", "a man ' s here", "  A MAN’S, here!", "Ａ man s here")} == {"a man s here"}
    train = [("It rains.", "It is wet."), ("A.", "A.")]
    test = [("it is wet", "it rains"), ("It rains.", "It is wet."), ("It rains.", "A."), ("a", "a")]
    assert pairs_seen(test, train).tolist() == [True, True, False, True] and pairs_seen([], train).shape == (0,)
