"""Which pinned tasks the names in a recipe stand for: those that are tested, those that choose checkpoints, those left out of training."""

from __future__ import annotations

from collections.abc import Sequence

from sentdist.errors import RecipeError
from sentdist.plan.corpora import CorpusSection
from sentdist.plan.corpora.own import OwnSection
from sentdist.plan.dev_tasks import limited
from sentdist.plan.memoized import memoized
from sentdist.plan.own_tasks import OWN, own_task, own_test_tasks
from sentdist.plan.pinned_tasks import check_names, pinned_task, selectable_task
from sentdist.plan.recipe import Recipe
from sentdist.plan.resolver import Resolver
from sentdist.plan.sections import SelectionSection
from sentdist.plan.specs import Fold, Task
from sentdist.plan.task_kinds import TASK_KINDS, ChosenTask, DevTask, have_mean
from sentdist.plan.task_names import named_task, task_names
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.spelling import did_you_mean


class RecipeTasks:
    """The tasks of one recipe. fold: None outside of a cross-validation."""

    def __init__(self, recipe: Recipe, resolver: Resolver) -> None:
        self._recipe = recipe
        self._resolver = resolver

    @memoized
    def tested(self, fold: int | None) -> tuple[ChosenTask, ...]:
        """The tasks of `evaluation.tasks`."""
        found = (chosen for name in task_names(self._recipe.evaluation.tasks) for chosen in self._tested(name, fold))
        return tuple(check_names(tuple(found), self._resolver, where="evaluation.tasks"))

    @memoized
    def choosing(self, section: SelectionSection, fold: int | None) -> Sequence[DevTask]:
        """The tasks whose mean chooses checkpoints."""
        asked = [limited(self._dev_task(name, fold), section.limit) for name in section.names]
        found = check_names(asked, self._resolver, where="selection.task")
        if not have_mean(one.kind for one in found):
            raise RecipeError(
                where="selection.task", found=f"tasks of {found[0].kind} and of others",
                expected="tasks of one kind, whose scores have a mean", remedy="Name own alone."
            )  # fmt: skip
        return found

    def graded_pairs(self, names: Sequence[str], where: str) -> tuple[Task, ...]:
        """The tasks of graded pairs that names of tasks or groups stand for."""
        for name in names:
            if not all(map(_has_graded_pairs, TASK_GROUPS.get(name, (name,)))):
                groups = (known for known, tasks in TASK_GROUPS.items() if all(map(_has_graded_pairs, tasks)))
                pairs = (*filter(_has_graded_pairs, TASKS), *groups)
                raise RecipeError(
                    where=where, found=name, expected=f"tasks of pairs: {', '.join(pairs)}", remedy=did_you_mean(name, pairs, "Correct it.")
                )
        found = (self._selectable(name, None, role="test") for name in task_names(names))
        return tuple(task for task in found if isinstance(task, Task))  # all: their kind was looked at

    @memoized
    def fold(self, number: int | None) -> Fold | None:
        """One of the recipe's folds by its number."""
        if number is None or self._recipe.folds is None:
            return None
        return Fold(number=number, num_folds=self._recipe.folds.num, seed=self._recipe.folds.seed, by=self._recipe.folds.by)

    def _tested(self, name: str, fold: int | None) -> tuple[ChosenTask, ...]:
        if name == OWN:
            return own_test_tasks(self._own(), self._resolver, where="corpus")
        card = named_task(name).card
        if card.role == "dev":
            raise RecipeError(
                where="evaluation.tasks", found=f"{name}, the accuracy on which a penalty is chosen", expected="a task that is tested",
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
        """A task that can choose; of retrieval, in a cross-validation over the queries of a corpus, the part of a fold of it."""
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
        """The first corpus of the recipe whose rows come from that retrieval source."""
        sections = (self._recipe.corpus, *self._recipe.corpora.values())
        return next((section for section in sections if section.judged_source(self._resolver) == source), None)


def _has_graded_pairs(task: str) -> bool:
    return task in TASKS and TASK_KINDS[TASKS[task].kind].is_graded_pairs
