"""What figures of a sweep are labelled with."""

from __future__ import annotations

import pytest

from sentdist.plan.chosen_tasks import can_choose
from sentdist.plan.measures import Measure
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS, TaskKind
from sentdist.plan.tasks import TASKS
from sentdist.report.columns import AVERAGE
from sentdist.report.rows import ResultRow
from sentdist.report.sweep_drawings import dev_unit, score_unit
from sentdist.report.tables import build_table

OF_THE_TABLE = {name: TASK_KINDS[card.kind].main for name, card in TASKS.items() if can_choose(card)}
OF_ONES_OWN = {f"{kind.name}=my/file@dev": kind.main for kind in TASK_KINDS.values() if kind.chooses and kind.is_own}


@pytest.mark.parametrize(("task", "measure"), [*OF_THE_TABLE.items(), *OF_ONES_OWN.items()])
def test_a_dev_score_is_told_in_the_measure_of_its_kind(task: str, measure: Measure) -> None:
    assert dev_unit({"selection": {"task": task}}) == f"{task} ({measure.title} × 100)"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("transfer-dev", "accuracy"),
        ("stsb-dev+sickr-dev", "Spearman"),
        ("scidocs-dev", "MAP"),
        ("askubuntu-dev+cqadupstack-dev+twitter", "mean of MAP, MAP@100 and average precision"),
    ],
)
def test_several_dev_tasks_are_told_in_all_their_measures(task: str, words: str) -> None:
    assert dev_unit({"selection": {"task": task}}) == f"{task} ({words} × 100)"


@pytest.mark.parametrize(("shape", "words"), [("graded", "Spearman"), ("pairs", "MAP"), ("triplets", "MAP"), ("faq", "MAP")])
def test_a_dev_score_of_ones_own_rows_is_told_by_their_shape(shape: str, words: str) -> None:
    corpus: Json = {"kind": "own", "file": "rows.csv", "shape": shape}
    assert dev_unit({"corpus": corpus, "selection": {"task": "own"}}) == f"own ({words} × 100)"


def test_without_a_selection_a_dev_score_has_no_unit() -> None:
    assert dev_unit({}) == "dev score"


@pytest.mark.parametrize("kind", [kind for kind in TASK_KINDS.values() if kind.make is not None], ids=lambda kind: kind.name)
def test_figures_of_scores_carry_the_unit_of_their_table(kind: TaskKind) -> None:
    measure = kind.main
    rows = [ResultRow(method="m", label="m", params={}, seed=0, scores={"a": 0.5, "b": 0.7}, is_fixed=True)]
    tables = [build_table(rows, title="t", tasks=["a", "b"], baseline=None, measure=measure, average=average) for average in (True, False)]
    assert tables[0].columns[-1] == AVERAGE
    assert [score_unit(table) for table in tables] == [f"average of 2 tasks ({measure.unit})", f"b ({measure.unit})"]
