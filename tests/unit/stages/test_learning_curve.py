"""Points of a learning curve: means at fixed places, also of a training that goes on from between two."""

from __future__ import annotations

from sentdist.learning.loop import StepReport, StepSeconds
from sentdist.stages.learning_curve import Curve


def test_a_point_of_a_curve_is_the_mean_of_the_steps_since_the_last() -> None:
    took = StepSeconds(data=0.0, forward=0.5, loss=0.0, backward=0.0, optimizer=0.0, waiting=0.0)
    reports = [
        StepReport(step=step, loss=loss, grad_norm=1.0, lr=0.1, num_sentences=10 + step, seconds=took)
        for step, loss in enumerate((8.0, 6.0, 4.0, 1.0))
    ]
    whole, before, after = (Curve(log_every=every) for every in (2, 4, 4))
    for report in reports:
        whole.add(report)
    points = [(point["step"], point["loss"], point["sentences_per_s"]) for point in whole.history]
    assert points == [(1, 8.0, 20.0), (2, 6.0, 22.0), (4, 2.5, 25.0)] and whole.summary()["sentences_per_s"] == 23.0
    for report in reports[:2]:
        before.add(report)
    after.go_on(before.since_last_point())
    for report in reports[2:]:
        after.add(report)
    assert (after.history[-1]["step"], after.history[-1]["loss"]) == (4, 11 / 3), "as if nothing had been between"
