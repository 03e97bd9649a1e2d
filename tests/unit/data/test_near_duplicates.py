"""What two texts resemble each other by, each rule at its edge."""

from __future__ import annotations

import numpy as np
import pytest

from sentdist.data.leaks import KnownTexts, fold_disguised

WORDS = [f"word{number}" for number in range(60)]


def _like(text: str, known: str, *, near: float = 1.0) -> bool:
    """near 1: letters alone say nothing of texts that differ."""
    ((found, _),) = KnownTexts({known: 0}, near).like([text])
    return found == (0,)


def test_a_text_resembles_itself_at_any_threshold() -> None:
    for text in ("a", "a b c", " ".join(WORDS)):
        assert _like(text, text) and _like(text, text, near=0.5)


def test_the_threshold_is_a_share_of_the_sets_of_four_letters() -> None:
    """ " abcdefgh " has 7 sets of four letters, " abcdefghij " has 9: they share 6 of 10."""
    known = {text: number for number, text in enumerate(("abcdefghij",))}
    for near, expected in ((0.6, (0,)), (0.61, ())):
        ((found, _),) = KnownTexts(known, near).like(["abcdefgh"])
        assert found == expected


@pytest.mark.parametrize(("count", "expected"), [(6, False), (7, True), (40, True), (41, False)])
def test_one_word_of_seven_to_forty_may_be_another(count: int, expected: bool) -> None:
    changed = [*WORDS[: count - 2], "other", WORDS[count - 1]]
    assert _like(" ".join(changed), " ".join(WORDS[:count])) == expected


@pytest.mark.parametrize(("count", "expected"), [(4, False), (5, True), (30, True)])
def test_a_text_of_five_words_may_be_inside(count: int, expected: bool) -> None:
    assert _like(" ".join(["before", *WORDS[:count], "and", "behind"]), " ".join(WORDS[:count])) == expected


def test_texts_that_begin_alike_are_all_found_inside() -> None:
    shorter, longer = " ".join(WORDS[:6]), " ".join(WORDS[:8])
    known = KnownTexts({shorter: 0, longer: 1, " ".join([*WORDS[:5], "else"]): 2}, 1.0)
    assert [inside for _, inside in known.like([f"so {longer} it is", f"so {shorter} it is"])] == [(0, 1), (0,)]


@pytest.mark.parametrize(
    ("sentence", "expected"), [("so {1} it is", False), ("{0} {1}", True), ("{1} and {0}", True), ("{0} and {0}", False)]
)
def test_texts_are_apart_only_where_each_has_words_of_its_own(sentence: str, expected: bool) -> None:
    """A question and an answer that begins with it, glued in either order; inside the answer alone the question is no text beside it."""
    texts = [" ".join(WORDS[:6]), " ".join(WORDS[:8])]
    known = KnownTexts({text: number for number, text in enumerate(texts)}, 1.0)
    assert known.are_apart(0, 1, sentence.format(*texts)) == known.are_apart(1, 0, sentence.format(*texts)) == expected


@pytest.mark.parametrize(("count", "expected"), [(9, False), (10, True), (15, True)])
def test_half_of_a_text_is_like_the_whole(count: int, expected: bool) -> None:
    assert _like(" ".join(WORDS[5 : 5 + count]), " ".join(WORDS[:20])) == expected


def test_candidates_at_the_threshold_are_hardly_ever_missed() -> None:
    """One letter of some forty is another: 0.82 of the sets are the same, and 16 bands of 5 miss one text of 2000."""
    draw = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    texts = ["".join(draw.choice(letters, 40)) for _ in range(80)]
    known = KnownTexts({text: number for number, text in enumerate(texts)}, 0.8)
    found = known.like([f"{text[:20]}0{text[21:]}" for text in texts])
    assert sum(number in alike for number, (alike, _) in enumerate(found)) >= 79


def test_letters_are_folded_as_unicode_folds_them() -> None:
    assert fold_disguised("Die STRASSE, \ufb01nal") == fold_disguised("die straße final") == "die strasse final"


def test_a_text_is_compared_by_itself_wherever_it_stands_among_the_others() -> None:
    """Asked from the last to the first: a sketch that keeps something of the texts before it resembles none of them."""
    draw = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    texts = ["".join(draw.choice(letters, 40)) for _ in range(20)]
    known = KnownTexts({text: number for number, text in enumerate(texts)}, 1.0)
    assert [alike for alike, _ in known.like(texts[::-1])] == [(number,) for number in reversed(range(20))]


def _letters(text: str) -> set[str]:
    return {f" {text} "[start : start + 4] for start in range(max(1, len(text) - 1))} if text else set()


@pytest.mark.parametrize("near", [0.3, 0.55, 0.8, 1.0])
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
