"""The learning rate from step to step, written out: a warm-up, a line down to 0, and a training of any length learns something."""

from __future__ import annotations

import pytest

from sentdist.learning.optimization import Optimization, adamw, schedule
from tests.parity.toy import ToyEncoder


@pytest.mark.parametrize(
    ("num_steps", "warmup_fraction", "stretch", "rates"),
    [(4, 0.5, 1.0, [0.0, 0.5, 1.0, 0.5]), (4, 0.0, 2.0, [1.0, 7 / 8, 6 / 8, 5 / 8]), (1, 1.0, 5.0, [1.0]), (2, 1.0, 1.0, [0.0, 0.5])],
)
def test_rates_of_all_steps(num_steps: int, warmup_fraction: float, stretch: float, rates: list[float]) -> None:
    optimization = Optimization(num_steps=num_steps, lr=1e-3, warmup_fraction=warmup_fraction, schedule_stretch=stretch)
    optimizer = adamw(ToyEncoder(), optimization)
    found, scheduled = [], schedule(optimizer, optimization)
    for _ in range(num_steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduled.step()
    assert found == pytest.approx([1e-3 * rate for rate in rates])
