"""Whose work a sweep, and an encoder's card, cite."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.specs import EncoderSpec, Regularizers
from sentdist.plan.stages import Scores, Train
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.report.citations import CITATIONS, givers, works_of_stages, works_of_sweep
from tests.support.planning import RECIPES, shipped_plan

NOBODY_S = ("generated/", "text/wiki", "./", "pairs.csv")  # made here; Wikipedia's, which has no paper; a user's own


def _is_somebody_s(name: str) -> bool:
    return not name.startswith(NOBODY_S)


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.yaml")), ids=lambda path: path.relative_to(RECIPES).as_posix())
def test_the_data_and_checkpoints_of_a_shipped_recipe_are_cited(path: Path) -> None:
    stages = shipped_plan(path).stages
    encoders = [one.encoder for one in stages if isinstance(one, Train | Scores)]
    names = {one.checkpoint for one in encoders if isinstance(one, EncoderSpec)}
    names |= {part.source for one in stages if isinstance(one, CorpusStage) for part in one.sources}
    assert {name for name in names if _is_somebody_s(name) and not givers(name)} == set()
    assert works_of_stages(stages) <= set(CITATIONS)


def test_the_texts_of_a_task_are_cited() -> None:
    assert {name for name, card in TASKS.items() if _is_somebody_s(card.source) and card.citation is None} == set()
    assert {card.citation for card in TASKS.values()} - {None} <= set(CITATIONS)


@pytest.mark.parametrize("task", TASKS)
def test_a_score_cites_the_texts_of_its_task_and_one_of_the_seven_of_sts_the_protocol_too(task: str) -> None:
    found: Any = SimpleNamespace(tasks=[task], kinds=[], facts={})
    protocol = {"simcse"} if task in TASK_GROUPS["sts"] else set()
    assert works_of_sweep(found, {}, []) == sorted({TASKS[task].citation} - {None} | protocol)


def test_a_name_gives_those_that_made_it_and_no_others() -> None:
    assert givers("FacebookAI/roberta-base") == ["roberta"]
    assert givers("google-bert/bert-base-uncased") == ["bert"]
    assert givers("sentence-transformers/nli-roberta-base-v2") == ["sbert", "roberta", "snli", "mnli"]
    assert givers("minilm-l6") == ["minilm"]
    assert givers("sentence-transformers/all-MiniLM-L6-v2") == ["sbert", "minilm"], "capitals are the hub's"
    assert givers("nli/new_protocols") == ["new_protocols"]
    assert givers("my/folder") == []


def test_regularizers_in_use_are_cited() -> None:
    assert Regularizers().works == ()
    assert Regularizers(attention_dropout=0.2).works == ("dropattention",)
    assert Regularizers(drophead=0.1, attention_dropout=0.0).works == ("drophead",)


def test_what_a_training_takes_in_is_cited_with_it() -> None:
    stages = shipped_plan(RECIPES / "papers/rse_table1.yaml").stages
    training = next(one for one in stages if isinstance(one, Train) and one.objective.name == "rse")
    assert isinstance(training.corpus, CorpusStage)
    data = {work for part in training.corpus.sources for work in givers(part.source)}
    assert {"snli", "mnli"} <= data and works_of_stages([training]) == data | {"rse", *givers(training.encoder.checkpoint)}
