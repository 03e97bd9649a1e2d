"""Early stopping: both readings of "the loss has not decreased for 3 steps"."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import reduce

import pytest

from sentdist.errors import RecipeError
from sentdist.learning.optimization import EarlyStopping


def steps_until_over(rule: EarlyStopping, losses: list[float]) -> int | None:
    for step, loss in enumerate(losses, start=1):
        rule = rule.after(loss)
        if rule.is_over:
            return step
    return None


@pytest.mark.parametrize(
    ("losses", "stop"),
    [
        ([5, 4, 3, 2, 1], None),
        ([5, 5, 5, 5], 4),  # equal is not a decrease
        ([5, 6, 7, 4, 5, 6], None),  # a new lowest loss starts over
        ([5, 6, 7, 4, 5, 6, 4.5], 7),
        ([5, 4.5, 4.6, 4.55, 4.52], 5),  # lower than the step before is not enough: lower than the lowest
    ],
)
def test_patience_on_steps(losses: list[float], stop: int | None) -> None:
    assert steps_until_over(EarlyStopping(patience=3), losses) == stop


@pytest.mark.parametrize(
    ("losses", "stop"),
    [
        ([5, 1, 4, 1, 3, 1, 2, 1], None),  # means fall though steps jump
        ([2, 4, 9, 9, 9, 9, 1, 1], None),  # one good interval in time
        ([2, 4, 9, 9, 9, 9, 3, 3.1], 8),  # three intervals at or above the lowest mean of 3
        ([2, 4, 9, 9, 9, 9, 3], None),  # the third interval is not complete
    ],
)
def test_patience_on_interval_means(losses: list[float], stop: int | None) -> None:
    assert steps_until_over(EarlyStopping(patience=3, steps_per_interval=2), losses) == stop


@pytest.mark.parametrize("steps_per_interval", [1, 3])
def test_state_survives_json_at_any_step(steps_per_interval: int) -> None:
    losses = [5.0, 4.0, 4.5, 4.2, 3.9, 4.0, 4.1, 4.2]
    start = EarlyStopping(patience=3, steps_per_interval=steps_per_interval)
    whole = reduce(EarlyStopping.after, losses, start)
    for cut in range(len(losses)):
        first = reduce(EarlyStopping.after, losses[:cut], start)
        restored = EarlyStopping(**json.loads(json.dumps(asdict(first))))
        assert reduce(EarlyStopping.after, losses[cut:], restored) == whole


@pytest.mark.parametrize("fields", [{"patience": 0}, {"steps_per_interval": 0}])
def test_senseless_rules_are_refused(fields: dict) -> None:
    with pytest.raises(RecipeError, match=next(iter(fields))):
        EarlyStopping(**fields)
