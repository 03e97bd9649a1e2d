"""Read the files of tasks while planning: count texts, report incomplete sets; results are cached by content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from sentdist.data.files import FileFacts, recall_note, remember_note
from sentdist.data.generated import PREFIX as GENERATED
from sentdist.errors import DataError
from sentdist.files import code_digest
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Scores, Train
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.links import LinkTask
from sentdist.tasks.sts import LimitedTask
from sentdist.tasks.task import LoadedTask, Task, load_task

Planned = TypeVar("Planned", Plan, PlannedSearch)


def with_contents(planned: Planned, stages: Iterable[Stage], context: Context) -> Planned:
    """Add the sizes of tasks on user files, and notes on tasks, to a plan or search of these stages; raise DataError as `contents_of`."""
    found: tuple[dict[str, int], tuple[str, ...]] = contents_of(stages, context)
    return replace(planned, rows=planned.rows | found[0], notes=(*planned.notes, *found[1]))


def contents_of(stages: Iterable[Stage], context: Context) -> tuple[dict[str, int], tuple[str, ...]]:
    """Read the tasks that these stages score or choose checkpoints by, except generated ones; cached per version of the code.

    Returns:
        The number of different texts of each task on a user file, by its name; and notes on sets smaller than published.

    Raises:
        DataError: as `load_task`, for all tasks together; else found only when the first encoder is scored, hours later.
    """
    read = dict.fromkeys(task for stage in stages for task in _tasks_of(stage) if _is_file(task))
    num_texts: dict[str, int] = {}
    notes: dict[str, None] = {}
    wrong: dict[str, DataError] = {}
    for part in dict.fromkeys(part for task in read for part in _parts(task)):
        try:
            found, lacking = _looked_at(part, context)
        except DataError as error:
            wrong.setdefault(str(error), error)
            continue
        if part.is_own:
            num_texts[part.name] = max(num_texts.get(part.name, 0), found)
        if lacking:
            notes[lacking] = None
    if len(wrong) > 1:
        raise DataError(where=f"{len(wrong)} tasks", found=" ".join(wrong), expected="", remedy="Nothing was started.")
    if wrong:
        raise next(iter(wrong.values()))
    return num_texts, tuple(notes)


def _tasks_of(stage: Stage) -> tuple[Task, ...]:
    return stage.tasks if isinstance(stage, Scores) else stage.dev_tasks if isinstance(stage, Train) else ()


def _parts(task: Task) -> Iterator[Task]:
    """The parts of a task to read; of a fold its whole collection and the first fold: if these can be read, all folds can."""
    if not isinstance(task, LimitedTask) or task.fold is None:
        yield task
        return
    yield task.model_copy(update={"fold": None, "fold_role": None})
    yield task.model_copy(update={"fold": task.fold.model_copy(update={"number": 0}), "fold_role": "test"})


def _is_file(task: Task) -> bool:
    """Whether a task's data can be damaged or changed; generated data cannot. Triples are checked with their corpus."""
    return not isinstance(task, LinkTask) and not task.source.startswith(GENERATED)


def _looked_at(task: Task, context: Context) -> tuple[int, str]:
    """The number of different texts that a task encodes, and a sentence if it is smaller than published, else ""."""
    identity = [f"{task.model_dump_json()} in {context.data_root}", code_digest()]
    if (known := recall_note(identity)) is None:
        loaded = load_task(task, context.data_root, context.folders)
        known = FileFacts(digest="", num_rows=len(set(loaded.sentences)), columns=(), splits=(), note=_lacking(task, loaded))
        remember_note(identity, known)
    return known.num_rows, known.note


def _lacking(task: Task, loaded: LoadedTask) -> str:
    """A sentence if a shipped task is smaller than the published set, else ""; parts of a set and user files have no published size."""
    published, kind = task.num_items, TASK_KINDS[task.kind]
    if published is None or kind.counts_candidates or (isinstance(task, LimitedTask) and (task.fold or task.limit)):
        return ""
    in_all = len(loaded.sentences) * published // task.num_encoded(published)  # rows to fit a classifier on are counted, too
    found = loaded.texts().num_items if kind.has_documents else in_all
    if found >= published:
        return ""
    return f"{task.name}: {found:,} items, but the published set has {published:,}: scores are not comparable with published ones."
