"""What tasks of a person's own hold: read while planning by what reads them when they are scored, and remembered by their content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sentdist.code_digest import code_digest
from sentdist.data.sources.file_facts import FileFacts, recall_note, remember_note
from sentdist.plan.specs import Task
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Scores, Train
from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.task_kinds import ScoredTask, is_own_task
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context


def with_contents(plan: Plan, context: Context) -> Plan:
    """The plan with what its own tasks come to.

    Raises:
        DataError: as `num_texts_of`.
    """
    return replace(plan, rows=plan.rows | num_texts_of(plan.stages, context))


def search_with_contents(planned: PlannedSearch, context: Context) -> PlannedSearch:
    """The search with what the own tasks of its trainings and finalists come to.

    Raises:
        DataError: as `num_texts_of`.
    """
    stages = planned.plan([(method, planned.first(method)) for method in planned.methods]).stages
    return replace(planned, rows=planned.rows | num_texts_of(stages, context))


def num_texts_of(stages: Iterable[Stage], context: Context) -> dict[str, int]:
    """How many different texts each task of a person's own among these stages encodes, by its name: those that are scored and those that
    choose checkpoints. A task that was read before, by this very code, is not read again.

    Raises:
        DataError: as `load_task`: what would else be found when the first encoder is scored, hours later.
    """
    own = dict.fromkeys(task for stage in stages for task in _tasks_of(stage) if is_own_task(task))
    found: dict[str, int] = {}
    for part in dict.fromkeys(part for task in own for part in _parts(task)):
        found[part.name] = max(found.get(part.name, 0), _num_texts(part, context))
    return found


def _tasks_of(stage: Stage) -> tuple[ScoredTask, ...]:
    if isinstance(stage, Scores):
        return stage.tasks
    return stage.selection.tasks if isinstance(stage, Train) and stage.selection is not None else ()


def _parts(task: ScoredTask) -> Iterator[ScoredTask]:
    """What to read of a task: of the folds of a collection, the whole and the first one, for what holds of these holds of all."""
    if not isinstance(task, Task) or task.fold is None:
        yield task
        return
    yield task.model_copy(update={"fold": None, "fold_role": None})
    yield task.model_copy(update={"fold": task.fold.model_copy(update={"number": 0}), "fold_role": "test"})


def _num_texts(task: ScoredTask, context: Context) -> int:
    identity = [f"{task.model_dump_json()} in {context.data_root}", code_digest()]
    if (known := recall_note(identity)) is not None:
        return known.num_rows
    from sentdist.stages.tasks.load import load_task  # brings pyarrow and numpy, which planning can mostly do without

    num_texts = len(set(load_task(task, context.data_root, context.folders).sentences))
    remember_note(identity, FileFacts(digest="", num_rows=num_texts, columns=(), splits=()))
    return num_texts
