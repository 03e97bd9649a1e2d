"""Which tasks choose a checkpoint during training, and how their scores become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from sentdist.frozen import Frozen
from sentdist.plan.specs import View
from sentdist.plan.task_kinds import DevTask, ScoredTask

OF_THE_DATA = ("kind", "source", "revision", "split", "role", "fold", "fold_role")  # not the name, nor how much of it is scored


class Selection(Frozen):
    """Score a dev task every so often and keep the best weights; of several tasks the mean of their scores counts.

    parts: numbers of tasks, in order, whose means count as one each, as USEB averages two sets of tweets before it averages tasks;
    (): each task counts as one.
    """

    later_fields: ClassVar[tuple[str, ...]] = ("further_tasks", "parts")

    task: DevTask
    view: View = View()
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of the training rows of an epoch
    further_tasks: tuple[DevTask, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def tasks(self) -> tuple[DevTask, ...]:
        return (self.task, *self.further_tasks)

    @property
    def places(self) -> Iterator[range]:
        """The tasks of each part, by their place."""
        first = 0
        for size in self.parts or (1,) * len(self.tasks):
            yield range(first, first + size)
            first += size

    @property
    def name(self) -> str:
        """As a recipe spells it, with the tasks of groups one by one."""
        return "+".join(task.name for task in self.tasks)


def chosen_and_scored(selection: Selection | None, tasks: Sequence[ScoredTask]) -> tuple[str, ...]:
    """Names of the scored tasks whose data chose the weights, too, by whatever name and however few of their items."""
    chose = () if selection is None else [_data_of(task) for task in selection.tasks]
    return tuple(task.name for task in tasks if _data_of(task) in chose)


def _data_of(task: ScoredTask) -> tuple[object, ...]:
    return tuple(getattr(task, field, None) for field in OF_THE_DATA)
