"""Premises with their hypotheses: what is drawn, what is filled, what is never taken; words deleted and replaced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from sentdist.corpora.premises import GroupFacts, counted_premises, group_by_premise, inference_rows
from sentdist.data.augmentation import delete_words, nltk_folder, replace_synonyms
from sentdist.errors import DataError

LABELS = {"e": "entailment", "n": "neutral", "c": "contradiction"}


def nli(*premises: tuple[str, str]) -> pa.Table:
    """("dog", "eecn"): a premise "dog" with hypotheses "dog e0", "dog e1", "dog c2" and "dog n3"."""
    rows = [(premise, f"{premise} {kind}{place}", LABELS[kind]) for premise, kinds in premises for place, kind in enumerate(kinds)]
    return pa.table(dict(zip(("premise", "hypothesis", "label"), map(list, zip(*rows, strict=True)), strict=True)))


def grouped(rows: pa.Table, num_positives: int = 3, num_negatives: int = 3, **settings: object) -> tuple[list[dict[str, str]], GroupFacts]:
    table, facts = group_by_premise(rows, num_positives=num_positives, num_negatives=num_negatives, **settings)  # type: ignore[arg-type]
    return table.to_pylist(), facts


def cells(row: dict[str, str], role: str) -> list[str]:
    return [text for name, text in row.items() if name.startswith(role)]


def test_each_choice_follows_from_the_seed() -> None:
    """Which of its own hypotheses, which of others', and which missing positives are reworded: each by itself."""
    settings: dict[str, object] = {"augment": lambda sentences: [f"again {text}" for text in sentences], "augmented_fraction": 0.5}
    cases: tuple[tuple[pa.Table, tuple[int, int], dict[str, object]], ...] = (
        (nli(*((f"p{number}", "eeeeeccccc") for number in range(20))), (2, 2), {}),
        (nli(*((f"p{number}", "ec") for number in range(20))), (1, 3), {}),
        (nli(*((f"p{number}", "ec") for number in range(20))), (3, 1), settings),
    )
    chunked = pa.concat_tables([cases[0][0].slice(0, 17), cases[0][0].slice(17)])
    assert grouped(chunked, seed=3) == grouped(cases[0][0], seed=3)
    for table, size, more in cases:
        assert len({repr(grouped(table, *size, seed=seed, **more)[0]) for seed in range(4)}) == 4


def test_what_repeats_counts_once_and_what_contradicts_itself_not_at_all() -> None:
    table = pa.table(
        {
            "premise": ["a", "a", "a", "a", "a", "b", "b", None, "a"],
            "hypothesis": ["x", "x", "y", "z", "z", "v", "w", "u", " "],
            "label": ["entailment", "entailment", "contradiction", "entailment", "contradiction", "entailment", "contradiction"]
            + ["entailment"] * 2,
        }
    )
    rows, facts = grouped(table, 2, 1)
    assert cells(rows[0], "positive") == ["x", "a"] and rows[0]["negative_1"] == "y"
    assert facts.num_contradictory == 1
    kinds = ("ec", "ecn", "eecc", "eeec", "eeeccc", "eeeeecccccc", "e", "eeeeccccc")
    counts = counted_premises(nli(*((f"p{number}", one) for number, one in enumerate(kinds))))
    assert counts == {"1": 2, "2": 1, "3": 1, "4": 0, "2-4": 2, "5+": 1}, "three and one, or four and five, are neither"


def test_a_limit_draws_premises_and_leaves_the_pool_whole() -> None:
    table = nli(*((f"p{number}", "ec") for number in range(100)))
    rows, facts = grouped(table, 1, 3, limit=10, limit_seed=1)
    assert (facts.num_groups, facts.num_left_out, facts.num_premises) == (10, 0, 100)
    whole = {row["anchor"] for row in grouped(table, 1, 3)[0]}
    chosen = [row["anchor"] for row in rows]
    assert set(chosen) <= whole and chosen == sorted(chosen, key=lambda name: int(name[1:]))
    assert {row["anchor"] for row in grouped(table, 1, 3, limit=10, limit_seed=2)[0]} != set(chosen)
    owners = {text.split()[0] for row in rows for text in cells(row, "negative")[1:]}
    assert owners - set(chosen)
    asked: list[str] = []
    grouped(table, 3, 1, limit=10, augment=lambda sentences: [asked.append(text) or text for text in sentences])  # type: ignore[func-returns-value]
    assert len(asked) == 20  # nothing is reworded that is not kept


def test_other_spellings_of_labels_and_columns() -> None:
    table = nli(("a", "ecn"), ("b", "ec"))
    numbered = table.set_column(2, "gold", pa.array([0, 2, 1, 0, 2])).rename_columns(["one", "two", "gold"])
    rows = inference_rows(numbered, columns=("one", "two", "gold"), labels=("0", "2"))
    assert rows["label"].to_pylist() == ["entailment", "contradiction", None, "entailment", "contradiction"]
    assert grouped(rows, 1, 1) == grouped(table, 1, 1) == grouped(inference_rows(table), 1, 1)
    with pytest.raises(DataError, match='nli/snli: found labels contradiction, entailment, neutral; expected "0" among them'):
        inference_rows(table, labels=("0", "2"), where="nli/snli")


@pytest.mark.parametrize(
    ("rows", "settings", "says"),
    [
        (nli(("a", "ee"), ("b", "cc")), {}, "no premise with 1 entailments"),
        (nli(("a", "ec")), {"at_least": 2}, "no premise with 2 entailments"),
        (nli(("a", "ec"), ("b", "ec")), {"num_negatives": 5}, "too few sentences of other premises"),
    ],
)
def test_refusals(rows: pa.Table, settings: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says):
        grouped(rows, **{"num_positives": 1, "num_negatives": 1, **settings})  # type: ignore[arg-type]


LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
SENTENCE = "A man is riding a red motorcycle with a small child sitting in front of him."


@pytest.fixture
def wordnet(data_root: Path) -> Path:
    folder = nltk_folder(data_root)
    assert folder is not None
    return folder


def test_deletes_a_share_of_the_words_and_keeps_their_order() -> None:
    for sentence, fraction, left in ((LONG, 0.35, 13), (LONG, 0.09, 19), ("two words", 1.0, 1), ("Music", 0.5, 1)):
        (found,) = delete_words([sentence], fraction=fraction)
        assert len(found.split()) == left and [word for word in sentence.split() if word in found.split()] == found.split()
    assert delete_words([LONG] * 5, seed=1)[:2] == delete_words([LONG] * 2, seed=1) != delete_words([LONG] * 2, seed=2)


@pytest.mark.data
def test_replaces_a_share_of_the_words_by_synonyms(wordnet: Path) -> None:
    found = replace_synonyms([SENTENCE] * 50, folder=wordnet)
    assert replace_synonyms([SENTENCE] * 3, folder=wordnet) == found[:3] != replace_synonyms([SENTENCE] * 3, seed=2, folder=wordnet)
    for text in found:
        assert text.endswith("him.") and text.startswith("A ")
    kept = Counter(word for text in found for word in text.split())
    for word in ("is", "a", "with", "in", "of"):
        assert kept[word] >= 50  # function words stay
    replaced = [len([word for word in SENTENCE.split() if word not in text.split()]) for text in found]
    assert set(replaced) <= {2, 3} and 3 in replaced  # 0.2 · 16 words; a synonym of two words may hold the word itself
    assert any("bike" in text or "motorbike" in text for text in found)
