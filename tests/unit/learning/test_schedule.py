"""The learning rate from step to step: a training of any length learns something."""

from __future__ import annotations

import pytest

from sentdist.learning.optimization import Optimization, adamw, schedule
from tests.parity.toy import ToyEncoder


@pytest.mark.parametrize("stretch", [1.0, 5.0])
@pytest.mark.parametrize("num_steps", [1, 2, 3, 10])
@pytest.mark.parametrize("warmup_fraction", [0.0, 0.1, 0.5, 1.0])
def test_some_step_has_a_rate_above_zero(num_steps: int, warmup_fraction: float, stretch: float) -> None:
    optimization = Optimization(num_steps=num_steps, lr=1e-3, warmup_fraction=warmup_fraction, schedule_stretch=stretch)
    optimizer = adamw(ToyEncoder(), optimization)
    rates, scheduled = [], schedule(optimizer, optimization)
    for _ in range(num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduled.step()
    assert 0.0 < max(rates) <= 1e-3 and min(rates) >= 0.0
    assert num_steps > 1 or rates == [1e-3]
