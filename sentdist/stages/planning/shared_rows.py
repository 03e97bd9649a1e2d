"""Which of a person's own tasks have rows in common, that a mean over them counts in each: reported while planning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from sentdist.code_digest import code_digest
from sentdist.data.sources.file_facts import FileFacts, recall_note, remember_note
from sentdist.errors import counted
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.plan.task_kinds import ScoredTask, is_own_task
from sentdist.stages.context import Context


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
