"""Words deleted and replaced: how many, which, and what never changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sentdist.data.augmentation import delete_words, nltk_folder, replace_synonyms
from sentdist.errors import DataError

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
SENTENCE = "A man is riding a red motorcycle with a small child sitting in front of him."


@pytest.fixture
def wordnet(data_root: Path) -> Path:
    folder = nltk_folder(data_root)
    assert folder is not None
    return folder


@pytest.mark.parametrize(
    ("sentence", "fraction", "left"), [(LONG, 0.1, 18), (LONG, 0.35, 13), (LONG, 0.09, 19), ("two words", 0.1, 1), ("two words", 1.0, 1)]
)
def test_deletes_a_share_of_the_words_and_keeps_their_order(sentence: str, fraction: float, left: int) -> None:
    (found,) = delete_words([sentence], fraction=fraction)
    words = sentence.split()
    assert len(found.split()) == left
    assert [word for word in words if word in found.split()] == found.split()


def test_a_sentence_of_one_word_stays() -> None:
    assert delete_words(["Music", ""], fraction=0.5) == ["Music", ""]


def test_every_word_may_go_and_equal_sentences_lose_different_ones() -> None:
    found = delete_words([LONG] * 500)
    lost = Counter(word for sentence in found for word in set(LONG.split()) - set(sentence.split()))
    assert len(set(found)) > 100
    assert all(abs(lost[word] - 50) < 30 for word in LONG.split())  # binomial(500, 0.1): sd 6.7


def test_deletion_depends_on_seed_and_place_only() -> None:
    assert delete_words([LONG] * 5, seed=1) == delete_words([LONG] * 5, seed=1)
    assert delete_words([LONG] * 5, seed=1) != delete_words([LONG] * 5, seed=2)
    assert delete_words([LONG] * 5, seed=1)[:2] == delete_words([LONG] * 2, seed=1)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1])
def test_refuses_a_share_that_is_none(fraction: float) -> None:
    with pytest.raises(DataError, match=r"delete_words\.fraction"):
        delete_words([LONG], fraction=fraction)
    with pytest.raises(DataError, match=r"replace_synonyms\.fraction"):
        replace_synonyms([LONG], fraction=fraction)


@pytest.mark.data
def test_replaces_a_share_of_the_words_by_synonyms(wordnet: Path) -> None:
    found = replace_synonyms([SENTENCE] * 50, folder=wordnet)
    for text in found:
        assert text.endswith("him.") and text.startswith("A ")
    kept = Counter(word for text in found for word in text.split())
    for word in ("is", "a", "with", "in", "of"):
        assert kept[word] >= 50  # function words stay
    replaced = [len([word for word in SENTENCE.split() if word not in text.split()]) for text in found]
    assert set(replaced) <= {2, 3} and 3 in replaced  # 0.2 · 16 words; a synonym of two words may hold the word itself
    assert any("bike" in text or "motorbike" in text for text in found)


@pytest.mark.data
def test_replacing_depends_on_the_seed(wordnet: Path) -> None:
    first = replace_synonyms([SENTENCE] * 5, seed=1, folder=wordnet)
    assert replace_synonyms([SENTENCE] * 5, seed=1, folder=wordnet) == first != replace_synonyms([SENTENCE] * 5, seed=2, folder=wordnet)


@pytest.mark.data
def test_which_synonym_it_is_depends_on_the_seed(wordnet: Path) -> None:
    assert len({replace_synonyms(["dogs"], seed=seed, folder=wordnet)[0] for seed in range(12)}) > 2


@pytest.mark.data
def test_a_word_with_another_capital_is_no_synonym_of_it(wordnet: Path) -> None:
    words = ["polish", "march", "august"] * 30  # the country's, the month, the month
    found = replace_synonyms(words, folder=wordnet)
    assert not any(one.lower() == word for one, word in zip(found, words, strict=True))


@pytest.mark.data
def test_capitals_and_punctuation_stay(wordnet: Path) -> None:
    for text in replace_synonyms(["Dogs!"] * 10, fraction=1.0, folder=wordnet):
        assert text[0].isupper() and text.endswith("!") and text != "Dogs!"


@pytest.mark.data
def test_a_sentence_without_words_to_replace_stays(wordnet: Path) -> None:
    assert replace_synonyms(["They are  in it.", "42 qxyzzy"], folder=wordnet) == ["They are  in it.", "42 qxyzzy"]


def test_an_absent_wordnet_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nltk corpora/wordnet: .* nltk\.downloader wordnet"):
        replace_synonyms([SENTENCE], folder=tmp_path)
