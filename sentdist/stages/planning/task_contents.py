"""Read the files of tasks while planning: count texts, report incomplete sets and shared rows; results are cached by content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from sentdist.corpora.kind import CorpusStage
from sentdist.data.files import FileFacts, recall_note, remember_note
from sentdist.data.generated import PREFIX as GENERATED
from sentdist.data.hub import PREFIX
from sentdist.errors import DataError, counted, hub_trouble
from sentdist.files import code_digest
from sentdist.recipe.specs import Task
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Bank, Scores, Targets, Train
from sentdist.recipe.suggestions import PlannedSearch
from sentdist.recipe.task_kinds import TASK_KINDS, ChosenTask, ScoredTask, is_own_task, published_items
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context

if TYPE_CHECKING:
    from sentdist.stages.tasks.loaded_task import LoadedTask


def notes_on_shared_rows(stages: Iterable[Stage], context: Context) -> Iterator[str]:
    """Yield a sentence for every two tasks of one kind that are averaged and share rows, if one reads a user file.

    Equal tasks were refused before. Results are cached per version of the code.
    """
    for where, tasks, effect in dict.fromkeys(found for stage in stages if (found := _mean_of(stage)) is not None):
        for one, other in combinations(tasks, 2):
            if one.kind != other.kind or not (is_own_task(one) or is_own_task(other)) or _is_fold(one) or _is_fold(other):
                continue
            shared, sizes = _shared_rows(one, other, context)
            if shared:
                of = " and ".join(f"{size:,}" for size in sizes)
                rows = counted(shared, "row")
                yield f"{where}: {one.name} and {other.name} have {rows} of their {of} in common: {effect}"


def _mean_of(stage: Stage) -> tuple[str, tuple[ScoredTask, ...], str] | None:
    """The recipe's field of the tasks that a stage averages, the tasks, and the effect of shared rows; None without a mean."""
    match stage:
        case Scores():
            return "evaluation.tasks", stage.tasks, "an average counts them in each, and its interval treats them as one group."
        case Train():
            return "selection.task", stage.dev_tasks, "their mean, which chooses checkpoints, counts them in each."
        case CorpusStage() | Targets() | Bank():
            return None
    raise TypeError(f"tasks that the stage {stage.kind} averages are not implemented")


def _is_fold(task: ScoredTask) -> bool:
    return getattr(task, "fold", None) is not None


def _shared_rows(one: ScoredTask, other: ScoredTask, context: Context) -> tuple[int, tuple[int, ...]]:
    """The number of items with the same texts and the same correct texts, and the number of items of each task."""
    identity = [f"rows of {one.model_dump_json()} and {other.model_dump_json()} in {context.data_root}", code_digest()]
    if (known := recall_note(identity)) is None:
        rows = [_rows(task, context) for task in (one, other)]
        shared = (rows[0] & rows[1]).total()
        sizes = tuple((task.name, found.total()) for task, found in zip((one, other), rows, strict=True))
        known = FileFacts(digest="", num_rows=shared, columns=(), splits=sizes)
        remember_note(identity, known)
    return known.num_rows, tuple(size for _, size in known.splits)


def _rows(task: ScoredTask, context: Context) -> Counter[tuple[object, ...]]:
    """Each item as its texts and those that are correct for it."""
    from sentdist.stages.tasks.load import load_task  # brings pyarrow and numpy, which planning can mostly do without

    texts = load_task(task, context.data_root, context.folders).texts()
    right: list[set[str]] = [set() for _ in texts.sentences]
    for item, _, text in texts.pairs:
        right[item].add(text)
    return Counter((own, frozenset(others)) for own, others in zip(texts.sentences, right, strict=True))


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Sizes of tasks on user files, and notes on all tasks."""

    num_texts: dict[str, int]  # different texts that a task on a user file encodes, by its name
    notes: tuple[str, ...]  # what could not be read yet, sets smaller than published, and rows in common


def with_contents(plan: Plan, context: Context) -> Plan:
    """Add the sizes of tasks on user files, and notes on tasks, to a plan.

    Raises:
        DataError: as `contents_of`.
    """
    found = contents_of(plan.stages, context)
    return replace(plan, rows=plan.rows | found.num_texts, notes=(*plan.notes, *found.notes))


def search_with_contents(planned: PlannedSearch, context: Context) -> PlannedSearch:
    """Add the sizes of tasks on user files, and notes on tasks, of trainings and finalists to a search.

    Raises:
        DataError: as `contents_of`.
    """
    stages = planned.plan([(method, planned.first(method)) for method in planned.methods]).stages
    found = contents_of(stages, context)
    return replace(planned, rows=planned.rows | found.num_texts, notes=(*planned.notes, *found.notes))


def contents_of(stages: Iterable[Stage], context: Context) -> Contents:
    """Read the tasks that these stages score or choose checkpoints by, except generated ones; cached per version of the code.

    Raises:
        DataError: as `load_task`, for all tasks together; else found only when the first encoder is scored, hours later.
    """
    looked_at = tuple(stages)
    read = dict.fromkeys(task for stage in looked_at for task in tasks_of(stage) if _is_file(task))
    num_texts: dict[str, int] = {}
    notes: dict[str, None] = {}
    wrong: dict[str, DataError] = {}
    silent = False
    for part in dict.fromkeys(part for task in read for part in _parts(task)):
        try:
            found, lacking = _looked_at(part, context)
            if is_own_task(part):
                num_texts[part.name] = max(num_texts.get(part.name, 0), found)
            if lacking:
                notes[lacking] = None
        except DataError as error:
            if (trouble := _silent_hub(part, error)) is not None:
                silent = True
                notes[f"{part.name} is not on this machine, and {trouble}: its rows are not checked."] = None
            else:
                wrong.setdefault(str(error), error)
    if len(wrong) > 1:
        raise DataError(where=f"{len(wrong)} tasks", found=" ".join(wrong), expected="", remedy="Nothing was started.")
    if wrong:
        raise next(iter(wrong.values()))
    if not silent:  # rows that cannot be read yet share nothing that is known
        notes |= dict.fromkeys(notes_on_shared_rows(looked_at, context))
    return Contents(num_texts=num_texts, notes=tuple(notes))


def tasks_of(stage: Stage) -> tuple[ScoredTask, ...]:
    """Return the tasks that a stage scores, or those that choose its checkpoint.

    Raises:
        TypeError: a kind of stage that plans do not contain.
    """
    match stage:
        case Scores():
            return stage.tasks
        case Train():
            return stage.dev_tasks
        case CorpusStage() | Targets() | Bank():
            return ()
    raise TypeError(f"tasks of the stage {stage.kind} are not implemented")


def _parts(task: ScoredTask) -> Iterator[ScoredTask]:
    """The parts of a task to read; of a fold its whole collection and the first fold: if these can be read, all folds can."""
    if not isinstance(task, Task) or task.fold is None:
        yield task
        return
    yield task.model_copy(update={"fold": None, "fold_role": None})
    yield task.model_copy(update={"fold": task.fold.model_copy(update={"number": 0}), "fold_role": "test"})


def _is_file(task: ScoredTask) -> bool:
    """Whether a task's data can be damaged or changed; generated data cannot. Triples are checked with their corpus."""
    return isinstance(task, ChosenTask) and not task.source.startswith(GENERATED)


def _looked_at(task: ScoredTask, context: Context) -> tuple[int, str]:
    """The number of different texts that a task encodes, and a sentence if it is smaller than published, else ""."""
    identity = [f"{task.model_dump_json()} in {context.data_root}", code_digest()]
    if (known := recall_note(identity)) is None:
        from sentdist.stages.tasks.load import load_task  # brings pyarrow and numpy, which planning can mostly do without

        loaded = load_task(task, context.data_root, context.folders)
        lacking = _lacking(task, loaded)
        known = FileFacts(digest="", num_rows=len(set(loaded.sentences)), columns=(), splits=(), note=lacking)
        remember_note(identity, known)
    return known.num_rows, known.note


def _lacking(task: ScoredTask, loaded: LoadedTask) -> str:
    """A sentence if a shipped task is smaller than the published set, else ""; parts of a set and user files have no published size."""
    published, kind = published_items(task), TASK_KINDS[task.kind]
    if published is None or kind.counts_candidates or (isinstance(task, Task) and (task.fold or task.limit)):
        return ""
    in_all = len(loaded.sentences) * published // kind.encodes(task, published)  # rows to fit a classifier on are counted, too
    found = loaded.texts().num_items if kind.has_documents else in_all
    if found >= published:
        return ""
    return f"{task.name}: {found:,} items, but the published set has {published:,}: scores are not comparable with published ones."


def _silent_hub(task: ScoredTask, error: DataError) -> str | None:
    """Why the hub gave no rows, if it did not answer: it may answer the workers, and has confirmed the commit before."""
    if not task.source.startswith(PREFIX) or not isinstance(error.__cause__, Exception):
        return None
    trouble = hub_trouble(error.__cause__)
    return None if trouble.has_answered else trouble.found
