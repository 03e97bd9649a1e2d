"""How the names of tasks, groups and a user's own files become pinned tasks."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sentdist.errors import LONGEST_VALUE, DataError, RecipeError, counted, one_line
from sentdist.plan.own_tasks import OWN
from sentdist.plan.resolver import Resolver
from sentdist.plan.specs import Fold, Task
from sentdist.plan.task_kinds import TASK_KINDS, ChosenTask, DevTask, ResolvedTask, ScoredTask, TaskKind, have_mean, is_own_task
from sentdist.plan.tasks import TASK_GROUPS, TASKS, TaskCard
from sentdist.plan.wording import not_one_of
from sentdist.spelling import did_you_mean, similar_names

OWN_SIDES = (
    f"Rows of a corpus of kind own are called {OWN}, whichever side: their test side under evaluation.tasks, dev under selection.task"
)
OTHER_FILES = "Other files of yours are named KIND=SOURCE@SPLIT, such as sts=mine.csv@dev"
FILE_END = r"\.(parquet|csv|tsv|json|jsonl|jsonl\.gz|zip)$"
AnyTask = TypeVar("AnyTask", bound=ScoredTask)
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
        return f"{not_one_of(kind, OWN_KINDS)} Data of your own are named KIND=SOURCE; `evaluate` and `compare` take what `tune` reads as own=FILE"
    if re.search(rf"/|{FILE_END.removesuffix('$')}(@.*)?$", given):
        before, colon, file = given.partition(":")
        kind = "retrieval" if ".zip" in given else "sts"
        named = f"{before}={file}" if colon and before in OWN_KINDS else f"{kind}={given}, for one"
        return f'"{one_line(given, LONGEST_VALUE)}" is no task. A file of yours is named with its kind: {one_line(named, LONGEST_VALUE)}. `sentdist tasks` lists the kinds'
    if _is_side_of_own(given):
        return f'"{one_line(given, LONGEST_VALUE)}" is no task. {OWN_SIDES}. {OTHER_FILES}'
    known = (*TASK_GROUPS, *TASKS, OWN)
    meant = similar_names(kind, known, most=3) or [name for name in known if kind.startswith(name)][-1:]
    hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return f'"{one_line(given, LONGEST_VALUE)}" is no task.{hint} `sentdist tasks` lists them, and how data of your own are named'


def _is_side_of_own(given: str) -> bool:
    return re.fullmatch(rf"{OWN}[-_.@ ].+", given) is not None


def own_parts(given: str) -> tuple[str, str, str, str | None]:
    """Kind, source, commit and split of KIND=SOURCE[#COMMIT][@SPLIT], as they stand there: None for no split, empty for no commit."""
    kind, _, place = given.partition("=")
    place, mark, split = place.partition("@")
    source, _, commit = place.partition("#")
    return kind, source, commit, split if mark else None


def named_task(given: str) -> NamedTask:
    """A task of the table, or KIND=SOURCE[#COMMIT][@SPLIT]: a source as `corpus.source` names one. Raises RecipeError for anything else."""
    if given in TASKS:
        return NamedTask(name=given, card=TASKS[given])
    kind, source, commit, split = own_parts(given)
    known = next((known for known in OWN_KINDS if known == kind), None)
    if known is None or not source:
        raise RecipeError(
            where="task",
            found=given,
            expected=f"KIND=SOURCE or KIND=SOURCE@SPLIT, KIND one of {', '.join(OWN_KINDS)}",
            remedy="Correct it.",
        )
    if split == "":
        raise RecipeError(
            where="task", found=f"{given}, without a split", expected="a split behind @", remedy="Leave @ out to take all rows."
        )
    said = f"{kind}-{source.removeprefix('hub:')}-{split or ''}".lower()
    name = "".join(letter if letter.isalnum() else "-" for letter in said).strip("-")
    card = TaskCard(kind=known, source=source, split=split, licence="the user's", citation=None)
    return NamedTask(name=name, card=card, revision=commit or None)


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


def pinned_task(given: str, resolver: Resolver) -> ChosenTask:
    """The task of that name with its data pinned. Raises DataError for data that are not there or not of that shape."""
    named = named_task(given)
    card = named.card
    kind = TASK_KINDS[card.kind]
    assert kind.make is not None, "a kind that no card and no file has"
    columns = card.columns or kind.columns
    # A shipped task of graded pairs is known to have its columns; a user's own file is not.
    wanted = () if kind.is_graded_pairs and not named.is_own else (*columns, *kind.further(card))
    pinned = partial(
        resolver.source, card.source, revision=named.revision, columns=wanted, where=f"task {given}", judged=kind.has_documents
    )
    pin = pinned(split=card.split)
    if kind.needs_train and card.split is not None:
        if named.is_own:
            _check_train(given, card.split, pin.splits)
        for further in ("train", *([card.dev] if card.dev else [])):
            pinned(split=further)
    if named.is_own:
        _check_judged(kind, card.source, resolver, where=f"task {given}")
        note = f"{given}: {counted(pin.num_rows, 'judgement' if kind.has_documents else 'row')}"
        resolver.notes += [note] if note not in resolver.notes else []
    return kind.make(
        ResolvedTask(
            name=named.name,
            source=pin.name,
            revision=pin.revision,
            card=card,
            columns=columns,
            documents=card.documents or ("document",),
            splits=pin.splits,
            is_own=named.is_own,
        )
    )


def _check_train(given: str, split: str, splits: Sequence[str]) -> None:
    """Raise DataError where a classifier would be scored on the rows that it is fitted on, or has none. splits: those of the source."""
    where, rows = f"task {given}", "Leave the split out: ten nested folds of all rows."
    if split == "train":
        found = "split train, on which the classifier is fitted"
        raise DataError(where=where, found=found, expected="another one to score", remedy=rows)
    if splits and "train" not in splits:
        expected = "train, on whose rows the classifier is fitted"
        raise DataError(where=where, found=f"splits {', '.join(splits)}", expected=expected, remedy=f"Name that split so. {rows}")


def _check_judged(kind: TaskKind, source: str, resolver: Resolver, *, where: str) -> None:
    """Raise DataError for a source of queries and documents that is one table."""
    if kind.has_documents and not resolver.is_retrieval(source):
        raise DataError(
            where=where,
            found=f"one table, {source}",
            expected="documents, queries and judgements: NAME_docs (or _faqs), NAME_queries and NAME_qrels, named as NAME, or a BEIR folder",
            remedy=_instead_of_one_table(source),
        )


def _instead_of_one_table(source: str) -> str:
    """What to name in its place: all that it is a part of, or the same file otherwise."""
    if part := re.fullmatch(r"(.+)_(docs|documents|faqs|queries|qrels)(\.\w+)*", source):
        return f"Name all three as retrieval={part[1]}."
    if part := re.fullmatch(r"(.+)/(corpus|queries)\.jsonl", source):
        return f"Name the folder: retrieval={part[1]}."
    return f"`evaluate` and `compare` score a file of questions and answers as own={source}; a recipe takes it as its corpus of kind own."


def selectable_task(name: str, resolver: Resolver, *, document_field: str, fold: Fold | None, fold_role: str | None) -> DevTask:
    """A task that can choose checkpoints, pinned; one of retrieval as a cross-validation sees it."""
    task = pinned_task(name, resolver)
    if not isinstance(task, Task):
        assert isinstance(task, DevTask), "the recipe lets nothing else choose checkpoints"
        return task
    field = document_field if TASK_KINDS[task.kind].has_documents else "answer"
    return Task.model_validate(task.model_dump() | {"document_field": field, "fold": fold, "fold_role": fold_role})


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


def check_names(tasks: Sequence[AnyTask], resolver: Resolver, *, where: str) -> Sequence[AnyTask]:
    """The tasks. Raises RecipeError for two of one name, by which scores are kept, and for rows by two names: they would count twice."""
    for place, task in enumerate(tasks):
        for other in tasks[:place]:
            if (why := _one_and_the_same(other, task, resolver)) is not None:
                found = f"{_spelt(other)} and {_spelt(task)}, {why}"
                raise RecipeError(where=where, found=found, expected="each file once", remedy="Leave one of them out.")
    for name, count in Counter(task.name for task in tasks).items():
        if count > 1:
            raise RecipeError(where=where, found=f"two tasks called {name}", expected="a name for each", remedy="Rename one of the files.")
    return tasks


def _one_and_the_same(one: ScoredTask, other: ScoredTask, resolver: Resolver) -> str | None:
    """Why two tasks would score the same rows, to stand behind their names; None where they are two."""
    if _in_one_way(one) != _in_one_way(other):
        return None
    is_one_file = _file_of(one) == _file_of(other)
    is_one_content = is_own_task(one) and is_own_task(other) and _revision_of(one).startswith("sha256:")
    if not is_one_file and not is_one_content:
        return None
    if _split_of(one) != _split_of(other) and not (_is_whole(one, resolver) and _is_whole(other, resolver)):
        return None
    if not is_one_file:
        return "two files of one content"
    return "which are one file" if _split_of(one) == _split_of(other) else "which are the same rows: the file has no others"


def _in_one_way(task: ScoredTask) -> tuple[object, ...]:
    """Equal for tasks that score what they read in the same way, of the same content."""
    values = task.model_dump(exclude={"name", "source", "split"})
    return tuple(repr(values[field]) for field in sorted(values))


def _file_of(task: ScoredTask) -> str:
    """Equal where a file is spelt in other ways alone: with its suffix or without, by way of other folders."""
    return re.sub(FILE_END, "", posixpath.normpath(getattr(task, "source", task.name)))


def _revision_of(task: ScoredTask) -> str:
    return str(getattr(task, "revision", ""))


def _split_of(task: ScoredTask) -> str | None:
    split: str | None = getattr(task, "split", None)
    return split


def _is_whole(task: ScoredTask, resolver: Resolver) -> bool:
    """Whether all rows of its file are scored, by a split that has them all or by none."""
    split, source = _split_of(task), getattr(task, "source", None)
    if split is None or source is None or not is_own_task(task):
        return split is None
    commit = None if _revision_of(task).startswith("sha256:") else _revision_of(task)
    judged = TASK_KINDS[task.kind].has_documents
    pin = resolver.source(source, split=split, revision=commit, columns=(), where=f"task {task.name}", judged=judged)
    return set(pin.splits) <= {split}


def _spelt(task: ScoredTask) -> str:
    """As a person names it."""
    if task.name in TASKS or not isinstance(task, ChosenTask):
        return task.name
    return f"{task.kind}={task.source}" + ("" if task.split is None else f"@{task.split}")


def check_lexical(lexical: str | None, tasks: Sequence[ScoredTask], *, where: str) -> None:
    """Raise RecipeError where words alone cannot score a task."""
    if lexical is None:
        return
    unfit = next((task for task in tasks if lexical not in TASK_KINDS[task.kind].floors), None)
    if unfit is not None:
        found = (
            "bm25 for pairs of sentences"
            if lexical == "bm25" and TASK_KINDS[unfit.kind].is_graded_pairs
            else f"{lexical} for {unfit.name} ({unfit.kind})"
        )
        expected = f"{' and '.join(kind.name for kind in TASK_KINDS.values() if lexical in kind.floors)} tasks only"
        others = [floor for floor in TASK_KINDS[unfit.kind].floors if floor != lexical]
        remedy = f"Use {others[0]}." if others else "Score this task in a recipe of its own."
        raise RecipeError(where=f"{where}.lexical", found=found, expected=expected, remedy=remedy)


def can_choose(card: TaskCard) -> bool:
    """Whether a task may choose checkpoints."""
    return TASK_KINDS[card.kind].chooses or card.role == "dev"


def dev_parts(given: str) -> tuple[int, ...]:
    """How many tasks each name of a selection stands for, a group for several; () where it has no groups."""
    sizes = tuple(len(TASK_GROUPS.get(name, (name,))) for name in given.split("+"))
    return sizes if max(sizes) > 1 and len(sizes) > 1 else ()


def check_dev_tasks(given: str) -> None:
    """Raise ValueError for names that choose no checkpoint: of another kind, on several scales, or twice."""
    own = tuple(kind.name for kind in TASK_KINDS.values() if kind.chooses and kind.is_own)
    groups = tuple(
        name
        for name, tasks in TASK_GROUPS.items()
        if all(can_choose(TASKS[task]) and f"{task}-dev" not in TASKS for task in tasks)  # not a test set in place of its dev set
    )
    singles = tuple(name for name, card in TASKS.items() if can_choose(card) and f"{name}-dev" not in TASKS)
    known = (*singles, *groups, *(f"{kind}=SOURCE" for kind in own))
    for name in given.split("+"):
        if name != OWN and name not in known and not (name.partition("=")[0] in own and name.partition("=")[2]):
            alike = [one for one in known if ("=" in one) == ("=" in name)]
            hint = did_you_mean(name, alike, "Such are stsb-dev, own and sts=SOURCE@dev.")
            if _is_side_of_own(name):
                raise ValueError(f'selection.task: "{one_line(name, LONGEST_VALUE)}" chooses no checkpoint. {OWN_SIDES}. {OTHER_FILES}')
            raise ValueError(f'selection.task: "{one_line(name, LONGEST_VALUE)}" chooses no checkpoint. {hint} `sentdist tasks` lists them')
    names = [task for name in given.split("+") for task in TASK_GROUPS.get(name, (name,))]
    kinds = sorted({TASKS[name].kind if name in TASKS else name.partition("=")[0] for name in names if name != OWN})
    if kinds and not have_mean(kinds):
        raise ValueError(f"selection.task: found tasks of {' and of '.join(kinds)}; expected tasks of one kind, whose scores have a mean")
    if len(set(names)) < len(names):
        raise ValueError(f"selection.task: found {given}; expected each task once")
