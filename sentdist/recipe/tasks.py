"""Pin the tasks of a recipe: test tasks, dev tasks, and tasks whose pairs are left out of training."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar

from sentdist.corpora import CorpusSection
from sentdist.corpora.own import OwnSection
from sentdist.errors import DataError, RecipeError, counted, did_you_mean, listed
from sentdist.recipe.recipe import Recipe
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.sections import SelectionSection
from sentdist.recipe.specs import Fold
from sentdist.recipe.stage import memoized
from sentdist.tasks.cards import TASK_GROUPS, TASKS
from sentdist.tasks.kinds import TASK_KINDS, have_mean
from sentdist.tasks.names import OWN, kind_of_rows, named_task, own_name, task_names
from sentdist.tasks.sts import LimitedTask, StsTask
from sentdist.tasks.task import Task

AnyTask = TypeVar("AnyTask", bound=Task)


def pinned_task(given: str, resolver: Resolver) -> Task:
    """Return the task of that name with its data pinned.

    Raises:
        DataError: the data are missing or have another shape.
    """
    named = named_task(given)
    card, where = named.card, f"task {given}"
    kind = TASK_KINDS[card.kind]
    columns = card.columns or kind.columns
    # Columns of a shipped task of graded pairs are known; those of a user file are not.
    wanted = () if kind.is_graded_pairs and not named.is_own else (*columns, *kind.further(card))
    pinned = partial(resolver.source, card.source, revision=named.revision, columns=wanted, where=where)
    pin = pinned(split=card.split)
    if kind.needs_train and card.split is not None:
        if named.is_own and (card.split == "train" or (pin.splits and "train" not in pin.splits)):
            raise DataError(
                where=where, found=f"split {card.split} of {', '.join(pin.splits)}",
                expected="a split train to fit on, and another to score",
                remedy="Leave the split out: ten nested folds of all rows.",
            )  # fmt: skip
        if named.is_own and "dev" in pin.splits:
            card = replace(card, dev="dev")
        for further in ("train", *([card.dev] if card.dev else [])):
            pinned(split=further)
    if named.is_own:
        if kind.has_documents and not resolver.is_retrieval(card.source):
            raise DataError(
                where=where, found=f"one table, {card.source}",
                expected="NAME_docs, NAME_queries and NAME_qrels, as NAME, or a BEIR folder",
                remedy=f"`evaluate` and `compare` score a file of questions and answers as own={card.source}.",
            )  # fmt: skip
        note = f"{given}: {counted(pin.num_rows, 'judgement' if kind.has_documents else 'row')}"
        if card.split is None and len(pin.splits) > 1:
            one = "test" if "test" in pin.splits else pin.splits[-1]
            note += f" of all splits ({listed(pin.splits)}): {given}@{one} scores one split"
        resolver.notes += [note] if note not in resolver.notes else []
    fields = {"name": named.name, "source": pin.name, "revision": pin.revision, "split": card.split}
    return kind.value.model_validate(fields | kind.value.of_card(card, columns))


def own_task(section: OwnSection, resolver: Resolver, side: Literal["dev", "test"], *, kind: str | None = None) -> Task:
    """Return the task on the dev or test rows of a user file: sts for graded pairs, retrieval of the positives for other shapes."""
    pin = section.pinned(resolver, where="corpus")
    if side == "dev" and pin.rows.split is None and not pin.rows.dev:
        remedy = "Hold some out by corpus.held_out.dev, or leave selection out."
        raise RecipeError(where="corpus", found="corpus.held_out.dev: 0", expected="dev rows for selection", remedy=remedy)
    kind = kind or kind_of_rows(pin.rows.shape)
    name = own_name(kind, pin.name, side)
    fields = {"name": name, "source": pin.name, "revision": pin.revision, "split": side, "own": pin.rows}
    return TASK_KINDS[kind].value.model_validate(fields)


def check_names(tasks: Sequence[AnyTask], *, where: str) -> Sequence[AnyTask]:
    """Return the tasks unchanged.

    Raises:
        RecipeError: two tasks with one name, or with the same rows, which would count twice.
    """
    for seen in (lambda task: task.name, _identity):
        known: dict[object, Task] = {}
        for task in tasks:
            if (other := known.setdefault(seen(task), task)) is not task:
                found = f"{other.name} ({other.source}) and {task.name} ({task.source})"
                raise RecipeError(where=where, found=found, expected="each file once, under different names", remedy="Leave one out.")
    return tasks


def _identity(task: Task) -> object:
    """What is equal for tasks that score the same rows in the same way; user files are known by their content."""
    pinned = task.is_own and task.revision.startswith("sha256:")
    file = task.revision if pinned else posixpath.normpath(task.source)
    return file, repr(sorted(task.model_dump(exclude={"name", "source"}).items()))


class RecipeTasks:
    """The tasks of one recipe; `fold` is None without cross-validation."""

    def __init__(self, recipe: Recipe, resolver: Resolver) -> None:
        self._recipe = recipe
        self._resolver = resolver

    @memoized
    def tested(self, fold: int | None) -> tuple[Task, ...]:
        """Return the tasks of `evaluation.tasks`."""
        found = (chosen for name in task_names(self._recipe.evaluation.tasks) for chosen in self._tested(name, fold))
        return tuple(check_names(tuple(found), where="evaluation.tasks"))

    @memoized
    def choosing(self, section: SelectionSection, fold: int | None) -> Sequence[Task]:
        """Return the tasks whose mean score chooses checkpoints."""
        found = check_names([self._limited(self._dev_task(name, fold), section.limit) for name in section.names], where="selection.task")
        if not have_mean(one.kind for one in found):
            raise RecipeError(
                where="selection.task", found=f"tasks of {found[0].kind} and of other kinds",
                expected="tasks of one kind, whose scores can be averaged", remedy="Name own alone."
            )  # fmt: skip
        return found

    def graded_pairs(self, names: Sequence[str], where: str) -> tuple[StsTask, ...]:
        """Return the tasks of graded pairs for names of tasks or groups.

        Raises:
            RecipeError: a task of another kind.
        """
        found = []
        for name in task_names(names):
            task = self._selectable(name, None, role="test") if name in TASKS else None
            if not isinstance(task, StsTask):
                pairs = [known for known, card in TASKS.items() if TASK_KINDS[card.kind].is_graded_pairs]
                remedy = did_you_mean(name, (*pairs, *TASK_GROUPS), "Correct it.")
                raise RecipeError(where=where, found=name, expected=f"tasks of pairs: {', '.join(pairs)}", remedy=remedy)
            found.append(task)
        return tuple(found)

    @memoized
    def fold(self, number: int | None) -> Fold | None:
        """Return a fold of the recipe by its number; None without cross-validation."""
        if number is None or self._recipe.folds is None:
            return None
        return Fold(number=number, num_folds=self._recipe.folds.num, seed=self._recipe.folds.seed, by=self._recipe.folds.by)

    def _tested(self, name: str, fold: int | None) -> tuple[Task, ...]:
        if name == OWN:
            first = own_task(self._own(), self._resolver, "test")
            assert first.own is not None
            of_triplets = (own_task(self._own(), self._resolver, "test", kind="triplets"),) if first.own.shape == "triplets" else ()
            return (first, *of_triplets)
        if named_task(name).card.role == "dev":
            raise RecipeError(
                where="evaluation.tasks", found=f"{name}, the dev accuracy by which a penalty is chosen", expected="a test task",
                remedy=f"Use {name.removesuffix('-dev')}; {name} is for selection.task.",
            )  # fmt: skip
        return (self._selectable(name, fold, role="test"),)

    def _dev_task(self, name: str, fold: int | None) -> Task:
        return own_task(self._own(), self._resolver, "dev") if name == OWN else self._selectable(name, fold, role="dev")

    def _limited(self, task: Task, limit: int | None) -> Task:
        """Return the task limited to so many of its pairs or queries; None: all."""
        if limit is None:
            return task
        if not isinstance(task, LimitedTask) or task.own is not None:
            expected = "tasks of graded pairs or of retrieval; corpus.held_out sets the number of dev rows"
            raise RecipeError(where="selection.limit", found=f"{limit} beside {task.name}", expected=expected, remedy="Leave it out.")
        return task.model_copy(update={"limit": limit})

    def _own(self) -> OwnSection:
        assert isinstance(self._recipe.corpus, OwnSection), "the recipe has checked it"
        return self._recipe.corpus

    def _selectable(self, name: str, fold: int | None, *, role: str) -> Task:
        """Return a task; a retrieval task with the field of its documents and, in a cross-validation, its part of the fold."""
        task = pinned_task(name, self._resolver)
        if not TASK_KINDS[task.kind].has_documents:
            return task
        section = None if fold is None else self._judged(named_task(name).card.source)
        folded = {} if section is None else {"fold": self.fold(fold), "fold_role": role}
        field = (section or self._recipe.corpus).documents_by
        return type(task).model_validate(task.model_dump() | {"document_field": field} | folded)

    def _judged(self, source: str) -> CorpusSection | None:
        """Return the first corpus of the recipe whose rows come from that retrieval source."""
        sections = (self._recipe.corpus, *self._recipe.corpora.values())
        return next((section for section in sections if section.judged_source(self._resolver) == source), None)
