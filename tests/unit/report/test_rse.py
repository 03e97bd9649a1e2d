"""The RSE paper's tables beside ours: which rows stand for which."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.unroll import unroll
from sentdist.report.papers.rse import RSE_TABLES, TABLES, RelationalFacts, link_tables
from sentdist.report.printed import STS_COLUMNS
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord
from tests.support.paper_size import PaperResolver
from tests.support.planning import RECIPES, shipped_plan

TWO = ("entailment", "duplicate-question")
FIVE = (*TWO, "paraphrase", "same-caption", "qa-entailment")


def facts(
    *relations: str, modelled: bool = False, scored: bool = False, negatives: bool = True, temperature: float = 0.05
) -> RelationalFacts:
    return RelationalFacts(relations=relations, is_modelled=modelled, is_scored=scored, hard_negatives=negatives, temperature=temperature)


def test_each_of_useb_s_rows_has_all_six_relations_and_the_best_alone() -> None:
    six = facts(*FIVE, "same-sentence", modelled=True, scored=True)
    best, large = replace(six, best_alone=True), replace(six, best_alone=True, checkpoint="google-bert/bert-large-uncased")
    mixed = replace(facts(*TWO, modelled=True, scored=True), best_alone=True)
    found = TABLES.matches({"six": six, "best": best, "large": large, "mixed": mixed})
    assert found["5"] == {"best": "RSE", "large": "RSE-BERT-large"}
    assert not found["2"] and not found["3"]
    transfer = facts("entailment", "paraphrase", modelled=True)
    found = TABLES.matches({"last": transfer, "five": replace(transfer, pooling="cls_last_five")})
    assert found["6"] == {"five": "RSE"}


def table_of(*labels: str) -> ResultTable:
    rows = [
        ResultRow(
            method=label, label=label, params={}, seed=0, scores=dict.fromkeys(STS_COLUMNS[1:-1], 80.0) | {"STS12": 70.0 + place}, items={}
        )
        for place, label in enumerate(labels)
    ]
    return build_table(
        TableRows(title="Semantic textual similarity", rows=rows, columns=STS_COLUMNS[:-1], average=True, measure=TASK_KINDS["sts"].main),
        baseline=None,
    )


def test_cells_find_their_rows() -> None:
    known = {
        "base": None,
        "nli": facts("entailment"),
        "questions": facts("duplicate-question"),
        "alone": facts("duplicate-question", negatives=False),
        "merged": facts(*TWO, negatives=False),
        "five with negatives": facts(*FIVE),
        "five": facts(*FIVE, negatives=False),
        "rse": facts(*TWO, modelled=True, scored=True),
        "rse, one direction": facts(*TWO, modelled=True, scored=True),
        "rse, plain": facts(*TWO, modelled=True),
    }
    sources, main = TABLES.beside_facts(table_of(*known), known)
    assert [(row.label, row.paper_label) for row in sources.rows] == [
        ("nli", "*Entailment"),
        ("alone", "Duplicate Question"),
        ("five", "All 5 relations"),
        ("rse", "RSE, mixed"),
    ]
    assert [(row.label, row.paper_label) for row in main.rows] == [("nli", "SimCSE, supervised"), ("rse", "RSE")]
    assert main.columns == STS_COLUMNS
    assert main.rows[1].our_gain == pytest.approx((6.0, *[0.0] * 6, 6 / 7))
    assert [main.rows[1].paper_gain[place] for place in (0, 5, 7)] == pytest.approx([0.97, 0.09, 0.61])


def test_tables_of_bert_base_have_no_row_of_its_larger_and_other_encoders() -> None:
    rse, simcse = facts(*TWO, modelled=True, scored=True), facts("entailment")
    for name in ("google-bert/bert-large-uncased", "FacebookAI/roberta-base", "FacebookAI/roberta-large"):
        found = TABLES.matches({"rse": replace(rse, checkpoint=name), "simcse": replace(simcse, checkpoint=name)})
        assert list(found["2"]) == ["rse"] and not found["1"] and not found["4"] and not found["5"], name
    found = TABLES.matches({"rse": replace(rse, checkpoint="google-bert/bert-base-uncased")})
    assert found["1"] == {"rse": "RSE, mixed"} and found["4"] == {"rse": "τ = 0.05"}


def test_other_weights_another_loss_and_no_negatives_are_no_row_of_rse() -> None:
    values = yaml.safe_load((RECIPES / "rse_sts.yaml").read_text())
    rse = values["methods"]["rse"]
    values["methods"]["certain"] = rse | {"title": "certain", "objective": {"name": "rse", "phi": 0.01}}
    values["methods"]["plain"] = rse | {"title": "plain", "objective": {"name": "rse", "hard_negatives": False}}
    plan = unroll(recipe_from_values(values, where="recipe"), PaperResolver())
    cells = {
        trial.method: CellFacts(train=trial.scores.encoder if isinstance(trial.scores.encoder, Train) else None, scores=trial.scores)
        for trial in plan.trials
    }
    found = TABLES.our_rows(cells)
    assert {label for label, row in found["2"].items() if row == "RSE"} == {"rse", "rse_one_direction"}
    assert set(found["4"]) == {"rse", "rse_one_direction"}


def test_each_relation_s_links_are_its_own() -> None:
    plan = shipped_plan(RECIPES / "rse_sts.yaml")
    (trial, *_) = (one for one in plan.trials if one.method == "rse")
    assert isinstance(trial.scores.encoder, Train)
    parts = {"links": 1.0, "links.entailment": 80.0, "links.all": 60.0}
    values = {f"{part}.{measure}": score for part, score in parts.items() for measure in ("mrr", "hits@1", "hits@3", "hits@10")}
    sweep = SimpleNamespace(trials=[SimpleNamespace(method="rse", cell="rse", key="k", seed=0)])
    cells = {"rse": CellFacts(train=trial.scores.encoder, scores=trial.scores)}
    found = list(link_tables(cast(SweepRecord, sweep), cast(dict[str, Record], {"k": SimpleNamespace(results=values)}), cells))
    means = {one.table.title: one.table.line("rse").cells["MRR"].summary for one in found}
    assert {title: summary.mean for title, summary in means.items() if summary is not None} == {"Entailment": 80.0, "All": 60.0}


def test_temperatures_find_their_rows() -> None:
    known = {f"τ {value}": facts(*TWO, modelled=True, scored=True, temperature=value) for value in (0.01, 0.05, 0.3)}
    (found,) = TABLES.beside_facts(table_of(*known), known)
    assert found.paper.number == "4"
    assert {row.label: row.paper for row in found.rows} == {"τ 0.01": (81.73,), "τ 0.05": (82.18,)}
    assert list(TABLES.matches(known)["2"]) == ["τ 0.05"], "other tables are of one temperature"


def test_a_single_row_stands_beside_nothing() -> None:
    known = {"rse": facts(*TWO, modelled=True, scored=True), "other": facts("entailment", temperature=1.0)}
    assert list(TABLES.beside_facts(table_of(*known), known)) == []


def test_printed_averages_fit_their_cells() -> None:
    for row in RSE_TABLES["2"].rows:
        assert sum(row.scores[:-1]) / 7 == pytest.approx(row.scores[-1], abs=0.01)
