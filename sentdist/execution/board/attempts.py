"""How often a piece of work may lose its process or host before it is given up."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sentdist.errors import ArtifactLost, ResourceError, SentdistError, named
from sentdist.execution.board.events import StageEvent
from sentdist.execution.cluster.ray_errors import PROCESS_LOST, cause_of, reason
from sentdist.execution.demand import Demand
from sentdist.execution.training.checkpoints import newest_step
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Rung, Train
from sentdist.store.store import ArtifactStore


class GroupLostError(Exception):
    """A worker group ended before it was asked to.
    origin: what a worker raised, which may be no more than that it lost another; or how Ray says that a worker is gone."""

    def __init__(self, origin: BaseException) -> None:
        super().__init__(origin)
        self.origin = origin


LOSSES = (*PROCESS_LOST, GroupLostError)
MOST_ANNOUNCED = 5  # hosts in a row that were given notice before a training had got on: then it would begin forever


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Losses are counted since the last checkpoint that advanced:
    a training on machines that come and go ends if it gets on between two of them.

    max_failures: losses that are tolerated without getting on. num_announced: of hosts that had been given notice, which says nothing
    against the training: of these MOST_ANNOUNCED are tolerated. step: of the newest checkpoint; 0 where there is none.
    """

    max_failures: int
    num_lost: int = 0
    num_announced: int = 0
    step: int = 0

    def after_loss(self, step: int | None, *, was_announced: bool = False) -> Attempts:
        """One more loss; step: that of the newest checkpoint, where the next attempt begins."""
        before = Attempts(max_failures=self.max_failures) if (step or 0) > self.step else self
        return replace(
            before,
            num_lost=before.num_lost + (not was_announced),
            num_announced=before.num_announced + was_announced,
            step=max(self.step, step or 0),
        )

    @property
    def are_over(self) -> bool:
        """Whether it is given up."""
        return self.num_lost > self.max_failures or self.num_announced > self._most_announced

    @property
    def _most_announced(self) -> int:
        return max(MOST_ANNOUNCED, self.max_failures)

    @property
    def next_one(self) -> str:
        """Where the next attempt begins, for people."""
        return f"goes on from its checkpoint of step {self.step}" if self.step else "starts over"

    def error(self, where: str, cause: BaseException) -> ResourceError:
        """What is said when it is given up."""
        since = f"after its checkpoint of step {self.step}" if self.step else "before its first checkpoint"
        if self.num_lost <= self.max_failures:
            return ResourceError(
                where=where,
                found=f"that a host of it was given notice to leave {self.num_announced} times {since} ({reason(cause)})",
                expected=f"at most {self._most_announced} such losses without getting on",
                remedy="Take hosts that stay longer, or set a shorter runtime.checkpoint_every_s. Submit again: it goes on where it was.",
            )
        times = "once" if self.num_lost == 1 else f"{self.num_lost} times"
        return ResourceError(
            where=where,
            found=f"that its process or host was lost {times} {since} ({reason(cause)})",
            expected=f"at most {self.max_failures} such losses without getting on (runtime.max_failures)",
            remedy="Look at `ray status` and at the nodes' memory. Submit again: it goes on where it was.",
        )


def lost_to(loss: BaseException) -> BaseException:
    """What took a process or group away, out of what Ray raises."""
    found = cause_of(loss)
    return found.origin if isinstance(found, GroupLostError) else loss


def may_be_a_lost_peer(error: Exception, demand: Demand) -> bool:
    """Whether an error in a group may mean no more than that one of its workers is gone; the board decides whether another one tries."""
    return demand.way != "task" and not isinstance(error, SentdistError)


def retry_of(stage: Stage, attempts: Attempts, loss: BaseException) -> StageEvent:
    """The event of a loss after which the stage is tried again."""
    said = f"its process or host was lost ({reason(loss)}); {attempts.next_one}"
    return StageEvent.of(stage, "retry", message=said)


def end_of(stage: Stage, error: BaseException) -> StageEvent:
    """The event of an error that ends a stage. A lost input is no failure: whoever asked for the stage asks again."""
    if isinstance(error, ArtifactLost):
        return StageEvent.of(stage, "lost", message=str(error))
    return StageEvent.of(stage, "failed", message=named(error))


def checkpoint_step(store: ArtifactStore, stage: Stage) -> int:
    """The step from which a stage would go on; 0 for what has no checkpoint."""
    return (newest_step(store, stage) or 0) if isinstance(stage, Train | Rung) else 0
