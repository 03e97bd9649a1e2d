"""A search: who is suggested, who goes on, what is noted, what happens after it was killed; trainings are tiny or pretended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentdist.recipe.search import Axis
from sentdist.recipe.stage import Json
from sentdist.run.searching.in_process import search_in_process
from sentdist.run.searching.suggesters import TunedSuggester
from tests.support.tiny_data import write_data
from tests.support.tiny_search import RATES, Killed, killed_after, outcome, tiny_search

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}
SPACE: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def test_suggestions_lie_in_the_space_and_follow_from_the_seed() -> None:
    axes = {
        "a.rate": Axis(log=(1e-5, 1e-3)), "a.steps": Axis(uniform=(0.0, 1.0), steps=3), "a.size": Axis(integers=(2, 4)),
        "a.phis": Axis(choice=([0.1], [0.1, 0.2])),
    }  # fmt: skip

    def drawn(suggest: str, seed: int) -> list[dict[str, Json] | None]:
        suggester = TunedSuggester(axes, suggest=suggest, seed=seed)
        found = []
        for number in range(14):
            found.append(suggester.ask(str(number)))
            suggester.tell(str(number), float(number), rung=1)
            suggester.end(str(number), float(number), is_pruned=number % 3 == 1)
        return found

    for suggest in ("random", "quasi_random", "tpe"):
        found = drawn(suggest, 0)
        for one in found:
            assert one is not None and 1e-5 <= float(str(one["a.rate"])) <= 1e-3
            assert one["a.rate"] == float(f"{one['a.rate']:.6g}"), "it has one spelling, and stages that meet have one key"
            assert one["a.steps"] in (0.0, 0.5, 1.0) and one["a.size"] in (2, 3, 4) and one["a.phis"] in ([0.1], [0.1, 0.2])
        assert found == drawn(suggest, 0) != drawn(suggest, 1) and len({str(one) for one in found}) > 10
    grid = TunedSuggester({"a.b": Axis(integers=(1, 2)), "a.c": Axis(choice=(True, False, None))}, suggest="grid", seed=0)
    tried = [grid.ask(str(number)) for number in range(7)]
    assert tried[-1] is None and len({str(one) for one in tried[:-1]}) == 6, "a grid is tried once and whole"


def test_a_search_killed_anywhere_ends_as_one_left_alone(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    """With as many trials as Optuna needs before it suggests by the results reported to it."""
    options: dict[str, Any] = {"changes": ONLY, "suggest": "tpe", "samples": 12, "space": SPACE}
    whole, context = tiny_search(tiny_encoder_dir, data, tmp_path / "one", **options)
    alone = search_in_process(whole, context, print_line=lambda line: None)
    planned, elsewhere = tiny_search(tiny_encoder_dir, data, tmp_path / "two", **options)
    for number in (3, 15, 32):
        with pytest.raises(Killed):
            search_in_process(planned, elsewhere, print_line=lambda line: None, watch=killed_after(number))
    found = search_in_process(planned, elsewhere, print_line=lambda line: None)
    assert outcome(found) == outcome(alone) and found.finalists == alone.finalists
    assert found.spent_sentences == alone.spent_sentences, "nothing is built twice"
    assert not list(elsewhere.store.artifacts("rung")), "nothing goes on from them, though it was killed before it could remove them"


def test_a_trial_that_fails_is_noted_and_tried_again_by_the_next_submission(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    space: Json = {"training.learning_rate": {"choice": [1e-3, 1e4]}}  # the second one diverges
    planned, context = tiny_search(tiny_encoder_dir, data, tmp_path, changes=ONLY, suggest="grid", samples=None, space=space, halving=None)
    lines: list[str] = []
    record = search_in_process(planned, replace(context, data_root=str(tmp_path / "nowhere")), print_line=lines.append)
    assert [one.state for one in record.trials] == ["failed", "failed"] and not record.finalists
    assert any("FAILED" in line for line in lines)
    again = search_in_process(planned, context, print_line=lines.append)
    assert again.trials[0].state == "finished" and len(again.trials) == 2


def test_a_budget_ends_a_search(tmp_path: Path, data: Path, tiny_encoder_dir: Path) -> None:
    for budget, reason in (({"samples": 2}, "2 trials"), ({"sentences": 200}, "200 sentences")):
        samples = {} if "samples" in budget else {"samples": None}
        planned, context = tiny_search(
            tiny_encoder_dir, data, tmp_path / reason, changes=ONLY, space={"training.learning_rate": RATES}, budget=budget, **samples
        )
        record = search_in_process(planned, context, print_line=lambda line: None)
        assert (len(record.trials), record.reason) == (2, f"the budget of {reason} is spent")
        assert "samples" in budget or 200 <= record.spent_sentences < 200 + 144
