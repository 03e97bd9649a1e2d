"""The kinds of evaluation task: the fields of their tasks, and their properties in `TASK_KINDS`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sentdist.corpora.relations import LinkTask
from sentdist.frozen import Frozen
from sentdist.recipe.specs import OwnRows, Task, TextRole
from sentdist.recipe.tasks import TASKS, TaskCard

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


class ClassificationTask(Frozen):
    """Labels predicted from frozen embeddings by a linear classifier."""

    later_fields: ClassVar[tuple[str, ...]] = ("role",)

    name: str
    kind: Literal["classification"] = "classification"
    source: str
    revision: str
    columns: tuple[str, ...] = ("text",)  # two: a pair, whose features are |u − v| and u ∗ v
    label: str = "label"
    split: str | None = None  # test split, with `train` for training; None: all rows, in nested folds
    dev: str | None = None  # the split that chooses the penalty; None: folds
    num_folds: Annotated[int, Field(ge=2)] = 10
    role: Literal["test", "dev"] = "test"  # dev: the score is the dev accuracy that chooses the penalty; it can choose checkpoints
    # SentEval's, stopped early, as its published rows need; or one trained to convergence, as small data need.
    classifier: Literal["senteval", "converged"] = "converged"


class ParaphraseTask(Frozen):
    """Pairs that are paraphrases (label 1) or not (0), ranked by their cosine."""

    name: str
    kind: Literal["pairs"] = "pairs"
    source: str
    revision: str
    columns: tuple[str, str] = ("sentence1", "sentence2")
    label: str = "label"
    split: str | None = None


class RerankingTask(Frozen):
    """Ranking of a few candidates for each query."""

    name: str
    kind: Literal["reranking"] = "reranking"
    source: str
    revision: str
    query: tuple[str, ...] = ("query",)  # columns whose texts are joined
    document: tuple[str, ...] = ("document",)
    split: str | None = None


class ForumsTask(Frozen):
    """Duplicate search within forums: each query is compared with the questions of its forum that are not queries."""

    name: str
    kind: Literal["forums"] = "forums"
    source: str
    revision: str
    split: str | None = None


class ClusteringTask(Frozen):
    """Labelled texts, clustered by k-means with as many clusters as labels."""

    name: str
    kind: Literal["clustering"] = "clustering"
    source: str
    revision: str
    text: str = "text"
    label: str = "label"
    split: str | None = None
    num_runs: Annotated[int, Field(ge=1)] = 5  # with seeds 0, 1, …


class TripletTask(Frozen):
    """Triplets, each correct if the anchor is closer to its positive than to its negative."""

    later_fields: ClassVar[tuple[str, ...]] = ("own",)

    name: str
    kind: Literal["triplets"] = "triplets"
    source: str
    revision: str
    columns: tuple[str, str, str] = ("sent0", "sent1", "hard_neg")  # as in a training corpus
    split: str | None = None
    own: OwnRows | None = None  # as in `Task`


class GeometryTask(Frozen):
    """Geometry of the embeddings of the sentences of graded pairs: alignment, uniformity and others."""

    name: str
    kind: Literal["geometry"] = "geometry"
    source: str
    revision: str
    split: str | None = None
    positive_above: float = 4.0  # gold score from which a pair counts as a positive (as in SimCSE)


LabelTask = ClassificationTask | ParaphraseTask | RerankingTask | ForumsTask | ClusteringTask | TripletTask | GeometryTask
ChosenTask = Task | LabelTask  # tasks of the table or of user files
ScoredTask = ChosenTask | LinkTask
DevTask = Task | ClassificationTask | ParaphraseTask | RerankingTask | ForumsTask | TripletTask  # tasks that can choose checkpoints
OwnRowsTask = Task | TripletTask  # tasks made of held-out rows of a user file

Floor = Literal["word_overlap", "bm25"]
UNKNOWN_PAIRS = 1000  # of a task whose size is not published


@dataclass(frozen=True, kw_only=True)
class ResolvedTask:
    """A named task after its sources were looked up."""

    name: str
    source: str
    revision: str
    card: TaskCard
    columns: tuple[str, ...]  # of the texts
    documents: tuple[str, ...]  # columns of the candidates
    splits: tuple[str, ...]  # of the source
    is_own: bool

    @property
    def values(self) -> dict[str, object]:
        """The fields that all tasks have."""
        return {"name": self.name, "source": self.source, "revision": self.revision, "split": self.card.split}


def _pin_of_source(task: ScoredTask) -> tuple[tuple[str, str], ...]:
    assert not isinstance(task, LinkTask)
    return ((task.source, task.revision),)


@dataclass(frozen=True, kw_only=True)
class TaskKind:
    """Properties of a kind of task; `TASK_KINDS` has them all, and every other list is derived from it.

    `stages/tasks/NAME.py` reads the data of a kind and scores encoders on them.
    """

    name: str
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
    averages: str | None = None  # scale of the scores; only equal scales are averaged. None: the name of the kind
    shown: tuple[str, ...] = ()  # measures to show, each with its unit, if `main` is no measure of quality
    make: Callable[[ResolvedTask], ChosenTask] | None  # builds the pinned task
    encodes: Callable[[ScoredTask, int], int]  # (task, items) -> sentences to encode
    pins: Callable[[ScoredTask], tuple[tuple[str, str], ...]] = _pin_of_source  # (source, revision) pairs that a task reads

    @property
    def is_own(self) -> bool:
        """Whether user data can be of this kind."""
        return self.own is not None

    @property
    def roles(self) -> tuple[TextRole, ...]:
        """The roles of its texts; each has a prompt."""
        return ("query", "document") if self.has_queries else ("sentence",)

    @property
    def is_compared(self) -> bool:
        """Whether two encoders can be compared by its scores."""
        return self.main.larger_is_better

    @property
    def scale(self) -> str:
        """The scale of the scores: only tasks with equal scales can be averaged."""
        return self.averages or self.name


def _pinned(found: ResolvedTask) -> Task:
    return Task.model_validate(found.values | {"kind": found.card.kind})


def _classification(found: ResolvedTask) -> ClassificationTask:
    card = found.card
    has_dev = card.dev is None and found.is_own and card.split is not None and "dev" in found.splits
    own = {"dev": "dev" if has_dev else card.dev, "num_folds": card.num_folds, "classifier": card.classifier, "role": card.role}
    return ClassificationTask.model_validate(found.values | own | {"columns": found.columns, "label": card.label})


def _paraphrases(found: ResolvedTask) -> ParaphraseTask:
    return ParaphraseTask.model_validate(found.values | {"columns": found.columns, "label": found.card.label})


def _reranking(found: ResolvedTask) -> RerankingTask:
    return RerankingTask.model_validate(found.values | {"query": found.columns, "document": found.documents})


def _clustering(found: ResolvedTask) -> ClusteringTask:
    return ClusteringTask.model_validate(found.values | {"text": found.columns[0], "label": found.card.label})


def _of_columns(task: ScoredTask, items: int) -> int:
    return items * len(task.columns) if isinstance(task, ClassificationTask) else items


def _of_links(task: ScoredTask, items: int) -> int:
    assert isinstance(task, LinkTask)
    return 2 * task.held_out * len(task.relations)


def _pins_of_links(task: ScoredTask) -> tuple[tuple[str, str], ...]:
    assert isinstance(task, LinkTask)
    return tuple((file.source, file.source_revision) for part in task.relations for file in part.sources)


def _three_each(task: ScoredTask, items: int) -> int:
    return 3 * items


def _two_each(task: ScoredTask, items: int) -> int:
    return 2 * items


TASK_KINDS: dict[str, TaskKind] = {
    kind.name: kind
    for kind in (
        TaskKind(
            name="sts", main=Measure(name="spearman", title="Spearman", unit="Spearman's correlation × 100", lowest=-100.0),
            columns=("sentence1", "sentence2", "score"), floors=("word_overlap",), table="Semantic textual similarity",
            own="`sentence1`, `sentence2`, `score` on any scale; optional `subset`, `group` (rows that belong together) and `split`",
            chooses=True, is_graded_pairs=True, make=_pinned, encodes=_two_each,
        ),
        TaskKind(
            name="retrieval", main=Measure(name="map", title="MAP", unit="mean over queries × 100"),
            floors=("word_overlap", "bm25"), table="Retrieval",
            measures_in_table=("acc@1", "acc@3", "acc@5", "map", "mrr", "ndcg@10"),
            own=(
                "`NAME_docs` (`doc_id`, `text`, `title`), `NAME_queries` (`query_id`, `query`, optional `group`), `NAME_qrels` "
                "(`query_id`, `doc_id`, `relevance`), each a file; or a folder in BEIR format"
            ),
            chooses=True, has_documents=True, has_queries=True, make=_pinned, encodes=_two_each,
        ),
        TaskKind(
            name="classification", main=Measure(name="accuracy", title="accuracy", unit="accuracy × 100"),
            columns=("text",), further=lambda card: (card.label,),
            table="Labels from frozen embeddings", works=("senteval",),
            own=(
                "`text`, `label`, optional `group`; a linear classifier trained to convergence (SentEval's stops too early on small data); "
                "with `@test` trained on `train`, the penalty chosen on `dev` if present; without a split ten nested folds"
            ),
            needs_train=True, make=_classification, encodes=_of_columns,
        ),
        TaskKind(
            name="pairs", main=Measure(name="ap", title="average precision", unit="average precision × 100"),
            columns=("sentence1", "sentence2"), further=lambda card: (card.label,),
            floors=("word_overlap",), table="Paraphrases",
            own="`sentence1`, `sentence2`, `label` 1 for a paraphrase, else 0; optional `group`", averages="precision", chooses=True,
            make=_paraphrases, encodes=_two_each,
        ),
        TaskKind(
            name="reranking", main=Measure(name="map", title="MAP", unit="mean average precision × 100"), columns=("query",),
            further=lambda card: ("query_id", "relevance", *(card.documents or ("document",))),
            floors=("word_overlap", "bm25"), table="Re-ranking",
            own="a row per candidate: `query_id`, `query`, `document_id`, `document`, `relevance`; or a row per query, as in mteb: "
            "`query`, lists `positive` and `negative`; optional `group` (of queries)",
            averages="precision", chooses=True, counts_candidates=True,
            has_queries=True, make=_reranking, encodes=_two_each,
        ),
        TaskKind(
            name="forums", main=Measure(name="map@100", title="MAP@100", unit="mean over forums of MAP@100 × 100"),
            columns=("query", "document"), floors=("word_overlap", "bm25"),
            table="Duplicates within forums", works=("useb",), averages="precision", chooses=True, counts_candidates=True,
            has_queries=True,
            make=lambda found: ForumsTask.model_validate(found.values), encodes=_of_columns,
        ),
        TaskKind(
            name="clustering", main=Measure(name="v_measure", title="V-measure", unit="V-measure × 100"),
            columns=("text",), further=lambda card: (card.label,),
            table="Clusters", works=("v_measure",),
            own="`text`, `label`; optional `group`",
            make=_clustering, encodes=_of_columns,
        ),
        TaskKind(
            name="triplets", main=Measure(name="accuracy", title="accuracy", unit="share of anchors closer to their positive × 100"),
            columns=("sent0", "sent1", "hard_neg"), floors=("word_overlap",), table="Triplets",
            own="`sent0`, `sent1`, `hard_neg`: an anchor, its positive, its negative; optional `group` and `split`", chooses=True,
            make=lambda found: TripletTask.model_validate(found.values | {"columns": found.columns}), encodes=_three_each,
        ),
        TaskKind(
            name="geometry",
            main=Measure(name="uniformity", title="uniformity", unit="uniformity", lowest=-8.0, highest=0.0, larger_is_better=False),
            shown=("alignment", "uniformity", "mean_cosine", "effective_rank"),
            columns=("sentence1", "sentence2", "score"), table=None, works=("geometry", "effective_rank"),
            make=lambda found: GeometryTask.model_validate(found.values), encodes=_two_each,
        ),
        TaskKind(
            name="links", main=Measure(name="mrr", title="MRR", unit="mean over triples × 100"),
            floors=("word_overlap", "bm25"), table=None,
            has_intervals=False, make=None, encodes=_of_links, pins=_pins_of_links,
        ),
    )
}  # fmt: skip


def is_own_task(task: ScoredTask) -> bool:
    """Return whether the data of a task are from the user: a file that is not in the table, or held-out rows."""
    return not isinstance(task, LinkTask) and task.name not in TASKS


def split_of(task: ScoredTask) -> str | None:
    """Return the split that is scored; None: all rows, or triples that a corpus held out."""
    return None if isinstance(task, LinkTask) else task.split


def own_rows_of(task: ScoredTask) -> OwnRows | None:
    """Return the held-out rows of a user file that are scored; None for tasks on other sources."""
    return task.own if isinstance(task, OwnRowsTask) else None


def num_encoded(task: ScoredTask, known: Mapping[str, int]) -> int:
    """Return the number of sentences that a task encodes, repetitions included: two per pair, query or triple, all of a labelled row.

    Args:
        known: Number of texts of tasks on user files, by name.
    """
    return known.get(task.name) or TASK_KINDS[task.kind].encodes(task, published_items(task) or UNKNOWN_PAIRS)


def has_known_size(task: ScoredTask, known: Mapping[str, int]) -> bool:
    """Return whether `num_encoded` is known and not guessed."""
    return isinstance(task, LinkTask) or task.name in known or published_items(task) is not None


def published_items(task: ScoredTask) -> int | None:
    """Return the number of items of the published set of a shipped task; None if unknown, and for user data."""
    known = TASKS.get(task.name)
    return None if known is None else known.num_items


def have_mean(kinds: Iterable[str]) -> bool:
    """Return whether scores of these kinds of tasks can be averaged: the mean of a correlation and a precision means nothing."""
    return len({TASK_KINDS[kind].scale for kind in kinds}) == 1


def have_one_measure(kinds: Iterable[str]) -> bool:
    """Return whether these kinds have one main measure, which then names their average; stricter than `have_mean`."""
    return len({TASK_KINDS[kind].main.name for kind in kinds}) == 1
