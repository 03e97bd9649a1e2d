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
        self._actors: set[ray.actor.ActorHandle] = set()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._actors.add(trial.temporary_state.ray_actor)  # not asked of the trial later: between two trials Tune keeps one of none

    @contextmanager
    def ended_on_leaving(self) -> Iterator[None]:
        """Around Tune's run: whatever ends it ends them."""
        try:
            yield
        finally:
            for actor in self._actors:
                ray.kill(actor)  # nothing happens to one that has ended
