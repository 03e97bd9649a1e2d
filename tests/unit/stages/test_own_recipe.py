"""own.yaml over a file of each shape, from the file to the score: what it trains on and is scored on is what the file holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.corpus import OpenedCorpus
from sentdist.errors import DataError
from sentdist.plan.recipe import load_recipe
from sentdist.plan.stages import Train
from sentdist.stages.context import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.planning.planned import planned_recipe
from sentdist.stages.tasks.load import load_task
from tests.support.planning import RECIPES

WHO, WHAT, WHERE = ("man", "woman", "child", "dog"), ("eats", "drinks", "plays", "sings"), ("house", "garden", "street")
SCENES = [(who, what, where) for who in WHO for what in WHAT for where in WHERE]
ROWS = {
    "pairs": ["anchor,positive", *(f"a {who} {what} in the {where},the {who} in the {where} {what}" for who, what, where in SCENES)],
    "triplets": [
        "anchor,positive,negative",
        *(
            f"a {who} {what} in the {where},the {who} in the {where} {what},no {who} never {what} near the {where}"
            for who, what, where in SCENES
        ),
    ],
    "graded": [
        "sentence1,sentence2,score",
        *(f"a {who} {what} in the {where},the {who} in the {where} {what},{place % 6}" for place, (who, what, where) in enumerate(SCENES)),
    ],
    "faq": ["question,answer", *(f"a {who} {what} in the {where},the {who} likes the {where} and {what}" for who, what, where in SCENES)],
}


@pytest.mark.parametrize("shape", ROWS)
def test_the_rows_of_each_side_are_all_that_the_file_holds(
    shape: str, tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / f"{shape}.csv"
    file.write_text("\n".join(ROWS[shape]) + "\n")
    changes = (
        f"corpus.file={file}",
        f"encoder.checkpoint={tiny_encoder_dir}",
        "training.batch_size=8",
        "training.max_length=20",
        "evaluation.max_length=20",
    )
    plan, context = planned_recipe(load_recipe(RECIPES / "own.yaml", changes), store=str(tmp_path / "store"))
    train = next(stage for stage in plan.stages if isinstance(stage, Train))
    assert train.selection is not None
    build_here(train.corpus, context)
    corpus = OpenedCorpus.open(folder_of(train.corpus, context))
    texts = [text for block in corpus.sentence_blocks() for text in block]
    rows = [tuple(texts[place] for place in row[:2]) for row in corpus.ids.T.tolist()]
    for task in (train.selection.task, plan.trials[0].scores.tasks[-1]):
        rows += [(one, other) for _, one, other in load_task(task, context.data_root, context.folders).texts().pairs]
    assert sorted(rows) == sorted(tuple(line.split(",")[:2]) for line in ROWS[shape][1:])
    build_here(train, context)
    scores = build_here(plan.trials[-1].scores, context).record.results
    assert all(isinstance(scores[task.name], float) for task in plan.trials[-1].scores.tasks)


def test_planning_knows_about_how_long_texts_are(tmp_path: Path, minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's memory was forecast as if all sentences had 24 tokens."""
    from transformers import AutoTokenizer

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prose = " ".join((RECIPES.parents[1] / "LICENSE").read_text().split()[40:1240]).replace('"', "").replace(",", "")
    lengths = range(20, 60)
    answers = [" ".join(prose.split()[place : place + length]) for place, length in zip(range(0, 1200, 30), lengths, strict=True)]
    file = tmp_path / "faq.csv"
    file.write_text("\n".join(["question,answer", *(f"What is number {place}?,{text}" for place, text in enumerate(answers))]) + "\n")
    plan, _ = planned_recipe(
        load_recipe(RECIPES / "own.yaml", (f"corpus.file={file}", "training.batch_size=8")), store=str(tmp_path / "store")
    )
    (found,) = plan.tokens.values()
    ids = AutoTokenizer.from_pretrained(minilm)([f"What is number {place}?" for place in range(40)] + answers)["input_ids"]
    assert found == pytest.approx(sum(map(len, ids)) / len(ids), rel=0.2)


@pytest.mark.parametrize(("batch_size", "is_said"), [(16, True), (19, False)])
def test_rows_that_fill_no_batch_are_said(batch_size: int, is_said: bool, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """38 rows train: 16 fill two batches and 6 are left; 19 leave none."""
    file = tmp_path / "pairs.csv"
    file.write_text("\n".join(ROWS["pairs"]) + "\n")
    changes = (f"corpus.file={file}", f"encoder.checkpoint={tiny_encoder_dir}", f"training.batch_size={batch_size}")
    changes += ("training.max_length=20", "evaluation.max_length=20")
    plan, _ = planned_recipe(load_recipe(RECIPES / "own.yaml", changes), store=str(tmp_path / "store"))
    said = "6 of 38 training rows fill no batch of 16: each epoch leaves out as many." in " ".join(plan.notes)
    assert said == is_said, plan.notes


def test_pairs_of_one_text_each_are_reported_as_that(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """It was said that query ids repeat, which the file has not."""
    (tmp_path / "own.csv").write_text("question,answer\n" + "".join(f"what is {n},what is {n}\n" for n in range(60)))
    overrides = [
        f"corpus.file={tmp_path / 'own.csv'}",
        f"encoder.checkpoint={tiny_encoder_dir}",
        "corpus.held_out.near=null",
        "evaluation.max_length=20",
        "training.max_length=20",
    ]
    with pytest.raises(DataError, match=r"own\.csv, test: found one text in both columns of all of \d+ rows; expected pairs of different"):
        planned_recipe(load_recipe(RECIPES / "own.yaml", overrides), store=str(tmp_path / "store"))
