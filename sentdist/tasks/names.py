"""Names of tasks: shipped tasks and groups, KIND=SOURCE for user files, and `own` for held-out rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from sentdist.errors import LONGEST_VALUE, RecipeError, did_you_mean, one_line
from sentdist.recipe.specs import Shape
from sentdist.tasks.cards import TASK_GROUPS, TASKS, TaskCard
from sentdist.tasks.kinds import DEV_KINDS, OWN_KINDS, TASK_KINDS, have_mean
from sentdist.tasks.task import TaskKind

OWN = "own"  # the task made of the held-out rows
HELP = (
    f"Name your data KIND=SOURCE or KIND=SOURCE@SPLIT with a kind of {', '.join(OWN_KINDS)}; {OWN} names the held-out rows of a corpus of "
    "kind own. `sentdist list tasks` lists all"
)


@dataclass(frozen=True, kw_only=True)
class NamedTask:
    """A parsed name: a task of the table, or a user file."""

    name: str
    card: TaskCard
    revision: str | None = None  # commit of a hub data set

    @property
    def is_own(self) -> bool:
        return self.name not in TASKS


def task_names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the tasks with groups expanded, each once, in order of first mention."""
    return tuple(dict.fromkeys(task for name in given for task in TASK_GROUPS.get(name, (name,))))


@dataclass(frozen=True, kw_only=True)
class OwnParts:
    """The parts of KIND=SOURCE[#COMMIT][@SPLIT] as written."""

    kind: str
    source: str
    commit: str  # "" if missing
    split: str | None  # None without @


def own_parts(given: str) -> OwnParts:
    """Split the name of a task on user data into its parts."""
    kind, _, place = given.partition("=")
    place, mark, split = place.partition("@")
    source, _, commit = place.partition("#")
    return OwnParts(kind=kind, source=source, commit=commit, split=split if mark else None)


def named_task(given: str) -> NamedTask:
    """Parse the name of a task of the table, or KIND=SOURCE[#COMMIT][@SPLIT] with a source as in `corpus.source`.

    Raises:
        RecipeError: neither.
    """
    if given in TASKS:
        return NamedTask(name=given, card=TASKS[given])
    own = own_parts(given)
    if own.kind not in OWN_KINDS or not own.source or own.split == "":
        expected = f"KIND=SOURCE or KIND=SOURCE@SPLIT, KIND one of {', '.join(OWN_KINDS)}"
        raise RecipeError(where="task", found=given, expected=expected, remedy="Correct it.")
    name = _words(f"{own.kind}-{own.source.removeprefix('hub:')}-{own.split or ''}").strip("-")
    card = TaskCard(kind=own.kind, source=own.source, split=own.split, licence="the user's", citation=None)
    return NamedTask(name=name, card=card, revision=own.commit or None)


def kind_of_rows(shape: Shape) -> Literal["sts", "retrieval"]:
    """Return the kind of task for held-out rows of a shape; this task also chooses checkpoints."""
    return "sts" if shape == "graded" else "retrieval"


def own_test_names(file: str, shape: Shape) -> tuple[str, ...]:
    """Return the names of the test tasks on the rows of a user file."""
    kinds = (kind_of_rows(shape), *(("triplets",) if shape == "triplets" else ()))
    return tuple(own_name(kind, file, "test") for kind in kinds)


def own_name(kind: str, file: str, side: str) -> str:
    """Return KIND-SOURCE-SPLIT, the usual form of names of tasks on user files, without the folder."""
    return _words(f"{kind}-{PurePath(file).name}-{side}")


def _words(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())


def kind_of_scored(name: str) -> str | None:
    """Return the kind of a task by the name of its scores, which begins with the kind for user data; None for an unknown name."""
    kind = TASKS[name].kind if name in TASKS else name.partition("-")[0]
    return kind if kind in TASK_KINDS else None


def scored_kinds(tasks: Iterable[str]) -> dict[str, TaskKind]:
    """Return the kinds of tasks by the names of their scores.

    Args:
        tasks: Names as given, or names of scores; held-out rows of own=FILE only by the latter, which depends on the file.
    """
    found = {}
    for task in tasks:
        if task not in TASKS and "=" not in task and (kind := kind_of_scored(task)) is not None:
            found[task] = TASK_KINDS[kind]
        else:
            named = named_task(task)
            found[named.name] = TASK_KINDS[named.card.kind]
    return found


def check_task_name(given: str, *, where: str) -> None:
    """Raise ValueError unless a name is a task, a group, or KIND=SOURCE for a user file."""
    known = (*TASK_GROUPS, *TASKS, OWN)
    if given not in known and given.partition("=")[0] not in OWN_KINDS:
        raise ValueError(f'{where}: "{one_line(given, LONGEST_VALUE)}" is no task. {f"{did_you_mean(given, known)} {HELP}".lstrip()}')


def dev_names() -> tuple[str, ...]:
    """Return the tasks and groups of the table that may choose checkpoints: no test set that has a dev set."""
    singles = tuple(
        name for name, card in TASKS.items() if (TASK_KINDS[card.kind].chooses or card.role == "dev") and f"{name}-dev" not in TASKS
    )
    return (*singles, *(name for name, tasks in TASK_GROUPS.items() if all(task in singles for task in tasks)))


def dev_parts(given: str) -> tuple[int, ...]:
    """Return the number of tasks of each name of a selection; () without groups beside other names."""
    sizes = tuple(len(TASK_GROUPS.get(name, (name,))) for name in given.split("+"))
    return sizes if max(sizes) > 1 and len(sizes) > 1 else ()


def check_dev_tasks(given: str) -> None:
    """Raise ValueError for names of tasks that cannot choose checkpoints, with several scales, or given twice."""
    own = [kind.name for kind in DEV_KINDS if kind.chooses and kind.own is not None]
    known = (*dev_names(), OWN)
    for name in given.split("+"):
        kind, _, source = name.partition("=")
        if name not in known and not (kind in own and source):
            hint = did_you_mean(name, known, "Examples are stsb-dev, own and sts=SOURCE@dev.")
            raise ValueError(f'selection.task: "{one_line(name, LONGEST_VALUE)}" cannot choose checkpoints. {hint} {HELP}')
    names = [task for name in given.split("+") for task in TASK_GROUPS.get(name, (name,))]
    kinds = sorted({TASKS[name].kind if name in TASKS else name.partition("=")[0] for name in names if name != OWN})
    if kinds and not have_mean(kinds):
        raise ValueError(f"selection.task: found tasks of {' and of '.join(kinds)}; expected one kind, whose scores can be averaged")
    if len(set(names)) < len(names):
        raise ValueError(f"selection.task: found {given}; expected each task once")
