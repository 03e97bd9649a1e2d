"""What the page of a search says, sentence by sentence: counts, prices, verdicts between methods, rows of failed trials."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.report.search.blocks import MOST_FAILED, _budget_words, _failed_blocks, _page_facts, _untouched, trials_csv
from sentdist.report.search.budgets import budget_rows
from sentdist.report.search.facts import SearchFacts, search_facts
from tests.support.synthetic_searches import SPACE, made_up_search


@pytest.fixture(scope="module")
def facts() -> SearchFacts:
    return search_facts(made_up_search(samples=12), None, {})


def _running(facts: SearchFacts, *numbers: int) -> SearchFacts:
    return replace(facts, methods=tuple(replace(one, num_running=number) for one, number in zip(facts.methods, numbers, strict=True)))


def test_trials_that_run_count_as_given_and_are_distinguished(facts: SearchFacts) -> None:
    assert _budget_words(facts) == "After 12 trials of each of 2 methods"
    assert _budget_words(_running(facts, 2, 2)) == "After 14 trials of each of 2 methods"
    assert _budget_words(_running(facts, 0, 3)) == "After 12 to 15 trials of each of 2 methods"
    assert _page_facts(facts)["trials"] == "24 ended" and _page_facts(_running(facts, 1, 2))["trials"] == "24 ended, 3 running"


def test_what_was_spent_is_reported_in_time_and_sentences(facts: SearchFacts) -> None:
    record = SimpleNamespace(spent_hours=2.0, spent_sentences=1_500_000)
    assert _page_facts(replace(facts, record=record))["spent"] == "2.0 h, 1.5M sentences"  # type: ignore[arg-type]


def test_the_settings_of_every_method_have_a_column(facts: SearchFacts) -> None:
    rows = list(csv.DictReader(io.StringIO(trials_csv(facts))))
    assert [int(row["trial"]) for row in rows] == sorted(trial.number for trial in facts.record.trials)
    assert set(SPACE) <= set(rows[0])
    for row, trial in zip(rows, sorted(facts.record.trials, key=lambda trial: trial.number), strict=True):
        assert {field for field in SPACE if row[field]} == set(trial.suggestion), trial.number
        assert (row["state"], row["method"], row["error"]) == (trial.state, trial.method, trial.error or "")


def test_of_many_failed_trials_some_stand_on_the_page_and_how_many_more(facts: SearchFacts) -> None:
    trial = facts.methods[0].trials[0]
    for count, said in (
        (MOST_FAILED, ()),
        (MOST_FAILED + 1, ("1 further one in search-trials.csv.",)),
        (MOST_FAILED + 2, ("2 further ones in search-trials.csv.",)),
    ):
        trials = tuple(trial.model_copy(update={"number": number, "state": "failed", "error": "it diverged"}) for number in range(count))
        (block,) = _failed_blocks(replace(facts, methods=(replace(facts.methods[0], trials=trials),)))
        assert (len(block.rows), tuple(block.said)) == (MOST_FAILED, said) and block.rows[0][-1] == "it diverged"


def test_a_budget_is_asked_of_those_who_had_it_and_of_those_who_can_have_no_more(facts: SearchFacts) -> None:
    few = replace(facts.methods[0], trials=facts.methods[0].trials[:4])
    cut = replace(facts, methods=(few, facts.methods[1]))
    last = budget_rows(cut)[-1]
    assert (last[0], last[1], last[-1]) == ("12", "–", "–") and last[2] != "–"
    exhausted = SimpleNamespace(methods=cut.methods, is_exhausted=lambda method: method is few)
    last = budget_rows(exhausted)[-1]  # type: ignore[arg-type]
    assert float(last[1]) == pytest.approx(max(few.scores), abs=0.005) and last[-1] != "–"


def _line(label: str, score: float, *, standing: str = "", is_below_best: bool = False, is_fixed: bool = False) -> Any:
    cell = SimpleNamespace(summary=SimpleNamespace(mean=score), standing=standing, is_below_best=is_below_best)
    return SimpleNamespace(label=label, cells={"t": cell}, is_fixed=is_fixed)


def _methods(*names: str) -> list[Any]:
    return [SimpleNamespace(title=name, chosen=SimpleNamespace(cell=name)) for name in names]


@pytest.mark.parametrize(("untouched", "number"), [(79.0, 0), (80.0, 0), (80.5, 1), (81.5, 2)])
def test_an_untouched_encoder_is_spoken_of_where_it_is_better_than_what_dev_chose(untouched: float, number: int) -> None:
    facts: Any = SimpleNamespace(methods=_methods("a", "b"))
    table: Any = SimpleNamespace(lead="t", lines=[_line("a", 80.0), _line("b", 81.0), _line("base", untouched, is_fixed=True)])
    said = list(_untouched(facts, table))
    assert len(said) == number and all(one.startswith(f"base, which was not trained, scores {untouched:.2f} on test") for one in said)
