"""The processes of Tune's trials, for a driver that leaves Tune before Tune has ended them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray import tune


class TrialProcesses(tune.Callback):
    """Knows the processes of the trials that were started.

    Tune ends them when it is done, or after an Exception. When SIGTERM or Ctrl-C ends the driver (SystemExit, KeyboardInterrupt), it does
    not: a trial would then see that its board is gone, open another, and have built what nobody waits for.
    """

    def __init__(self) -> None:
        self._trials: dict[str, Any] = {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._trials[trial.trial_id] = trial

    @contextmanager
    def ended_on_leaving(self) -> Iterator[None]:
        """Around Tune's run: whatever ends it ends them."""
        try:
            yield
        finally:
            for trial in self._trials.values():
                actor = trial.temporary_state.ray_actor  # None where Tune has ended it
                if actor is not None:
                    ray.kill(actor)
