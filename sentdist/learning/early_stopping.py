"""When an entropy encoder's training is done: its loss has not decreased for a while."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sentdist.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """The rule "stop when the loss has not decreased for `patience` intervals", with its state; a value: `after` gives the next one.

    Both readings of RCL's "3 steps" (arXiv 2209.13241, App. A.1.1;
    the paper does not say which) are this one rule: an interval of one optimizer step looks at the raw loss, an interval of, say,
    a tenth of an epoch at the mean loss over it. On noisy batches the first stops after some ten steps.
    "Not decreased" compares with the lowest loss so far; the last weights are kept.

    patience: intervals without a new lowest loss that end the training. steps_per_interval: optimizer steps.
    lowest, num_waited, loss_sum, num_steps: the state; loss_sum and num_steps belong to the interval that is not complete.
    """

    patience: int = 3
    steps_per_interval: int = 1
    lowest: float | None = None
    num_waited: int = 0
    loss_sum: float = 0.0
    num_steps: int = 0

    def __post_init__(self) -> None:
        for field, value in (("patience", self.patience), ("steps_per_interval", self.steps_per_interval)):
            if value < 1:
                raise RecipeError(
                    where=f"stopping.{field}", found=repr(value), expected="at least 1", remedy="The paper waits for 3 steps."
                )

    @property
    def is_over(self) -> bool:
        """Whether training should stop now."""
        return self.num_waited >= self.patience

    def after(self, loss: float) -> EarlyStopping:
        """The state after one more optimizer step with this loss (nats, global mean)."""
        loss_sum, num_steps = self.loss_sum + loss, self.num_steps + 1
        if num_steps < self.steps_per_interval:
            return replace(self, loss_sum=loss_sum, num_steps=num_steps)
        mean = loss_sum / num_steps
        if self.lowest is None or mean < self.lowest:
            return replace(self, lowest=mean, num_waited=0, loss_sum=0.0, num_steps=0)
        return replace(self, num_waited=self.num_waited + 1, loss_sum=0.0, num_steps=0)
