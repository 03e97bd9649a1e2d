"""Parse and check names of tasks: shipped tasks and groups, KIND=SOURCE for user files, and `own` for held-out rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, assert_never

from sentdist.corpora.own import OwnSection
from sentdist.errors import LONGEST_VALUE, RecipeError, did_you_mean, one_line, similar_names
from sentdist.files import TABLES
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.specs import Shape, Task
from sentdist.recipe.task_kinds import TASK_KINDS, DevTask, TaskKind, TripletTask, have_mean
from sentdist.recipe.tasks import TASK_GROUPS, TASKS, TaskCard
from sentdist.recipe.wording import not_one_of

OWN = "own"  # the task made of the held-out rows
Side = Literal["dev", "test"]


def own_task(section: OwnSection, resolver: Resolver, side: Side, *, where: str) -> Task:
    """Return the task on the dev or test rows of a user file: sts for graded pairs, retrieval of the positives for other shapes."""
    pin = section.pinned(resolver, where=where)
    if side == "dev" and pin.rows.split is None and not pin.rows.dev:
        remedy = "Hold some out by corpus.held_out.dev, or leave selection out."
        raise RecipeError(where=where, found="corpus.held_out.dev: 0", expected="dev rows for selection", remedy=remedy)
    kind = kind_of_rows(pin.rows.shape)
    return Task(name=_name(kind, pin.name, side), kind=kind, source=pin.name, revision=pin.revision, split=side, own=pin.rows)


def own_test_tasks(section: OwnSection, resolver: Resolver, *, where: str) -> tuple[Task | TripletTask, ...]:
    """Return the tasks on the test rows of a user file: `own_task`, and for triplets also their accuracy."""
    first, pin = own_task(section, resolver, "test", where=where), section.pinned(resolver, where=where)
    if pin.rows.shape != "triplets":
        return (first,)
    return first, TripletTask(name=_name("triplets", pin.name, "test"), source=pin.name, revision=pin.revision, split="test", own=pin.rows)


def kind_of_rows(shape: Shape) -> Literal["sts", "retrieval"]:
    """Return the kind of task for held-out rows of a shape; this task also chooses checkpoints."""
    match shape:
        case "graded":
            return "sts"
        case "pairs" | "triplets" | "faq":
            return "retrieval"
    assert_never(shape)


def own_test_names(file: str, shape: Shape) -> tuple[str, ...]:
    """Return the names of the test tasks on the rows of a user file."""
    kinds = (kind_of_rows(shape), *(("triplets",) if shape == "triplets" else ()))
    return tuple(_name(kind, file, "test") for kind in kinds)


def _name(kind: str, file: str, side: Side) -> str:
    """Return KIND-SOURCE-SPLIT, the usual form of names of tasks on user files, without the folder."""
    return "".join(letter if letter.isalnum() else "-" for letter in f"{kind}-{PurePath(file).name}-{side}".lower())


OWN_SIDES = f"Held-out rows of a corpus of kind own are always called {OWN}: test rows in evaluation.tasks, dev rows in selection.task"
OTHER_FILES = "Name your other files KIND=SOURCE@SPLIT, such as sts=mine.csv@dev"
FILE_END = "({})$".format("|".join(re.escape(suffix) for suffix in sorted((*TABLES, ".zip"), key=len, reverse=True)))
OWN_KINDS = tuple(kind.name for kind in TASK_KINDS.values() if kind.is_own)


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


def is_task_name(given: str) -> bool:
    """Return whether a name is a task, a group, or KIND=SOURCE for a user file."""
    return given in (*TASKS, *TASK_GROUPS, OWN) or given.partition("=")[0] in OWN_KINDS


def no_task(given: str) -> str:
    """Return the error text for a name that is no task."""
    kind, equals, source = given.partition("=")
    if equals and kind == OWN:
        return (
            f"{one_line(given, LONGEST_VALUE)} is for `sentdist evaluate` and `compare`; in a recipe write "
            f"`corpus: {{kind: own, file: {one_line(source, LONGEST_VALUE)}}}` and the task own for its held-out rows"
        )
    if equals:
        return f"{not_one_of(kind, OWN_KINDS)} Name your data KIND=SOURCE; `evaluate` and `compare` take files for `tune` as own=FILE"
    if re.search(rf"/|{FILE_END.removesuffix('$')}(@.*)?$", given):
        before, colon, file = given.partition(":")
        kind = "retrieval" if ".zip" in given else "sts"
        named = f"{before}={file}" if colon and before in OWN_KINDS else f"{kind}={given}, for example"
        return (
            f'"{one_line(given, LONGEST_VALUE)}" is no task. Name your file with its kind: {one_line(named, LONGEST_VALUE)}. '
            "`sentdist list tasks` lists the kinds"
        )
    if is_side_of_own(given):
        return f'"{one_line(given, LONGEST_VALUE)}" is no task. {OWN_SIDES}. {OTHER_FILES}'
    known = (*TASK_GROUPS, *TASKS, OWN)
    meant = similar_names(kind, known, most=3) or [name for name in known if kind.startswith(name)][-1:]
    hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return f'"{one_line(given, LONGEST_VALUE)}" is no task.{hint} `sentdist list tasks` lists all, and how to name your data'


def is_side_of_own(given: str) -> bool:
    """Return whether a name such as own-dev means one split of the held-out rows; both are called own."""
    return re.fullmatch(rf"{OWN}[-_.@ ].+", given) is not None


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
    known = next((known for known in OWN_KINDS if known == own.kind), None)
    if known is None or not own.source:
        expected = f"KIND=SOURCE or KIND=SOURCE@SPLIT, KIND one of {', '.join(OWN_KINDS)}"
        raise RecipeError(where="task", found=given, expected=expected, remedy="Correct it.")
    if own.split == "":
        raise RecipeError(
            where="task", found=f"{given}, without a split", expected="a split after @", remedy="Leave @ out to use all rows."
        )
    text = f"{own.kind}-{own.source.removeprefix('hub:')}-{own.split or ''}".lower()
    name = "".join(letter if letter.isalnum() else "-" for letter in text).strip("-")
    card = TaskCard(kind=known, source=own.source, split=own.split, licence="the user's", citation=None)
    return NamedTask(name=name, card=card, revision=own.commit or None)


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
        scored = None if task in TASKS or "=" in task else kind_of_scored(task)
        named = None if scored else named_task(task)
        found[named.name if named else task] = TASK_KINDS[named.card.kind if named else str(scored)]
    return found


def can_choose(card: TaskCard) -> bool:
    """Return whether a task may choose checkpoints."""
    return TASK_KINDS[card.kind].chooses or card.role == "dev"


def dev_parts(given: str) -> tuple[int, ...]:
    """Return the number of tasks of each name of a selection; () without groups beside other names."""
    sizes = tuple(len(TASK_GROUPS.get(name, (name,))) for name in given.split("+"))
    return sizes if max(sizes) > 1 and len(sizes) > 1 else ()


def dev_names() -> tuple[str, ...]:
    """Return the tasks and groups of the table that may choose checkpoints: no test set that has a dev set."""
    singles = tuple(name for name, card in TASKS.items() if can_choose(card) and f"{name}-dev" not in TASKS)
    return (*singles, *(name for name, tasks in TASK_GROUPS.items() if all(task in singles for task in tasks)))


def check_dev_tasks(given: str) -> None:
    """Raise ValueError for names of tasks that cannot choose checkpoints, with several scales, or given twice."""
    own = tuple(kind.name for kind in TASK_KINDS.values() if kind.chooses and kind.is_own)
    known = (*dev_names(), *(f"{kind}=SOURCE" for kind in own))
    for name in given.split("+"):
        if name != OWN and name not in known and not (name.partition("=")[0] in own and name.partition("=")[2]):
            alike = [one for one in known if ("=" in one) == ("=" in name)]
            hint = did_you_mean(name, alike, "Examples are stsb-dev, own and sts=SOURCE@dev.")
            hint = f"{OWN_SIDES}. {OTHER_FILES}" if is_side_of_own(name) else f"{hint} `sentdist list tasks` lists them"
            raise ValueError(f'selection.task: "{one_line(name, LONGEST_VALUE)}" cannot choose checkpoints. {hint}')
    names = [task for name in given.split("+") for task in TASK_GROUPS.get(name, (name,))]
    kinds = sorted({TASKS[name].kind if name in TASKS else name.partition("=")[0] for name in names if name != OWN})
    if kinds and not have_mean(kinds):
        raise ValueError(f"selection.task: found tasks of {' and of '.join(kinds)}; expected one kind, whose scores can be averaged")
    if len(set(names)) < len(names):
        raise ValueError(f"selection.task: found {given}; expected each task once")


def limited(task: DevTask, limit: int | None) -> DevTask:
    """Return the task limited to so many of its pairs or queries; None: all.

    Raises:
        RecipeError: a kind of task without limits.
    """
    if limit is None:
        return task
    if not isinstance(task, Task) or task.own is not None:
        raise RecipeError(
            where="selection.limit",
            found=f"{limit} beside {task.name}",
            expected="tasks of graded pairs or of retrieval",
            remedy="Leave it out" + ("; corpus.held_out sets the number of dev rows." if isinstance(task, Task) else "."),
        )
    return task.model_copy(update={"limit": limit})
