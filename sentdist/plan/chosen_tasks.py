"""How the names of tasks and groups become pinned tasks."""

from __future__ import annotations

from collections.abc import Sequence

from sentdist.errors import RecipeError
from sentdist.plan.resolver import Resolver
from sentdist.plan.specs import Fold, Task
from sentdist.plan.task_kinds import ChosenTask, ClassificationTask, ScoredTask
from sentdist.plan.tasks import LEXICAL_KINDS, TASK_GROUPS, TASKS


def task_names(given: Sequence[str]) -> tuple[str, ...]:
    """Tasks and the tasks of groups, each once, in order of first mention."""
    return tuple(dict.fromkeys(task for name in given for task in TASK_GROUPS.get(name, (name,))))


def pinned_task(name: str, resolver: Resolver) -> ChosenTask:
    """The task of that name with its data pinned. Raises DataError for data that are not there or not of that shape."""
    card = TASKS[name]
    if card.kind == "classification":
        splits = () if card.split is None else ("train", card.split, *([card.dev] if card.dev else []))
        columns = (*card.columns, card.label)
        pins = [
            resolver.source(card.source, split=split, revision=None, columns=columns, where=f"task {name}") for split in splits or (None,)
        ]
        return ClassificationTask(
            name=name,
            source=pins[0].name,
            revision=pins[0].revision,
            columns=card.columns,
            label=card.label,
            split=card.split,
            dev=card.dev,
        )
    return pair_or_retrieval_task(name, resolver)


def pair_or_retrieval_task(
    name: str, resolver: Resolver, *, document_field: str = "answer", fold: Fold | None = None, fold_role: str | None = None
) -> Task:
    """A task of graded pairs or of retrieval, pinned; such a task can also choose checkpoints."""
    card = TASKS[name]
    pin = resolver.source(card.source, split=card.split, revision=None, columns=(), where=f"task {name}")
    return Task.model_validate(
        {
            "name": name, "kind": card.kind, "source": pin.name, "revision": pin.revision, "split": card.split,
            "document_field": document_field if card.kind == "retrieval" else "answer", "fold": fold, "fold_role": fold_role,
        }
    )  # fmt: skip


def check_lexical(lexical: str | None, tasks: Sequence[ScoredTask], *, where: str) -> None:
    """Raise RecipeError where words alone cannot score a task."""
    if lexical is None:
        return
    unfit = next((task for task in tasks if task.kind != "links" and task.kind not in LEXICAL_KINDS[lexical]), None)
    if unfit is not None:
        found = "bm25 for pairs of sentences" if lexical == "bm25" and unfit.kind == "sts" else f"{lexical} for {unfit.name} ({unfit.kind})"
        expected = f"tasks of {', '.join(LEXICAL_KINDS[lexical])} only"
        remedy = "Use word_overlap." if unfit.kind in LEXICAL_KINDS["word_overlap"] else "Score this task in a recipe of its own."
        raise RecipeError(where=f"{where}.lexical", found=found, expected=expected, remedy=remedy)
