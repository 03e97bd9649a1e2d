"""How the named tasks of a recipe become pinned ones: what their data are, and that no data count twice."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from sentdist.errors import DataError, RecipeError, counted, listed
from sentdist.plan.resolver import Resolver
from sentdist.plan.specs import Fold, Task
from sentdist.plan.task_kinds import TASK_KINDS, ChosenTask, DevTask, ResolvedTask, ScoredTask, TaskKind, is_own_task, split_of
from sentdist.plan.task_names import FILE_END, named_task
from sentdist.plan.tasks import TASKS

AnyTask = TypeVar("AnyTask", bound=ScoredTask)


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
        if card.split is None and len(pin.splits) > 1:
            one = "test" if "test" in pin.splits else pin.splits[-1]
            note += f", of all splits ({listed(pin.splits)}): {given}@{one} scores one alone"
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
            expected="documents, queries and judgements: NAME_docs (or _faqs), NAME_queries and NAME_qrels, named as "
            "NAME, or a BEIR folder",
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
    is_one_file = _file_of(one) == _file_of(other)
    is_one_content = is_own_task(one) and is_own_task(other) and one.revision.startswith("sha256:")
    if not is_one_file and not is_one_content:
        return None
    if _in_one_way(one) != _in_one_way(other):
        return None
    if split_of(one) != split_of(other) and not (_is_whole(one, resolver) and _is_whole(other, resolver)):
        return None
    if not is_one_file:
        return "two files of one content"
    return "which are one file" if split_of(one) == split_of(other) else "which are the same rows: the file has no others"


def _in_one_way(task: ScoredTask) -> tuple[object, ...]:
    """Equal for tasks that score what they read in the same way, of the same content."""
    values = task.model_dump(exclude={"name", "source", "split"})
    return tuple(repr(values[field]) for field in sorted(values))


def _file_of(task: ScoredTask) -> str:
    """Equal where a file is spelt in other ways alone: with its suffix or without, by way of other folders."""
    return re.sub(FILE_END, "", posixpath.normpath(task.source))


def _is_whole(task: ScoredTask, resolver: Resolver) -> bool:
    """Whether all rows of its file are scored, by a split that has them all or by none."""
    split = split_of(task)
    if split is None or not is_own_task(task):
        return split is None
    commit = None if task.revision.startswith("sha256:") else task.revision
    judged = TASK_KINDS[task.kind].has_documents
    pin = resolver.source(task.source, split=split, revision=commit, columns=(), where=f"task {task.name}", judged=judged)
    return set(pin.splits) <= {split}


def _spelt(task: ScoredTask) -> str:
    """As a person names it."""
    if task.name in TASKS or not isinstance(task, ChosenTask):
        return task.name
    return f"{task.kind}={task.source}" + ("" if task.split is None else f"@{task.split}")
