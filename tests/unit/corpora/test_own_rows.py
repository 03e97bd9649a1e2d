"""A person's own file: how it is written, what it holds, and which rows are held out, so that nothing of them is trained on."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.corpora.own_rows import OwnSplit, open_split
from sentdist.corpora.recognise import recognise
from sentdist.data.columns import grades_of, scale_of, score_in
from sentdist.data.leaks import LeakFinder, TaskTexts
from sentdist.data.split import DEV, SIDES, TEST, TRAIN, HeldOut, groups_of, sides_of
from sentdist.errors import DataError
from sentdist.recipe.resolver import OwnPin
from sentdist.recipe.specs import HeldOutSection, OwnFileSection

THINGS = ("router", "printer", "phone", "tablet", "camera", "oven", "fridge", "lamp", "drone", "clock", "scale", "kettle")
DEEDS = ("reset", "clean", "charge", "update", "repair")


def faq_rows() -> list[tuple[str, str]]:
    """Three questions for each of 60 answers; one of them written in two ways."""
    found = []
    for thing in THINGS:
        for deed in DEEDS:
            answer = f"Open the page of your {thing} and press {deed}, then wait für {len(thing) + len(deed)} minutes."
            found += [
                (f"How do I {deed} my {thing}?", answer),
                (f"what helps to {deed} a {thing}", answer),
                (f"HOW DO I {deed} my {thing}", f"{answer} "),
            ]
    return found


def graded_rows() -> list[tuple[str, str, str]]:
    draw = random.Random(0)
    words = [f"{first}{last}" for first in ("ba", "do", "ke", "lu", "mi", "so") for last in ("rt", "n", "lk", "m", "ss", "ck", "pe", "ga")]
    texts = [" ".join((*draw.sample(words, 8), "every day")) for _ in range(240)]
    return [(one, other, f"{draw.randrange(6) / 5:.1f}".replace(".", ",")) for one, other in zip(texts[::2], texts[1::2], strict=True)]


def written(rows: list[tuple[str, ...]], separator: str = ",") -> str:
    return "".join(separator.join(f'"{cell}"' if separator in cell else cell for cell in row) + "\n" for row in rows)


def seen(path: Path, **held_out: object) -> OwnPin:
    return recognise(path.name, path, OwnFileSection(file=path.name, held_out=HeldOutSection.model_validate(held_out)))


def split_of(found: OwnPin, path: Path, side: int) -> OwnSplit:
    return open_split(path.name, found.rows, SIDES[side], revision=found.revision, folders={}, root=path.parent)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("question,answer\n" + "".join(f"what is {word},it is a {word}\n" for word in "abcdefghij"), "10 different rows"),
        ("question,answer\n" + "".join(f"question {n},Please call us.\n" for n in range(100)) + "q,a\nr,b\ns,c\n", "'Please call us.' (100 rows)"),
    ],
)  # fmt: skip
def test_what_cannot_be_held_out_is_reported(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(content)
    with pytest.raises(DataError) as refused:
        seen(path)
    assert said in f"{refused.value.found} {refused.value.expected} {refused.value.remedy}"


def texts_of(looked: OwnPin, path: Path, side: int) -> TaskTexts:
    """What the rows of a side test, as the project's tasks put it."""
    if looked.rows.shape == "graded":
        rows = split_of(looked, path, side).table().to_pylist()
        return TaskTexts.of_pairs(SIDES[side], [(row["sentence1"], row["sentence2"]) for row in rows])
    found = split_of(looked, path, side).queries()
    text = dict(zip(found.document_ids, found.documents, strict=True))
    pairs = [
        (item, query, text[document])
        for item, (key, query) in enumerate(zip(found.query_ids, found.queries, strict=True))
        for document in found.qrels[key]
    ]
    return TaskTexts(name=SIDES[side], sentences=tuple((query,) for query in found.queries), pairs=tuple(pairs))


def shapes(folder: Path) -> list[Path]:
    """A file of each shape, with texts in several rows, disguises and near-duplicates."""
    faq, graded = faq_rows(), graded_rows()
    twins = [(one.replace("every", "each"), other.replace("every", "each"), score) for one, other, score in graded[::4]]
    negatives = [(question, answer, faq[(place + 45) % len(faq)][1]) for place, (question, answer) in enumerate(faq)]
    paraphrases = [(one, other) for one, other, _ in graded] + [(other, one) for one, other, _ in graded[::3]]
    files: dict[str, list[tuple[str, ...]]] = {
        "faq.csv": [("question", "answer"), *faq],
        "graded.csv": [("sentence1", "sentence2", "score"), *graded[::2], *twins],
        "triplets.csv": [("anchor", "positive", "negative"), *negatives],
        "pairs.csv": [("anchor", "positive"), *paraphrases[: len(paraphrases) // 2], *paraphrases[-6:]],
    }
    for name, rows in files.items():
        (folder / name).write_text(written(rows, ";"))
    return [folder / name for name in files]


def test_no_side_holds_anything_of_another(tmp_path: Path) -> None:
    for path in shapes(tmp_path):
        found = seen(path, dev=0.15, test=0.15)
        is_loose = path.name == "triplets.csv"  # its negatives are other rows' answers
        assert found.rows.num_linking == 2 and found.rows.near == 0.8 and is_loose == any("Negatives link" in line for line in found.notes)
        sides = [split_of(found, path, side).table() for side in (TRAIN, DEV, TEST)]
        assert sides[TRAIN].num_rows == found.num_rows and min(side.num_rows for side in sides) >= 5
        for held, others in ((DEV, (TRAIN,)), (TEST, (TRAIN, DEV))):
            finder = LeakFinder([texts_of(found, path, held)])
            for other in others:
                columns = [column for column in sides[other].column_names if column != "score"]
                ids: dict[str, int] = {}
                rows = [[ids.setdefault(text, len(ids)) for text in sides[other][column].to_pylist()] for column in columns]
                (leaks,) = finder.find([list(ids)], np.array(rows))
                assert {leak.level for leak in leaks.items} <= ({"one"} if is_loose else set()), (path.name, SIDES[held], leaks.items[:1])


def test_a_split_depends_on_texts_and_seed_but_not_on_their_order(tmp_path: Path) -> None:
    rows = faq_rows()
    held: HeldOut = HeldOut(dev=0.1, test=0.1, seed=0, most=1000, near=0.8)

    def tested(rows: list[tuple[str, str]], held_out: HeldOut, given: set[tuple[str, str]] | None = None) -> set[tuple[str, str]]:
        """given: rows that the file itself calls dev."""
        splits = None if given is None else ["dev" if row in given else "train" for row in rows]
        of_rows = sides_of("own", rows, held_out=held_out, given=None, splits=splits).of_rows
        return {row for row, side in zip(rows, of_rows, strict=True) if side == TEST}

    shuffled = random.Random(1).sample(rows, len(rows))
    assert tested(rows, held) == tested(shuffled, held) != tested(rows, replace(held, seed=1))
    assert tested(rows, held, {*rows[::9]}) == tested(shuffled, held, {*rows[::9]})
    assert len(tested(rows, replace(held, most=6))) <= 6
    assert len(tested(rows, replace(held, test=0.3))) > 2 * len(tested(rows, held)) > len(tested(rows, replace(held, dev=0.3)))


def test_groups_follow_texts_names_and_likeness() -> None:
    rows = [("a b", "c"), ("A  b!", "d"), ("e", "d"), ("x", "y"), ("v", "w")]
    assert groups_of(rows).tolist() == [0, 0, 0, 1, 2]
    assert groups_of(rows, given=["", "", "one", "one", ""]).tolist() == [0, 0, 0, 0, 1]
    one = ("how can somebody reset the old printer in the kitchen", "press the red button for ten seconds until it beeps")
    like = ("how can somebody reset the new printer in the kitchen", "press the red button for nine seconds until it beeps")
    assert groups_of([one, like, ("x", "y")], near=0.8).tolist() == [0, 0, 1]
    assert groups_of([one, like, ("x", "y")]).tolist() == [0, 1, 2]


def test_the_file_s_own_splits_and_groups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"question {n},answer number {n},{'test' if n % 4 == 0 else 'train'},{n // 10}\n" for n in range(200)]
    rows[1:1] = [rows[0], ",without a question,train,5\n", rows[0]]
    path.write_text("question,answer,split,group\n" + "".join(rows) + "question 1,another answer,test,\n")
    found = seen(path, near=None)
    assert split_of(found, path, TEST).table().num_rows == 51 and found.num_dev > 0 and "(by column 'split')" in found.notes[1]
    assert found.notes[2].startswith("51 rows of the file's dev and test splits share texts with training rows")
    numbers = {}
    for side in (TRAIN, DEV, TEST):
        texts = split_of(found, path, side).table()["sent0"].to_pylist()
        numbers[side] = [int(text.split()[1]) for text in texts]
        groups = split_of(found, path, side).groups
        assert all(group == str(number // 10) for number, group in zip(numbers[side], groups, strict=True) if group)
    assert {number % 4 == 0 for number in numbers[TRAIN] + numbers[DEV]} == {False} and 1 in numbers[TEST]
    assert not {number // 10 for number in numbers[DEV]} & {number // 10 for number in numbers[TRAIN]}


def test_a_file_that_changes_after_planning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(written([("question", "answer"), *faq_rows()], ";"))
    found = seen(path)
    path.write_text(written([("question", "answer"), *faq_rows()[:-1]], ";"))
    with pytest.raises(DataError, match="another content"):
        split_of(found, path, TRAIN).table()


def test_a_text_is_a_query_or_a_document_but_never_both(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [row for n in range(30) for row in ((f"one text {n}", f"its other {n}"), (f"its other {n}", f"one text {n}"))]
    path.write_text(written([("anchor", "positive"), *rows]))
    found = seen(path, near=None)
    queries = split_of(found, path, TEST).queries()
    assert len(queries.queries) == split_of(found, path, TEST).table().num_rows // 2 and not set(queries.queries) & set(queries.documents)
    assert all(len(relevant) == 1 for relevant in queries.qrels.values())


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_lists_of_positives_and_negatives_are_read_whole_and_stay_on_one_side(suffix: str, tmp_path: Path) -> None:
    """As FlagEmbedding writes them: 0 to 3 negatives, 1 or 2 positives."""
    rows = [
        {"query": f"how is {n}", "pos": [f"so {n}", f"thus {n}"][: 1 + n % 2], "neg": [f"no {n}", f"not {n}", f"never {n}", " "][: n % 4]}
        for n in range(60)
    ]
    path = tmp_path / f"own{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows)))
    found = seen(path, near=None)
    assert (found.rows.shape, found.rows.columns) == ("triplets", ("query", "pos", "neg")) and "15 rows without" in found.notes[0]
    sides = [split_of(found, path, side).table().to_pylist() for side in (TRAIN, DEV, TEST)]
    read = {tuple(row.values()) for side in sides for row in side}
    assert {row[1:] for row in read if row[0] == "how is 3"} == {("so 3", "no 3"), ("thus 3", "not 3"), ("so 3", "never 3")}
    assert len(read) == sum(map(len, sides)) == 15 * (2 + 2 + 3)
    anchors = [{row["sent0"] for row in side} for side in sides]
    assert found.num_apart == len(anchors[0]) and sum(map(len, anchors)) == len(set().union(*anchors)) == 45


def test_a_score_is_a_number_or_a_percentage() -> None:
    texts = ("45%", " 12,5\xa0% ", "100%", "0.45", "0,45", "45%%", "four%")
    assert [score_in(text) for text in texts] == [0.45, 0.125, 1.0, 0.45, 0.45, None, None]
    for cells, grades in ((["yes", "No"], [1, 0]), (["entailment", "-", "Neutral"], [2, None, 1]), ([True, False, ""], [1, 0, None])):
        assert [None if grade != grade else grade for grade in grades_of("own.csv", "label", cells)] == grades
    for cells, found in (([0, 1, 2], "labels 0, 1, 2"), (["yes", "no", "0.5"], "'yes' in row 1"), ([1, 1], "equal scores")):
        with pytest.raises(DataError, match=found):
            grades_of("own.csv", "label", cells)
    scales = {(0.2, 0.9): (0.0, 1.0), (-0.5, 0.9): (-1.0, 1.0), (1, 4.5): (1.0, 5.0), (0, 4.5): (0.0, 5.0), (-3, 300): (-3.0, 300.0)}
    for numbers, scale in scales.items():
        assert scale_of(numbers, numbers) == scale, "the narrowest usual scale that holds them"
