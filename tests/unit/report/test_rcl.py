"""The RCL paper's tables beside ours: what stands for its untouched checkpoint."""

from __future__ import annotations

import pytest

from sentdist.plan.objectives import OBJECTIVES
from sentdist.plan.specs import EncoderSpec, LexicalSpec, View
from sentdist.plan.stages import Scores, Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.papers.rcl import TABLES
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import build_table
from tests.support.planning import plan_of, small_recipe

BASE = {"checkpoint": "sentence-transformers/nli-roberta-base-v2", "revision": "1"}


def test_each_entropy_encoder_regulates_twice() -> None:
    scores = {trial.method: trial.scores for trial in plan_of(small_recipe()).trials}
    trained = {name: CellFacts(train=one.encoder, scores=one) for name, one in scores.items() if isinstance(one.encoder, Train)}
    assert {name: (one.phis, one.num_regulators) for name, one in trained.items()} == {"fine_tuned": ((), 0), "rcl": ((0.01, 0.02), 4)}


def untouched(view: dict[str, str] | None = None, **encoder: str | int) -> CellFacts:
    return CellFacts(scores=Scores(encoder=EncoderSpec.model_validate(BASE | encoder), tasks=(), view=View.model_validate(view or {})))


def trained(objective: str, *, phis: tuple[float, ...] = (), heads: float = 0.0, attention: float | None = None) -> CellFacts:
    regulators = len(phis) * OBJECTIVES[objective].regulators_per_bank
    facts = {"objective": objective, "phis": phis, "num_regulators": regulators, "drophead": heads, "attention_dropout": attention}
    found = type("Trained", (CellFacts,), facts)()
    assert isinstance(found, CellFacts)
    return found


def test_other_strengths_of_regulators_and_two_dropouts_at_once_are_no_row() -> None:
    printed, others = (0.01, 0.02, 0.03, 0.04), (0.01, 0.02, 0.03, 0.05)
    cells = {
        "rcl": trained("rcl", phis=printed), "others": trained("rcl", phis=others), "attention": trained("info_nce", attention=0.1),
        "heads": trained("info_nce", heads=0.1), "both": trained("info_nce", attention=0.1, heads=0.2),
    }  # fmt: skip
    found = TABLES.our_rows(cells)
    assert found["3"] == {"rcl": "RCL", "attention": "Attention dropout p=0.1", "heads": "DropHead p=0.1"}
    assert found["5"] == {"rcl": "RCL"} and found["4"] == {"rcl": "8"}


FLOORS = {
    "words": CellFacts(scores=Scores(encoder=LexicalSpec(name="word_overlap"), tasks=())),
    "bm25": CellFacts(scores=Scores(encoder=LexicalSpec(name="bm25"), tasks=())),
    "random": untouched(initialization="random"),
    "three layers": untouched(layers=3),
    "whitened": untouched(view={"postprocess": "whiten"}),
    "its record is gone": CellFacts(),
}


def test_the_checkpoint_as_it_is_is_the_papers_base() -> None:
    found = TABLES.our_rows({"base": untouched()})
    assert found["1a"] == found["1b"] == found["3"] == {"base": "SRoBERTa-base"} and found["4"] == {"base": "0"}


@pytest.mark.parametrize("label", FLOORS)
def test_a_floor_is_no_row(label: str) -> None:
    assert not any(TABLES.our_rows({label: FLOORS[label]}).values())


def test_gains_are_over_the_checkpoint_not_over_a_floor() -> None:
    class Dropped(CellFacts):
        objective, attention_dropout = "info_nce", 0.1  # type: ignore[assignment]

    cells = {"words": FLOORS["words"], "base": untouched(), "dropped": Dropped()}
    scores = {"words": 40.0, "base": 70.0, "dropped": 71.0}
    rows = [ResultRow(method=label, label=label, params={}, seed=0, scores={"STS12": scores[label]}, items={}) for label in cells]
    table = build_table(
        TableRows(title="Semantic textual similarity", rows=rows, columns=["STS12"], average=True, measure=TASK_KINDS["sts"].main),
        baseline=None,
    )
    found = next(one for one in TABLES.beside_facts(table, cells) if one.paper.number == "1a")
    assert next(row.our_gain[0] for row in found.rows if row.label == "dropped") == pytest.approx(1.0)
