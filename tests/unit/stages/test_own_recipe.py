"""own.yaml over a file of each shape, from the file to the score."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.corpus import OpenedCorpus
from sentdist.recipe.recipe import load_recipe
from sentdist.recipe.stages import Train
from sentdist.stages.context import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.planned import planned_recipe
from sentdist.tasks.task import load_task
from tests.support.planning import RECIPES

WHO, WHAT, WHERE = ("man", "woman", "child", "dog"), ("eats", "drinks", "plays", "sings"), ("house", "garden", "street")
SCENES = [(who, what, where) for who in WHO for what in WHAT for where in WHERE]
ROWS = {
    "pairs": ("anchor,positive", "the {1} in the {3} {2}"),
    "triplets": ("anchor,positive,negative", "the {1} in the {3} {2},no {1} never {2} near the {3}"),
    "graded": ("sentence1,sentence2,score", "the {1} in the {3} {2},{0}"),
    "faq": ("question,answer", "the {1} likes the {3} and {2}"),
}


@pytest.mark.parametrize("shape", ROWS)
def test_the_rows_of_each_side_are_all_that_the_file_holds(
    shape: str, tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / f"{shape}.csv"
    names, row = ROWS[shape]
    lines = [f"a {{1}} {{2}} in the {{3}},{row}".format(place % 6, *scene) for place, scene in enumerate(SCENES)]
    file.write_text("\n".join([names, *lines]) + "\n")
    changes = [f"corpus.file={file}", f"encoder.checkpoint={tiny_encoder_dir}", "training.batch_size=8"]
    changes += ["training.max_length=20", "evaluation.max_length=20"]
    plan, context = planned_recipe(load_recipe(RECIPES / "own.yaml", changes), store=str(tmp_path / "store"))
    train = next(stage for stage in plan.stages if isinstance(stage, Train))
    assert train.selection is not None
    build_here(train.corpus, context)
    corpus = OpenedCorpus.open(folder_of(train.corpus, context))
    texts = [text for block in corpus.sentence_blocks() for text in block]
    rows = [tuple(texts[place] for place in row[:2]) for row in corpus.ids.T.tolist()]
    for task in (train.selection.task, plan.trials[0].scores.tasks[-1]):
        rows += [(one, other) for _, one, other in load_task(task, context.data_root, context.folders).texts().pairs]
    assert sorted(rows) == sorted(tuple(line.split(",")[:2]) for line in lines)
    build_here(train, context)
    scores = build_here(plan.trials[-1].scores, context).record.results
    assert all(isinstance(scores[task.name], float) for task in plan.trials[-1].scores.tasks)
