"""The report of a search: who wins at which budget, what dev chose, how far that flatters; failed and pruned trials distinguished."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.evaluation.search_statistics import Optimism
from sentdist.plan.wording import value_text
from sentdist.report.search import budgets
from sentdist.report.search.blocks import (
    SearchPart,
    _budget_words,
    _optimism,
    _page_facts,
    _untouched,
    lead,
    search_part,
)  # fmt: skip
from sentdist.report.search.budgets import budget_rows, dev_span
from sentdist.report.search.facts import SearchFacts, search_facts
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.store.searches import Finalist, SearchRecord, append_event
from sentdist.store.store import ArtifactStore
from tests.support.synthetic_searches import FIELDS, SPACE, made_up_events, made_up_search
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

UNIT = "stsb-dev (Spearman × 100)"


def _part(record: SearchRecord) -> SearchPart:
    return search_part(search_facts(record, None, {}), None, dev_unit=UNIT, links={})


@pytest.fixture(scope="module")
def made_up() -> SearchRecord:
    return made_up_search(samples=20)


@pytest.fixture(scope="module")
def part(made_up: SearchRecord) -> SearchPart:
    return _part(made_up)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Report:
    """Of a search whose two methods had two finalists each, scored over three seeds: rcl is better on dev and on test."""
    folder = tmp_path_factory.mktemp("searched")
    rates = [1e-3, 1e-4]
    values = tiny_values(tiny_encoder_dir, name="tuned", seeds=[0, 1, 2], sweep={"training.learning_rate": rates})  # type: ignore[arg-type]
    plan, context = tiny_plan(values, data=write_data(folder / "data"), store=folder / "store")
    worth = {"fine_tuned": 76.0, "rcl": 77.0, "base": 70.0}
    fill_store(
        context.store, plan, noise=lambda trial: {"base": 3.0, "fine_tuned": 1.6, "rcl": 0.8}[trial.method], num_items={"stsb": 120},
        dev=lambda trial: worth[trial.method] - 10 * float(str(dict(trial.params)["training.learning_rate"])) + 0.1 * (trial.seed or 0),
    )  # fmt: skip
    finalists = tuple(
        Finalist(
            number=10 * place + number, method=method, place=place, dev=worth[method] + 0.5, suggestion={"training.learning_rate": rate},
            cells={one.seed: one.key for one in plan.trials if one.seed is not None and one.method == method and dict(one.params)["training.learning_rate"] == rate},
        )
        for number, method in enumerate(("fine_tuned", "rcl"))
        for place, rate in enumerate(rates, start=1)
    )  # fmt: skip
    for event in made_up_events(samples=8, finalists=finalists):
        append_event(context.store, "tuned", event)
    return report_sweep(context.store, "tuned", links={"Parallel coordinates": "http://host/#/runs?a=1&b=2"})


def test_figures_and_the_failed_carry_their_numbers(part: SearchPart, made_up: SearchRecord) -> None:
    drawings = {one.name: one for block in part.rest for one in block.drawings}
    assert {"search-best", "search-price", "search-parallel-fine_tuned", "search-parallel-rcl"} <= set(drawings)
    price, best = (list(csv.DictReader(io.StringIO(drawings[name].table))) for name in ("search-price", "search-best"))
    assert len(price) == len(made_up.trials) == len([row for row in best if row["by"] == "trials"])
    assert {row["state"] for row in price} == {"finished", "pruned", "failed"}
    (failed,) = [block for block in part.rest if block.title == "Failed trials"]
    assert all("TrainingDiverged" in row[-1] for row in failed.rows) and "nothing is scored on test yet" in part.lead[0]
    low, high = dev_span([*np.linspace(78, 80, 30), 12.0])
    assert low > 70 and high > 80, "trainings that went wrong do not squeeze the others"
    assert [budgets.count_text(value) for value in (999, 1000, 250_000, 1e6, 1.5e6, 2e9)] == ["999", "1k", "250k", "1M", "1.5M", "2G"]


def test_the_budget_of_each_method_stands_in_a_table(part: SearchPart, made_up: SearchRecord) -> None:
    (given,) = [block for block in part.rest if block.title == "What each method was given"]
    rows = {row[0]: dict(zip(given.header, row, strict=True)) for row in given.rows}
    assert rows["all"]["trials"] == "40" and rows["RCL"]["trials"] == "20"
    for title, method in (("Eq. 1", "fine_tuned"), ("RCL", "rcl")):
        trials = made_up.of_method(method)
        for state in ("finished", "pruned", "failed"):
            assert int(rows[title][state]) == sum(trial.state == state for trial in trials)


def test_the_trials_are_a_table_for_other_programs(part: SearchPart, made_up: SearchRecord) -> None:
    rows = list(csv.DictReader(io.StringIO(str(part.files["search-trials.csv"]))))
    assert [int(row["trial"]) for row in rows] == sorted(trial.number for trial in made_up.trials)
    for row, trial in zip(rows, sorted(made_up.trials, key=lambda trial: trial.number), strict=True):
        assert {field for field in SPACE if row[field]} == set(trial.suggestion), trial.number
        assert (row["state"], row["method"], row["error"]) == (trial.state, trial.method, trial.error or "")
    first = next(trial for trial in made_up.trials if trial.number == 0)
    assert rows[0]["training.learning_rate"] == value_text(first.suggestion["training.learning_rate"])
    assert float(rows[0]["dev at 0.1"]) == pytest.approx(first.rungs[0].dev, abs=1e-4)
    assert rows[0]["methods.rcl.phis"] == "", "a field that makes no difference to a method"


def test_who_wins_is_asked_at_each_budget() -> None:
    facts = search_facts(made_up_search(samples=12, gain=0.0, halving=None, failing=0), None, {})
    rows = budget_rows(facts)
    assert [row[0] for row in rows] == ["1", "2", "4", "8", "12"]
    for title, column in (("Eq. 1", 1), ("RCL", 2)):
        scores = next(method.scores for method in facts.methods if method.title == title)
        assert rows[-1][column] == f"{scores.max():.2f}" and rows[0][column] == f"{np.mean(scores):.2f}"


def test_a_method_that_has_tried_all_its_settings_keeps_its_best() -> None:
    record = made_up_search(samples=12, gain=0.0, seed=4, halving=None, failing=0)
    rates = {str(trial.suggestion): trial for trial in record.of_method("fine_tuned")}
    record = record.model_copy(update={"trials": (*record.of_method("rcl"), *rates.values())})
    space = {
        **record.recipe["search"]["space"],
        "training.learning_rate": {"choice": [trial.suggestion["training.learning_rate"] for trial in rates.values()]},
    }  # type: ignore[index, call-overload, dict-item]
    recipe = {**record.recipe, "search": {**record.recipe["search"], "space": space}}  # type: ignore[dict-item]
    facts = search_facts(record.model_copy(update={"recipe": recipe}), None, {})
    plain = next(method for method in facts.methods if method.name == "fine_tuned")
    assert facts.is_exhausted(plain) and len(plain.trials) < 12 and facts.has_equal_budgets
    last = budget_rows(facts)[-1]
    assert last[:2] == ["12", f"{plain.scores.max():.2f}"]
    (other,) = (method for method in facts.methods if method.name == "rcl")
    wins = 1 - np.mean(other.scores <= plain.scores.max()) ** 12  # of the other over what this one has for sure
    assert last[-1] in (f"{100 * wins:.0f} of 100 against {plain.title}", f"{100 - 100 * wins:.0f} of 100 against {other.title}")


def test_a_search_with_no_trial_that_ended_is_reported() -> None:
    nothing = search_facts(made_up_search(samples=1, failing=0, halving={"rungs": [0.5, 1.0], "keep": 0.1}), None, {})
    assert lead(nothing, None)[0].startswith("After 1 trial of each of 2 methods; ")
    record = made_up_search(samples=2, failing=0)
    running = record.model_copy(update={"trials": tuple(trial.model_copy(update={"state": "running"}) for trial in record.trials)})
    shown = _part(running)
    assert "none has run to its end yet" in shown.lead[0]
    assert [block.title for block in shown.rest] == ["What each method was given"]
    (fields,) = [
        block
        for block in _part(made_up_search(samples=4, methods={"fine_tuned": FIELDS["fine_tuned"]})).rest
        if block.title == "Which settings matter"
    ]
    assert "that takes 16" in (said := " ".join(fields.said)) or "not installed" in said


def test_the_best_trial_ran_to_its_end_and_one_without_a_score_wins_nothing() -> None:
    (method, *_) = search_facts(made_up_search(samples=12), None, {}).methods
    pruned = next(trial for trial in method.trials if trial.state == "pruned")
    rungs = tuple(rung.model_copy(update={"dev": 99.0}) for rung in pruned.rungs)
    trials = (*method.trials, pruned.model_copy(update={"rungs": rungs}), pruned.model_copy(update={"rungs": (), "state": "failed"}))
    found = replace(method, trials=trials)
    assert found.best == method.best and method.best is not None and method.best.state == "finished"
    assert found.scores[-2:].tolist() == [99.0, min(method.scores)]


def test_the_report_begins_with_what_was_found(reported: Report) -> None:
    first, *_, choice = reported.lead.splitlines()
    assert reported.markdown.split("\n\n")[1] == first and choice == "The settings were chosen on dev after 8 trials of each of 2 methods."
    # not the first finalist of the baseline, but the one that dev chose by all seeds
    assert first.startswith("rcl (learning_rate=0.0001) is ") and " fine_tuned (learning_rate=0.0001)" in first
    assert reported.rests_on == "It rests on 3 seeds and 120 test items."
    assert "(http://host/#/runs?a=1&b=2)" in reported.markdown and {"search-best.svg", "search-parallel-rcl.csv", "table1.csv"} <= set(
        reported.files
    )


def test_all_finalists_are_compared_with_what_dev_chose_of_the_baseline(reported: Report) -> None:
    """Also where another finalist of the baseline happens to have the same settings: these were found, not crossed."""
    rows = csv.DictReader(io.StringIO(str(reported.files["table1-comparisons.csv"])))
    compared = {row["system"]: row["against"] for row in rows if row["relation"] != "preceding"}
    assert set(compared.values()) == {"fine_tuned (learning_rate=0.0001)"}  # and not rcl at 0.001 with fine_tuned at 0.001
    assert {name.partition(" ")[0] for name in compared} == {"base", "fine_tuned", "rcl"}


def test_the_optimism_of_the_choice_is_that_of_fresh_seeds(reported: Report) -> None:
    # Seeds 1 and 2 of rcl at 1e-4 give 77 - 0.001 + 0.1 and + 0.2 on dev, and the search had found 77.5.
    assert "| 77.50 | 77.15 (n=2) | +0.35 [" in reported.markdown
    assert "fresh seeds of what dev chose do not distinguish the optimism of the choice from 0: it is " in reported.markdown


def test_only_an_optimism_that_is_significant_has_a_sentence_of_its_own() -> None:
    found = {
        "A": Optimism(chosen_by=78.0, fresh=77.0, low=0.5, high=1.5, num_fresh=4),
        "B": Optimism(chosen_by=78.0, fresh=77.9, low=-0.2, high=0.4, num_fresh=4),
        "C": Optimism(chosen_by=78.0, fresh=77.7, low=-0.1, high=0.7, num_fresh=4),
    }
    methods = [SimpleNamespace(title=title, chosen=SimpleNamespace(optimism=one)) for title, one in found.items()]
    said = list(_optimism(cast(SearchFacts, SimpleNamespace(methods=methods, num_seeds=5))))
    assert said[0].startswith("A: 78.00 won the search, and 4 fresh seeds of the same settings give 77.00 on dev: +1.00 points of optimism")
    assert said[1].startswith("For B and C fresh seeds of what dev chose do not distinguish") and said[1].endswith(
        "it is +0.30 points at most (C)."
    )
    assert len(said) == 3
    unknown = [SimpleNamespace(title="A", chosen=SimpleNamespace(optimism=None))]
    assert "is not known" in next(_optimism(cast(SearchFacts, SimpleNamespace(methods=unknown, num_seeds=1))))


def test_a_search_without_a_sweep_has_a_report_too(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for event in made_up_events(samples=3):
        append_event(store, "tuned", event)
    made = report_sweep(store, "tuned")
    assert made.markdown.startswith("# tuned\n\nAfter 3 trials of each of 2 methods; ")
    assert "search-best.svg" in made.files
    answer = CliRunner().invoke(app, ["report", "tuned", "--store", str(tmp_path), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 0 and "After 3 trials of each of 2 methods" in answer.output, answer.output


@pytest.fixture(scope="module")
def facts() -> SearchFacts:
    return search_facts(made_up_search(samples=12), None, {})


def test_trials_that_run_count_as_given_and_what_was_spent_is_reported(facts: SearchFacts) -> None:
    for running, words, shown in (
        ((0, 0), "12 trials", "24 ended"),
        ((2, 2), "14 trials", "24 ended, 4 running"),
        ((0, 3), "12 to 15 trials", "24 ended, 3 running"),
    ):
        found = replace(facts, methods=tuple(replace(one, num_running=number) for one, number in zip(facts.methods, running, strict=True)))
        assert _budget_words(found) == f"After {words} of each of 2 methods" and _page_facts(found)["trials"] == shown
    record = SimpleNamespace(spent_hours=2.0, spent_sentences=1_500_000)
    assert _page_facts(replace(facts, record=record))["spent"] == "2.0 h, 1.5M sentences"  # type: ignore[arg-type]


def test_a_budget_is_asked_of_those_who_had_it_and_of_those_who_can_have_no_more(facts: SearchFacts) -> None:
    few = replace(facts.methods[0], trials=facts.methods[0].trials[:4])
    cut = replace(facts, methods=(few, facts.methods[1]))
    last = budget_rows(cut)[-1]
    assert (last[0], last[1], last[-1]) == ("12", "–", "–") and last[2] != "–"
    exhausted = SimpleNamespace(methods=cut.methods, is_exhausted=lambda method: method is few)
    last = budget_rows(exhausted)[-1]  # type: ignore[arg-type]
    assert float(last[1]) == pytest.approx(max(few.scores), abs=0.005) and last[-1] != "–"


def test_an_untouched_encoder_is_spoken_of_where_it_is_better_than_what_dev_chose() -> None:
    def line(label: str, score: float, *, is_fixed: bool = False) -> Any:
        cell = SimpleNamespace(summary=SimpleNamespace(mean=score), standing="", is_below_best=False)
        return SimpleNamespace(label=label, cells={"t": cell}, is_fixed=is_fixed)

    facts: Any = SimpleNamespace(methods=[SimpleNamespace(title=name, chosen=SimpleNamespace(cell=name)) for name in "ab"])
    for untouched, number in ((79.0, 0), (80.0, 0), (80.5, 1), (81.5, 2)):
        table: Any = SimpleNamespace(lead="t", lines=[line("a", 80.0), line("b", 81.0), line("base", untouched, is_fixed=True)])
        said = list(_untouched(facts, table))
        assert len(said) == number and all(one.startswith(f"base, which was not trained, scores {untouched:.2f} on test") for one in said)
