"""Several dev tasks choose a checkpoint together: by the mean of their scores."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.api.encoders import card_of
from sentdist.errors import RecipeError
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.score_rows import CellFacts, TableRows
from sentdist.report.selection import chosen_cells
from sentdist.report.sweep_rows import sweep_rows
from sentdist.report.tables import build_table
from sentdist.stages.cards import training_card
from sentdist.stages.context import folder_of
from sentdist.store.sweep import load_sweep, save_sweep, sweep_record
from tests.support.building import run_local
from tests.support.planning import plan_of, small_recipe
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def _training(task: str) -> Train:
    encoder = plan_of(small_recipe(selection={"task": task})).trials[-1].scores.encoder
    assert isinstance(encoder, Train)
    return encoder


def test_one_task_more_is_another_training_and_one_alone_is_the_same_as_ever() -> None:
    both = _training("stsb-dev+sickr-dev").selection
    assert both is not None and [task.name for task in both.tasks] == ["stsb-dev", "sickr-dev"] and both.name == "stsb-dev+sickr-dev"
    assert _training("stsb-dev").key != _training("stsb-dev+sickr-dev").key
    assert "further_tasks" not in json.dumps(_training("stsb-dev").canonical())


@pytest.mark.parametrize(
    ("task", "measure"), [("stsb-dev", "Spearman"), ("askubuntu-dev+twitter-pit", "mean of MAP and average precision")]
)
def test_a_card_names_the_measures_of_all_tasks(task: str, measure: str) -> None:
    (reported,) = training_card(_training(task), {"num_steps": 1, "best_dev_score": 50.0}, language=(), base_prompts={}).scores
    assert reported == f"{task} ({measure} × 100, chose the checkpoint)"


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        ({"query": "query: ", "document": ""}, "none, in training and in use; those of the base model were left out: query 'query: '"),
        ({"query": ""}, ""),
    ],
)
def test_a_card_says_that_prompts_of_the_base_model_were_left_out(prompts: dict[str, str], said: str) -> None:
    made = training_card(_training("stsb-dev"), {"num_steps": 1, "best_dev_score": None}, language=(), base_prompts=prompts)
    assert made.prompts == said


def test_a_limit_is_another_training_and_none_is_the_same_as_ever() -> None:
    few = plan_of(small_recipe(selection={"task": "stsb-dev", "limit": 40})).trials[-1].scores.encoder
    assert isinstance(few, Train) and few.selection is not None and [task.limit for task in few.selection.tasks] == [40]
    assert few.key != _training("stsb-dev").key and '"limit"' not in json.dumps(_training("stsb-dev").canonical())
    with pytest.raises(RecipeError, match=r"selection\.limit: found 40 beside mr-dev; expected tasks of graded pairs or of retrieval"):
        plan_of(small_recipe(selection={"task": "transfer-dev", "limit": 40}))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("stsb-dev+sickr-dve", 'Did you mean "sickr-dev"?'),
        ("stsb-dev+stsb-dev", "expected each task once"),
        ("stsb-dev+stackfaq", "found tasks of retrieval and of sts"),
        ("stsb-dev+twitter", "found tasks of pairs and of sts"),
        ("transfer", 'selection.task: "transfer" chooses no checkpoint'),
        ("twitter+twitter-pit", "expected each task once"),
        ("stsb-dev+", 'selection.task: "" chooses no checkpoint'),
    ],
)
def test_tasks_without_a_mean_are_refused(task: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        small_recipe(selection={"task": task})
    assert said in str(caught.value)


def test_a_group_beside_others_counts_as_one_and_alone_as_its_tasks() -> None:
    both, alone = _training("askubuntu-dev+twitter").selection, _training("transfer-dev").selection
    assert both is not None and alone is not None
    assert both.parts == (1, 2) and [list(part) for part in both.places] == [[0], [1, 2]]
    first = _training("twitter+askubuntu-dev").selection
    assert first is not None and [list(part) for part in first.places] == [[0, 1], [2]]
    assert alone.parts == () and [len(part) for part in alone.places] == [1] * 7
    with pytest.raises(RecipeError, match=r"Use mr; mr-dev is for selection\.task"):
        plan_of(small_recipe(evaluation={"tasks": ["mr-dev"]}))


@pytest.mark.parametrize(
    ("selection", "tasks", "both"),
    [
        ({"task": "sts12"}, ["sts"], ("sts12",)),
        ({"task": "sts12", "limit": 500}, ["sts"], ("sts12",)),
        ({"task": "sts=sts/sts12"}, ["sts"], ("sts12",)),
        ({"task": "stsb-dev"}, ["sts"], ()),
        ({"task": "sts=sts/stsb@test"}, ["sts"], ("stsb",)),
        ({"task": "mr-dev"}, ["mr"], ()),
        ({"task": "scidocs-dev"}, ["scidocs-cite", "scidocs-cocite"], ()),
    ],
)
def test_a_test_set_that_chooses_is_known_by_its_data(selection: Json, tasks: Json, both: tuple[str, ...]) -> None:
    plan = plan_of(small_recipe(selection=selection, evaluation={"tasks": tasks}))
    scores = next(trial.scores for trial in plan.trials if trial.method == "fine_tuned")
    assert isinstance(scores.encoder, Train)
    assert CellFacts(train=scores.encoder, scores=scores).chosen_on_test == both


def test_the_mean_of_the_dev_scores_chooses(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    pairs = pq.read_table(data / "sts/stsb.parquet").to_pylist()
    trial = [pair | {"split": {"dev": "trial", "test": "test"}[pair["split"]], "score": 1 + 0.8 * pair["score"]} for pair in pairs[::3]]
    pq.write_table(pa.Table.from_pylist(trial), data / "sts/sick.parquet")
    curves = {}
    for task in ("stsb-dev", "sickr-dev", "stsb-dev+sickr-dev"):
        methods = {"fine_tuned": tiny_values(tiny_encoder_dir)["methods"]["fine_tuned"]}  # type: ignore[index, call-overload]
        values = tiny_values(
            tiny_encoder_dir,
            methods=methods,
            selection={"task": task, "every_fraction": 0.5},
            evaluation={"tasks": ["stsb", "sickr"]},
            name=task.replace("+", "-"),
        )
        plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
        run_local(plan, context)
        save_sweep(context.store, sweep_record(plan))
        stage = plan.trials[0].scores.encoder
        assert isinstance(stage, Train)
        lines = map(json.loads, (folder_of(stage, context) / "history.jsonl").read_text().splitlines())
        curves[task] = [line["dev_score"] for line in lines if "dev_score" in line]
    first, second, both = curves.values()
    assert len(both) == 2 and first != second
    assert both == pytest.approx([(one + other) / 2 for one, other in zip(first, second, strict=True)])
    sweep = load_sweep(context.store, "stsb-dev-sickr-dev")
    records = sweep.records(context.store)
    rows = sweep_rows(sweep, context.store, records).of_kind("sts")
    (cell,) = chosen_cells(
        sweep,
        records,
        build_table(
            TableRows(title="t", rows=rows, columns=["STS-B", "SICK-R"], measure=TASK_KINDS["sts"].main, average=True), baseline=None
        ),
    )
    assert (cell.dev_task, cell.test_task) == ("stsb-dev+sickr-dev", "stsb+sickr")
    assert cell.dev == pytest.approx(max(both))
    results = records[sweep.trials[0].key].results
    assert cell.test == pytest.approx((results["stsb"] + results["sickr"]) / 2)  # type: ignore[operator]
    assert sweep.trials[0].train is not None
    trained = context.store.find(sweep.trials[0].train, kind="train")
    assert "| chosen on | stsb-dev+sickr-dev |" in card_of(trained, context.store, name="me/mine")
