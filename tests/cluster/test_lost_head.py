"""The head is lost, and comes back with its tables from Redis: the worker hosts find it, sweeps end bit for bit as undisturbed ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import why_not
from tests.cluster.redis_host import why_no_redis
from tests.faults.environment import Environment, running_environment
from tests.faults.rounds import look_later, play, undisturbed
from tests.faults.selection import Injection, RoundPlan

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200)]

VARIANT = "torch-1"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lost-head")


@pytest.fixture(scope="module")
def environment(logs: Path) -> Iterator[Environment]:
    if reason := why_not() or why_no_redis():
        pytest.skip(reason)
    with running_environment(logs, with_redis=True) as made:
        yield made
        assert look_later(made, wait=True) == []


@pytest.fixture(scope="module")
def expected(environment: Environment, logs: Path) -> dict[str, str]:
    return undisturbed(environment, VARIANT, logs)


@pytest.mark.parametrize(
    ("number", "fault", "moment"),
    [
        (0, "kill -9 GCS", "a training has its second checkpoint"),
        (1, "head gone and back", "a training has its second checkpoint"),
        (2, "head gone and back", "RCL trains on its banks"),
    ],
)
def test_a_sweep_ends_as_an_undisturbed_one(
    number: int, fault: str, moment: str, environment: Environment, expected: dict[str, str], tmp_path: Path
) -> None:
    plan = RoundPlan(seed=0, number=number, variant=VARIANT, injections=(Injection(fault=fault, moment=moment, lasts_s=4.0),))
    outcome = play(environment, plan, expected, tmp_path)
    assert outcome.injected[0].at_s is not None, "it came too late"
    assert not outcome.wrong, f"{outcome.line}\n{tmp_path}"
