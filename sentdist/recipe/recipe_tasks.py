"""Resolve the task names of a recipe to pinned tasks: test tasks, dev tasks, and tasks whose pairs are left out of training."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from sentdist.corpora import CorpusSection
from sentdist.corpora.own import OwnSection
from sentdist.errors import DataError, RecipeError, counted, did_you_mean, listed
from sentdist.recipe.recipe import Recipe
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.sections import SelectionSection
from sentdist.recipe.specs import Fold, Task
from sentdist.recipe.stage import memoized
from sentdist.recipe.task_kinds import TASK_KINDS, ChosenTask, DevTask, ResolvedTask, ScoredTask, TaskKind, have_mean, is_own_task, split_of
from sentdist.recipe.task_names import FILE_END, OWN, limited, named_task, own_task, own_test_tasks, task_names
from sentdist.recipe.tasks import TASK_GROUPS, TASKS

AnyTask = TypeVar("AnyTask", bound=ScoredTask)


def pinned_task(given: str, resolver: Resolver) -> ChosenTask:
    """Return the task of that name with its data pinned.

    Raises:
        DataError: the data are missing or have another shape.
    """
    named = named_task(given)
    card = named.card
    kind = TASK_KINDS[card.kind]
    assert kind.make is not None, "a kind that no card and no file has"
    columns = card.columns or kind.columns
    # Columns of a shipped task of graded pairs are known; those of a user file are not.
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
            note += f" of all splits ({listed(pin.splits)}): {given}@{one} scores one split"
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
    """Raise DataError if a classifier would be scored on its training rows, or the source has no split `train`."""
    where, rows = f"task {given}", "Leave the split out: ten nested folds of all rows."
    if split == "train":
        found = "split train, on which the classifier is fitted"
        raise DataError(where=where, found=found, expected="another split to score", remedy=rows)
    if splits and "train" not in splits:
        expected = "a split train, on which the classifier is fitted"
        raise DataError(where=where, found=f"splits {', '.join(splits)}", expected=expected, remedy=f"Rename that split. {rows}")


def _check_judged(kind: TaskKind, source: str, resolver: Resolver, *, where: str) -> None:
    """Raise DataError if a source of queries and documents is a single table."""
    if kind.has_documents and not resolver.is_retrieval(source):
        expected = "documents, queries and judgements: NAME_docs (or _faqs), NAME_queries and NAME_qrels, as NAME, or a BEIR folder"
        raise DataError(where=where, found=f"one table, {source}", expected=expected, remedy=_instead_of_one_table(source))


def _instead_of_one_table(source: str) -> str:
    """Return the remedy: name the whole source that the file belongs to, or the file in another way."""
    if part := re.fullmatch(r"(.+)_(docs|documents|faqs|queries|qrels)(\.\w+)*", source):
        return f"Name all three as retrieval={part[1]}."
    if part := re.fullmatch(r"(.+)/(corpus|queries)\.jsonl", source):
        return f"Name the folder: retrieval={part[1]}."
    return f"`evaluate` and `compare` score a file of questions and answers as own={source}; a recipe uses it as a corpus of kind own."


def selectable_task(name: str, resolver: Resolver, *, document_field: str, fold: Fold | None, fold_role: str | None) -> DevTask:
    """Return a pinned task that can choose checkpoints; a retrieval task with its document field and fold.

    Args:
        fold_role: Which part of the fold is scored, `dev` or `test`; None without a fold.
    """
    task = pinned_task(name, resolver)
    if not isinstance(task, Task):
        assert isinstance(task, DevTask), "recipes allow only dev tasks to choose checkpoints"
        return task
    field = document_field if TASK_KINDS[task.kind].has_documents else "answer"
    return Task.model_validate(task.model_dump() | {"document_field": field, "fold": fold, "fold_role": fold_role})


def check_names(tasks: Sequence[AnyTask], resolver: Resolver, *, where: str) -> Sequence[AnyTask]:
    """Return the tasks unchanged.

    Raises:
        RecipeError: two tasks with one name, or with the same rows, which would count twice.
    """
    for place, task in enumerate(tasks):
        for other in tasks[:place]:
            if (why := _one_and_the_same(other, task, resolver)) is not None:
                found = f"{_spelt(other)} and {_spelt(task)}, {why}"
                raise RecipeError(where=where, found=found, expected="each file once", remedy="Leave one of them out.")
    for name, count in Counter(task.name for task in tasks).items():
        if count > 1:
            raise RecipeError(where=where, found=f"two tasks called {name}", expected="different names", remedy="Rename one of the files.")
    return tasks


def _one_and_the_same(one: ScoredTask, other: ScoredTask, resolver: Resolver) -> str | None:
    """Return why two tasks score the same rows, to follow their names in a message; None if they differ."""
    is_one_file = _file_of(one) == _file_of(other)
    is_one_content = is_own_task(one) and is_own_task(other) and one.revision.startswith("sha256:")
    if not is_one_file and not is_one_content:
        return None
    if _in_one_way(one) != _in_one_way(other):
        return None
    if split_of(one) != split_of(other) and not (_is_whole(one, resolver) and _is_whole(other, resolver)):
        return None
    if not is_one_file:
        return "two files with the same content"
    return "which are one file" if split_of(one) == split_of(other) else "which are the same rows: the file has no others"


def _in_one_way(task: ScoredTask) -> tuple[object, ...]:
    """Return a value that is equal for tasks that score the same content in the same way."""
    values = task.model_dump(exclude={"name", "source", "split"})
    return tuple(repr(values[field]) for field in sorted(values))


def _file_of(task: ScoredTask) -> str:
    """Return a value that is equal for different spellings of one file: with or without suffix, through other folders."""
    return re.sub(FILE_END, "", posixpath.normpath(task.source))


def _is_whole(task: ScoredTask, resolver: Resolver) -> bool:
    """Return whether all rows of the file are scored: without a split, or with one that has them all."""
    split = split_of(task)
    if split is None or not is_own_task(task):
        return split is None
    commit = None if task.revision.startswith("sha256:") else task.revision
    judged = TASK_KINDS[task.kind].has_documents
    pin = resolver.source(task.source, split=split, revision=commit, columns=(), where=f"task {task.name}", judged=judged)
    return set(pin.splits) <= {split}


def _spelt(task: ScoredTask) -> str:
    """Return the task as the user names it."""
    if task.name in TASKS or not isinstance(task, ChosenTask):
        return task.name
    return f"{task.kind}={task.source}" + ("" if task.split is None else f"@{task.split}")


class RecipeTasks:
    """The tasks of one recipe; `fold` is None without cross-validation."""

    def __init__(self, recipe: Recipe, resolver: Resolver) -> None:
        self._recipe = recipe
        self._resolver = resolver

    @memoized
    def tested(self, fold: int | None) -> tuple[ChosenTask, ...]:
        """Return the tasks of `evaluation.tasks`."""
        found = (chosen for name in task_names(self._recipe.evaluation.tasks) for chosen in self._tested(name, fold))
        return tuple(check_names(tuple(found), self._resolver, where="evaluation.tasks"))

    @memoized
    def choosing(self, section: SelectionSection, fold: int | None) -> Sequence[DevTask]:
        """Return the tasks whose mean score chooses checkpoints."""
        asked = [limited(self._dev_task(name, fold), section.limit) for name in section.names]
        found = check_names(asked, self._resolver, where="selection.task")
        if not have_mean(one.kind for one in found):
            raise RecipeError(
                where="selection.task", found=f"tasks of {found[0].kind} and of other kinds",
                expected="tasks of one kind, whose scores can be averaged", remedy="Name own alone."
            )  # fmt: skip
        return found

    def graded_pairs(self, names: Sequence[str], where: str) -> tuple[Task, ...]:
        """Return the tasks of graded pairs for names of tasks or groups.

        Raises:
            RecipeError: a task of another kind.
        """
        for name in names:
            if not all(map(_has_graded_pairs, TASK_GROUPS.get(name, (name,)))):
                groups = (known for known, tasks in TASK_GROUPS.items() if all(map(_has_graded_pairs, tasks)))
                pairs = (*filter(_has_graded_pairs, TASKS), *groups)
                raise RecipeError(
                    where=where, found=name, expected=f"tasks of pairs: {', '.join(pairs)}", remedy=did_you_mean(name, pairs, "Correct it.")
                )
        found = (self._selectable(name, None, role="test") for name in task_names(names))
        return tuple(task for task in found if isinstance(task, Task))  # all of them: their kind was checked above

    @memoized
    def fold(self, number: int | None) -> Fold | None:
        """Return a fold of the recipe by its number; None without cross-validation."""
        if number is None or self._recipe.folds is None:
            return None
        return Fold(number=number, num_folds=self._recipe.folds.num, seed=self._recipe.folds.seed, by=self._recipe.folds.by)

    def _tested(self, name: str, fold: int | None) -> tuple[ChosenTask, ...]:
        if name == OWN:
            return own_test_tasks(self._own(), self._resolver, where="corpus")
        card = named_task(name).card
        if card.role == "dev":
            raise RecipeError(
                where="evaluation.tasks", found=f"{name}, the dev accuracy by which a penalty is chosen", expected="a test task",
                remedy=f"Use {name.removesuffix('-dev')}; {name} is for selection.task.",
            )  # fmt: skip
        is_selectable = TASK_KINDS[card.kind].chooses
        return (self._selectable(name, fold, role="test") if is_selectable else pinned_task(name, self._resolver),)

    def _dev_task(self, name: str, fold: int | None) -> DevTask:
        return own_task(self._own(), self._resolver, "dev", where="corpus") if name == OWN else self._selectable(name, fold, role="dev")

    def _own(self) -> OwnSection:
        assert isinstance(self._recipe.corpus, OwnSection), "the recipe has checked it"
        return self._recipe.corpus

    def _selectable(self, name: str, fold: int | None, *, role: str) -> DevTask:
        """Return a task that can choose checkpoints; of a retrieval task in a cross-validation, its part of the fold."""
        card = named_task(name).card
        section = self._judged(card.source) if TASK_KINDS[card.kind].has_documents and fold is not None else None
        return selectable_task(
            name,
            self._resolver,
            document_field=(section or self._recipe.corpus).documents_by,
            fold=None if section is None else self.fold(fold),
            fold_role=None if section is None else role,
        )

    def _judged(self, source: str) -> CorpusSection | None:
        """Return the first corpus of the recipe whose rows come from that retrieval source."""
        sections = (self._recipe.corpus, *self._recipe.corpora.values())
        return next((section for section in sections if section.judged_source(self._resolver) == source), None)


def _has_graded_pairs(task: str) -> bool:
    return task in TASKS and TASK_KINDS[TASKS[task].kind].is_graded_pairs
