"""What the files of tasks hold: read while planning by what reads them when they are scored, and remembered by their content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from sentdist.data.generated import PREFIX as GENERATED
from sentdist.data.sources.file_facts import FileFacts, recall_note, remember_note
from sentdist.data.sources.hub import PREFIX
from sentdist.errors import DataError, counted, hub_trouble
from sentdist.files import code_digest
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.specs import Task
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.task_kinds import TASK_KINDS, ChosenTask, ScoredTask, is_own_task, published_items
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context

if TYPE_CHECKING:
    from sentdist.stages.tasks.loaded_task import LoadedTask


def notes_on_shared_rows(stages: Iterable[Stage], context: Context) -> Iterator[str]:
    """A sentence for every two tasks of one kind, one of them a person's own, that choose or are scored together and share rows. Equal ones
    were refused before; what this very code has read before is not read again."""
    means = dict.fromkeys(found for stage in stages if (found := _mean_of(stage)) is not None)
    for mean in means:
        for one, other in combinations(mean.tasks, 2):
            if one.kind != other.kind or not (is_own_task(one) or is_own_task(other)) or _is_fold(one) or _is_fold(other):
                continue
            shared, sizes = _shared_rows(one, other, context)
            if shared:
                of = " and ".join(f"{size:,}" for size in sizes)
                rows = counted(shared, "row")
                yield f"{mean.where}: {one.name} and {other.name} have {rows} of their {of} in common: {mean.effect}"


@dataclass(frozen=True, kw_only=True)
class _Mean:
    """A mean over tasks. where: the field of a recipe that names them. effect: what it makes of rows that they share."""

    where: str
    tasks: tuple[ScoredTask, ...]
    effect: str


def _mean_of(stage: Stage) -> _Mean | None:
    """The mean that a stage takes over tasks; None where it takes none."""
    match stage:
        case Scores():
            effect = "an average counts them in each, and its interval takes them for one group."
            return _Mean(where="evaluation.tasks", tasks=stage.tasks, effect=effect)
        case Train():
            effect = "their mean, which chooses checkpoints, counts them in each."
            return _Mean(where="selection.task", tasks=stage.dev_tasks, effect=effect)
        case CorpusStage() | Targets() | Bank():
            return None
    raise TypeError(f"nobody said over which tasks the stage {stage.kind} takes a mean")


def _is_fold(task: ScoredTask) -> bool:
    return getattr(task, "fold", None) is not None


def _shared_rows(one: ScoredTask, other: ScoredTask, context: Context) -> tuple[int, tuple[int, ...]]:
    """How many items have the same texts and the same right texts, and how many each task has."""
    identity = [f"rows of {one.model_dump_json()} and {other.model_dump_json()} in {context.data_root}", code_digest()]
    if (known := recall_note(identity)) is None:
        rows = [_rows(task, context) for task in (one, other)]
        shared = (rows[0] & rows[1]).total()
        sizes = tuple((task.name, found.total()) for task, found in zip((one, other), rows, strict=True))
        known = FileFacts(digest="", num_rows=shared, columns=(), splits=sizes)
        remember_note(identity, known)
    return known.num_rows, tuple(size for _, size in known.splits)


def _rows(task: ScoredTask, context: Context) -> Counter[tuple[object, ...]]:
    """Each item as its own texts and those that are right for it."""
    from sentdist.stages.tasks.load import load_task  # brings pyarrow and numpy, which planning can mostly do without

    texts = load_task(task, context.data_root, context.folders).texts()
    right: list[set[str]] = [set() for _ in texts.sentences]
    for item, _, text in texts.pairs:
        right[item].add(text)
    return Counter((own, frozenset(others)) for own, others in zip(texts.sentences, right, strict=True))


@dataclass(frozen=True, kw_only=True)
class Contents:
    """num_texts: of each task of a person's own, by its name, the different texts that it encodes. notes: what could not be read yet, sets
    that are smaller than they were published, and rows in common."""

    num_texts: dict[str, int]
    notes: tuple[str, ...]


def with_contents(plan: Plan, context: Context) -> Plan:
    """The plan with what its own tasks come to.

    Raises:
        DataError: as `contents_of`.
    """
    found = contents_of(plan.stages, context)
    return replace(plan, rows=plan.rows | found.num_texts, notes=(*plan.notes, *found.notes))


def search_with_contents(planned: PlannedSearch, context: Context) -> PlannedSearch:
    """The search with what the own tasks of its trainings and finalists come to.

    Raises:
        DataError: as `contents_of`.
    """
    stages = planned.plan([(method, planned.first(method)) for method in planned.methods]).stages
    found = contents_of(stages, context)
    return replace(planned, rows=planned.rows | found.num_texts, notes=(*planned.notes, *found.notes))


def contents_of(stages: Iterable[Stage], context: Context) -> Contents:
    """Read the tasks that these stages score and those that choose checkpoints, but for what the package makes itself. What this very code
    has read before is not read again.

    Raises:
        DataError: as `load_task`: what would else be found when the first encoder is scored, hours later; of several tasks all of it.
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
    """The tasks that a stage reads: those that it scores, or those that choose its checkpoint.

    Raises:
        TypeError: a kind of which nothing is known here.
    """
    match stage:
        case Scores():
            return stage.tasks
        case Train():
            return stage.dev_tasks
        case CorpusStage() | Targets() | Bank():
            return ()
    raise TypeError(f"nobody said which tasks the stage {stage.kind} reads")


def _parts(task: ScoredTask) -> Iterator[ScoredTask]:
    """What to read of a task. Of a fold: its whole collection and the first fold; where these can be read, all folds can."""
    if not isinstance(task, Task) or task.fold is None:
        yield task
        return
    yield task.model_copy(update={"fold": None, "fold_role": None})
    yield task.model_copy(update={"fold": task.fold.model_copy(update={"number": 0}), "fold_role": "test"})


def _is_file(task: ScoredTask) -> bool:
    """Whether a task's data can be damaged or changed; what the package makes cannot. Triples are looked at with their corpus."""
    return isinstance(task, ChosenTask) and not task.source.startswith(GENERATED)


def _looked_at(task: ScoredTask, context: Context) -> tuple[int, str]:
    """How many different texts a task encodes, and a sentence where it is less than was published, else ""."""
    identity = [f"{task.model_dump_json()} in {context.data_root}", code_digest()]
    if (known := recall_note(identity)) is None:
        from sentdist.stages.tasks.load import load_task  # brings pyarrow and numpy, which planning can mostly do without

        loaded = load_task(task, context.data_root, context.folders)
        lacking = _lacking(task, loaded)
        known = FileFacts(digest="", num_rows=len(set(loaded.sentences)), columns=(), splits=(), note=lacking)
        remember_note(identity, known)
    return known.num_rows, known.note


def _lacking(task: ScoredTask, loaded: LoadedTask) -> str:
    """What a shipped task lacks of the published set; a part of one, and own data, lack nothing."""
    published, kind = published_items(task), TASK_KINDS[task.kind]
    if published is None or kind.counts_candidates or (isinstance(task, Task) and (task.fold or task.limit)):
        return ""
    in_all = len(loaded.sentences) * published // kind.encodes(task, published)  # rows to fit a classifier on are counted, too
    found = loaded.texts().num_items if kind.has_documents else in_all
    if found >= published:
        return ""
    return f"{task.name}: {found:,} items, where the published set has {published:,}: its scores are not those of {task.name} elsewhere."


def _silent_hub(task: ScoredTask, error: DataError) -> str | None:
    """Why the hub gave no rows, where it did not answer: it may answer the workers, and what it said of the commit before is known."""
    if not task.source.startswith(PREFIX) or not isinstance(error.__cause__, Exception):
        return None
    trouble = hub_trouble(error.__cause__)
    return None if trouble.has_answered else trouble.found
