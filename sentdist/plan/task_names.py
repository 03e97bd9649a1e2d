"""What the names of tasks and groups stand for, and those of a person's own files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sentdist.errors import LONGEST_VALUE, RecipeError, one_line
from sentdist.plan.own_tasks import OWN
from sentdist.plan.task_kinds import TASK_KINDS, TaskKind
from sentdist.plan.tasks import TASK_GROUPS, TASKS, TaskCard
from sentdist.plan.wording import not_one_of
from sentdist.spelling import similar_names
from sentdist.table_files import TABLES

OWN_SIDES = (
    f"Rows of a corpus of kind own are called {OWN}, whichever side: their test side under evaluation.tasks, dev under selection.task"
)
OTHER_FILES = "Other files of yours are named KIND=SOURCE@SPLIT, such as sts=mine.csv@dev"
FILE_END = "({})$".format("|".join(re.escape(suffix) for suffix in sorted((*TABLES, ".zip"), key=len, reverse=True)))
OWN_KINDS = tuple(kind.name for kind in TASK_KINDS.values() if kind.is_own)


@dataclass(frozen=True, kw_only=True)
class NamedTask:
    """What a name stands for: a card of the table, or a user's own file. revision: the commit of a hub data set."""

    name: str
    card: TaskCard
    revision: str | None = None

    @property
    def is_own(self) -> bool:
        return self.name not in TASKS


def task_names(given: Sequence[str]) -> tuple[str, ...]:
    """Tasks and the tasks of groups, each once, in order of first mention."""
    return tuple(dict.fromkeys(task for name in given for task in TASK_GROUPS.get(name, (name,))))


def is_task_name(given: str) -> bool:
    """Whether a name is a task, a group, or KIND=SOURCE for a file of the user's own."""
    return given in (*TASKS, *TASK_GROUPS, OWN) or given.partition("=")[0] in OWN_KINDS


def no_task(given: str) -> str:
    """What to tell of a name that is no task."""
    kind, equals, source = given.partition("=")
    if equals and kind == OWN:
        return (
            f"{one_line(given, LONGEST_VALUE)} is for `sentdist evaluate` and `compare`; a recipe has "
            f"`corpus: {{kind: own, file: {one_line(source, LONGEST_VALUE)}}}` and its held-out rows as the task own"
        )
    if equals:
        return (
            f"{not_one_of(kind, OWN_KINDS)} Data of your own are named KIND=SOURCE; `evaluate` and `compare` take what "
            "`tune` reads as own=FILE"
        )
    if re.search(rf"/|{FILE_END.removesuffix('$')}(@.*)?$", given):
        before, colon, file = given.partition(":")
        kind = "retrieval" if ".zip" in given else "sts"
        named = f"{before}={file}" if colon and before in OWN_KINDS else f"{kind}={given}, for one"
        return (
            f'"{one_line(given, LONGEST_VALUE)}" is no task. A file of yours is named with its kind: {one_line(named, LONGEST_VALUE)}. '
            "`sentdist tasks` lists the kinds"
        )
    if is_side_of_own(given):
        return f'"{one_line(given, LONGEST_VALUE)}" is no task. {OWN_SIDES}. {OTHER_FILES}'
    known = (*TASK_GROUPS, *TASKS, OWN)
    meant = similar_names(kind, known, most=3) or [name for name in known if kind.startswith(name)][-1:]
    hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return f'"{one_line(given, LONGEST_VALUE)}" is no task.{hint} `sentdist tasks` lists them, and how data of your own are named'


def is_side_of_own(given: str) -> bool:
    """Whether a name means one side of a person's own rows, such as own-dev; both sides are called own."""
    return re.fullmatch(rf"{OWN}[-_.@ ].+", given) is not None


@dataclass(frozen=True, kw_only=True)
class OwnParts:
    """What KIND=SOURCE[#COMMIT][@SPLIT] says, each part as it stands there: "" for no commit, None for no split."""

    kind: str
    source: str
    commit: str
    split: str | None


def own_parts(given: str) -> OwnParts:
    """Take the name of a task of one's own apart."""
    kind, _, place = given.partition("=")
    place, mark, split = place.partition("@")
    source, _, commit = place.partition("#")
    return OwnParts(kind=kind, source=source, commit=commit, split=split if mark else None)


def named_task(given: str) -> NamedTask:
    """A task of the table, or KIND=SOURCE[#COMMIT][@SPLIT]: a source as `corpus.source` names one. Raises RecipeError for anything else."""
    if given in TASKS:
        return NamedTask(name=given, card=TASKS[given])
    own = own_parts(given)
    known = next((known for known in OWN_KINDS if known == own.kind), None)
    if known is None or not own.source:
        raise RecipeError(
            where="task",
            found=given,
            expected=f"KIND=SOURCE or KIND=SOURCE@SPLIT, KIND one of {', '.join(OWN_KINDS)}",
            remedy="Correct it.",
        )
    if own.split == "":
        raise RecipeError(
            where="task", found=f"{given}, without a split", expected="a split behind @", remedy="Leave @ out to take all rows."
        )
    said = f"{own.kind}-{own.source.removeprefix('hub:')}-{own.split or ''}".lower()
    name = "".join(letter if letter.isalnum() else "-" for letter in said).strip("-")
    card = TaskCard(kind=known, source=own.source, split=own.split, licence="the user's", citation=None)
    return NamedTask(name=name, card=card, revision=own.commit or None)


def kind_of_scored(name: str) -> str | None:
    """The kind of a task by the name under which it is scored, which begins with the kind where it is none of the table; None for a name
    of another version."""
    kind = TASKS[name].kind if name in TASKS else name.partition("-")[0]
    return kind if kind in TASK_KINDS else None


def scored_kinds(tasks: Iterable[str]) -> dict[str, TaskKind]:
    """The kinds of tasks by the names under which they are scored. The rows of own=FILE go by that name already: it is known only when the
    file is."""
    found = {}
    for task in tasks:
        scored = None if task in TASKS or "=" in task else kind_of_scored(task)
        named = None if scored else named_task(task)
        found[named.name if named else task] = TASK_KINDS[named.card.kind if named else str(scored)]
    return found
