"""Ten rounds of the soak; `python -m tests.faults --rounds 100 --seed 0` plays a hundred."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import why_not
from tests.faults.environment import Environment, running_environment
from tests.faults.kinds import ready
from tests.faults.rounds import look_later, play, undisturbed
from tests.faults.selection import plan_round

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.soak, pytest.mark.timeout(1200)]

SEED, NUM_ROUNDS = 0, 10
BUDGET_S = 240.0  # of the rounds together; what has not begun by then is skipped
VARIANTS = ("torch-1",)  # the others start Ray Train for each training: too long for every run of the tests


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("soak")


@pytest.fixture(scope="module")
def environment(logs: Path) -> Iterator[Environment]:
    if reason := why_not():
        pytest.skip(reason)
    with running_environment(logs) as made:
        yield made
        assert look_later(made, wait=True) == []


@pytest.fixture(scope="module")
def began(expected: dict[str, dict[str, str]]) -> float:
    return time.monotonic()


@pytest.fixture(scope="module")
def expected(environment: Environment, logs: Path) -> dict[str, dict[str, str]]:
    return {variant: undisturbed(environment, variant, logs) for variant in VARIANTS}


@pytest.mark.parametrize("number", range(NUM_ROUNDS))
def test_a_disturbed_sweep_ends_as_an_undisturbed_one(
    number: int, began: float, environment: Environment, expected: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    if time.monotonic() - began > BUDGET_S:
        pytest.skip(f"the rounds before took {BUDGET_S:.0f} s")
    plan = plan_round(SEED, number, ready(), VARIANTS)
    outcome = play(environment, plan, expected[plan.variant], tmp_path)
    assert not outcome.wrong, f"{outcome.line}\n{tmp_path}"
