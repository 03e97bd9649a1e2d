"""How many steps a training has, and after which of them something is due."""

from __future__ import annotations

from dataclasses import dataclass

from sentdist.learning.early_stopping import EarlyStopping
from sentdist.plan.stages import Train


@dataclass(frozen=True, kw_only=True)
class TrainSchedule:
    """The steps of a training.

    num_steps: of all epochs. steps_in_epoch: of the epoch under way, since epochs may differ in length. dev_interval: steps between two
    dev scores.
    """

    num_steps: int
    steps_in_epoch: int
    dev_interval: int

    @staticmethod
    def of(stage: Train, num_rows: int) -> TrainSchedule:
        """num_rows: of its corpus."""
        per_epoch = _steps_per_epoch(stage, num_rows)
        every = 1.0 if stage.selection is None else stage.selection.every_fraction
        return TrainSchedule(
            num_steps=per_epoch * stage.training.epochs, steps_in_epoch=per_epoch, dev_interval=max(1, round(per_epoch * every))
        )

    def has_dev_at(self, in_epoch: int) -> bool:
        """Whether dev is scored after this many steps of an epoch: not in its last half interval, since dev is scored at its end."""
        return in_epoch % self.dev_interval == 0 and in_epoch + self.dev_interval / 2 <= self.steps_in_epoch


def early_stopping(stage: Train, num_rows: int) -> EarlyStopping | None:
    """The rule by which a training may end before its last step, at its beginning; None: it has none. num_rows: of its corpus."""
    rule = stage.stopping
    if rule is None:
        return None
    is_by_step = rule.reading == "step"
    steps = 1 if is_by_step else max(1, round(_steps_per_epoch(stage, num_rows) * rule.interval_fraction))
    return EarlyStopping(patience=rule.patience, steps_per_interval=steps)


def _steps_per_epoch(stage: Train, num_rows: int) -> int:
    return max(1, stage.training.steps_per_epoch(num_rows))
