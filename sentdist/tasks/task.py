"""What all kinds of tasks share: the pinned value, the properties of a kind, and a task with its data in memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from sentdist.errors import RecipeError
from sentdist.frozen import Frozen
from sentdist.recipe.specs import OwnRows, TextRole
from sentdist.tasks.cards import TASKS, TaskCard

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Labelled
    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import Scorer

Floor = Literal["word_overlap", "bm25"]
UNKNOWN_PAIRS = 1000  # of a task whose size is not published
SATURATED = 99.5  # points of 100 from which a measure cannot distinguish two encoders


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure of the scores of tasks."""

    name: str  # of a result and of a column TASK:NAME
    title: str  # in a line of text
    unit: str  # below a table of scores
    lowest: float = 0.0  # in that unit; confidence intervals of a mean are clipped here
    highest: float = 100.0  # likewise
    larger_is_better: bool = True  # False: no measure of quality; encoders are neither compared nor chosen by it


def mean_of(measures: Collection[Measure]) -> Measure:
    """Return the measure of the mean of one score of each measure."""
    if len(set(measures)) == 1:
        return next(iter(measures))
    lowest, highest = (statistics.fmean(ends) for ends in zip(*((one.lowest, one.highest) for one in measures), strict=True))
    *others, last = dict.fromkeys(one.title for one in measures)
    title = f"mean of {', '.join(others)} and {last}" if others else last
    return Measure(name="mean", title=title, unit="mean of several measures × 100", lowest=lowest, highest=highest)


class Task(Frozen):
    """A pinned test set or dev set; each kind is a subclass in a module of its own."""

    later_fields: ClassVar[tuple[str, ...]] = ("own",)

    name: str
    kind: str
    source: str
    revision: str
    split: str | None = None  # None: all rows
    own: OwnRows | None = None  # the source is a user file, `split` the held-out split

    @classmethod
    def of_card(cls, card: TaskCard, columns: tuple[str, ...]) -> dict[str, object]:
        """Return the fields of the kind for a card; `columns`: of the texts."""
        return {}

    @property
    def is_own(self) -> bool:
        """Whether the data are from the user: a file that is not in the table, or held-out rows."""
        return self.name not in TASKS

    @property
    def num_items(self) -> int | None:
        """The number of items of the published set of a shipped task; None if unknown, and for user data."""
        return TASKS[self.name].num_items if self.name in TASKS else None

    @property
    def pins(self) -> tuple[tuple[str, str], ...]:
        """(source, revision) pairs that the task reads."""
        return ((self.source, self.revision),)

    def num_encoded(self, items: int) -> int:
        """Return the number of sentences to encode for so many items."""
        return 2 * items

    def num_texts(self, known: Mapping[str, int]) -> int:
        """Return the number of sentences to encode, repetitions included.

        Args:
            known: Number of texts of tasks on user files, by name.
        """
        return known.get(self.name) or self.num_encoded(self.num_items or UNKNOWN_PAIRS)

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedTask:
        """Read the data; raise DataError as the reader. `folders`: revision -> folder, of files given by path."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TaskKind:
    """Properties of a kind of task."""

    name: str
    value: type[Task]
    main: Measure  # the score of a task; other measures in its table have the same range
    columns: tuple[str, ...] = ()  # of the texts, as in user files
    further: Callable[[TaskCard], tuple[str, ...]] = lambda card: ()  # the other columns of a card
    floors: tuple[Floor, ...] = ()  # lexical baselines that can score it
    table: str | None  # title of its table in a report, one column per task, in the unit of `main`; None: no table
    measures_in_table: tuple[str, ...] = ()  # columns, for kinds with a table for each task
    works: tuple[str, ...] = ()  # citation keys
    own: str | None = None  # help text on the columns or files of user data, named KIND=SOURCE; None: not for user data
    chooses: bool = False  # can choose checkpoints; a classification only if its card has the role dev
    is_graded_pairs: bool = False  # items are pairs with a score
    has_documents: bool = False  # queries search all documents of a source; cross-validation over queries is possible
    has_queries: bool = False  # texts are queries and documents, with separate prompts
    needs_train: bool = False  # a card with a split is trained on `train`
    counts_candidates: bool = False  # the number of items of a card counts candidates
    has_intervals: bool = True  # scores of items are kept, for confidence intervals
    scale: str = ""  # of the scores: only tasks with equal scales are averaged. Default: the name of the kind
    shown: tuple[str, ...] = ()  # measures to show, each with its unit, if `main` is no measure of quality

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", self.scale or self.name)

    @property
    def roles(self) -> tuple[TextRole, ...]:
        """The roles of its texts; each has a prompt."""
        return ("query", "document") if self.has_queries else ("sentence",)

    @property
    def is_compared(self) -> bool:
        """Whether two encoders can be compared by its scores."""
        return self.main.larger_is_better


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """Scores of one task."""

    task: str
    main: float | None  # × 100; None: undefined
    measures: dict[str, float | None]  # all, by name
    items: Mapping[str, Any]  # columns, with one value per pair, query or text
    has_main: bool = True  # False if no single measure rates an encoder


class LoadedTask(Protocol):
    """A task with its data in memory."""

    @property
    def sentences(self) -> Sequence[str]:
        """All sentences to embed, repetitions included."""
        ...

    @property
    def are_queries(self) -> Sequence[bool]:
        """Whether each of `sentences` is a query and not a document; empty unless the kind `has_queries`."""
        ...

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        """Score the embeddings of `sentences`, in their order, by cosine or by the encoder's relations."""
        ...

    def score_words(self, floor: Floor) -> TaskScore:
        """Score by words alone, without an encoder."""
        ...

    def texts(self) -> TaskTexts:
        """Return the tested texts, which training must not have seen."""
        ...


class OfSentences:
    """A loaded task whose texts are neither queries nor documents."""

    are_queries: Sequence[bool] = ()

    def score_words(self, floor: Floor) -> TaskScore:
        """Raise RecipeError: the plan refuses such a task before any work."""
        raise RecipeError(where=type(self).__name__, found=f"the floor {floor}", expected="an encoder", remedy="Leave the floor out.")


def load_task(task: Task, data_root: str | None, folders: Mapping[str, str] = MappingProxyType({})) -> LoadedTask:
    """Read a task's data; raise DataError as its reader, and for content that has changed since planning.

    Args:
        folders: Revision -> folder, of files given by path.
    """
    from sentdist.data.mirror import data_folder
    from sentdist.data.sources import check_pinned

    root = data_folder(data_root)
    if task.own is None:
        for source, revision in task.pins:
            check_pinned(source, revision, data_root=root)
    return task.load(root, folders)


def halves(embeddings_SD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the embeddings of the first texts of pairs, and of the second ones."""
    middle = len(embeddings_SD) // 2
    return embeddings_SD[:middle], embeddings_SD[middle:]


def drawn_rows(num_items: int, name: str, limit: int) -> np.ndarray:
    """Return the sorted positions of the items that the limit of a task keeps, the same for every training."""
    import numpy as np

    from sentdist.data.sampler import shuffled

    return np.sort(shuffled(num_items, seed=0, stream=f"limit of {name}")[:limit])


def labelled_rows(task: Task, columns: Sequence[str], label: str, splits: Sequence[str] | None, root: Path | None) -> Labelled:
    """Read the texts in these columns with their labels, of all splits if None; raise DataError as `read_labelled`.

    Rows without a text count in published data sets, which have a few; in a user file they are an error.
    """
    from sentdist.data.checked_rows import read_labelled

    return read_labelled(
        task.source, columns=columns, label=label, splits=splits, may_be_empty=not task.is_own, data_root=root,
        hub_revision=task.revision,
    )  # fmt: skip
