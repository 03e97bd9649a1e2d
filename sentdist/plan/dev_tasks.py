"""Which tasks may choose checkpoints, alone and together."""

from __future__ import annotations

from sentdist.errors import LONGEST_VALUE, RecipeError, one_line
from sentdist.plan.own_tasks import OWN
from sentdist.plan.specs import Task
from sentdist.plan.task_kinds import TASK_KINDS, DevTask, have_mean
from sentdist.plan.task_names import OTHER_FILES, OWN_SIDES, is_side_of_own
from sentdist.plan.tasks import TASK_GROUPS, TASKS, TaskCard
from sentdist.spelling import did_you_mean


def can_choose(card: TaskCard) -> bool:
    """Whether a task may choose checkpoints."""
    return TASK_KINDS[card.kind].chooses or card.role == "dev"


def dev_parts(given: str) -> tuple[int, ...]:
    """How many tasks each name of a selection stands for, a group for several; () where it has no groups."""
    sizes = tuple(len(TASK_GROUPS.get(name, (name,))) for name in given.split("+"))
    return sizes if max(sizes) > 1 and len(sizes) > 1 else ()


def dev_names() -> tuple[str, ...]:
    """Tasks and groups of the table that may choose: no test set in place of its dev set."""
    singles = tuple(name for name, card in TASKS.items() if can_choose(card) and f"{name}-dev" not in TASKS)
    return (*singles, *(name for name, tasks in TASK_GROUPS.items() if all(task in singles for task in tasks)))


def check_dev_tasks(given: str) -> None:
    """Raise ValueError for names that choose no checkpoint: of another kind, on several scales, or twice."""
    own = tuple(kind.name for kind in TASK_KINDS.values() if kind.chooses and kind.is_own)
    known = (*dev_names(), *(f"{kind}=SOURCE" for kind in own))
    for name in given.split("+"):
        if name != OWN and name not in known and not (name.partition("=")[0] in own and name.partition("=")[2]):
            alike = [one for one in known if ("=" in one) == ("=" in name)]
            hint = did_you_mean(name, alike, "Such are stsb-dev, own and sts=SOURCE@dev.")
            if is_side_of_own(name):
                raise ValueError(f'selection.task: "{one_line(name, LONGEST_VALUE)}" chooses no checkpoint. {OWN_SIDES}. {OTHER_FILES}')
            raise ValueError(f'selection.task: "{one_line(name, LONGEST_VALUE)}" chooses no checkpoint. {hint} `sentdist tasks` lists them')
    names = [task for name in given.split("+") for task in TASK_GROUPS.get(name, (name,))]
    kinds = sorted({TASKS[name].kind if name in TASKS else name.partition("=")[0] for name in names if name != OWN})
    if kinds and not have_mean(kinds):
        raise ValueError(f"selection.task: found tasks of {' and of '.join(kinds)}; expected tasks of one kind, whose scores have a mean")
    if len(set(names)) < len(names):
        raise ValueError(f"selection.task: found {given}; expected each task once")


def limited(task: DevTask, limit: int | None) -> DevTask:
    """The task with so many of its pairs or queries; all for None. Raises RecipeError for a kind that is scored whole."""
    if limit is None:
        return task
    if not isinstance(task, Task) or task.own is not None:
        raise RecipeError(
            where="selection.limit",
            found=f"{limit} beside {task.name}",
            expected="tasks of graded pairs or of retrieval",
            remedy="Leave it out" + ("; corpus.held_out says how many rows dev gets." if isinstance(task, Task) else "."),
        )
    return task.model_copy(update={"limit": limit})
