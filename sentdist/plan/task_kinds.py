"""The kinds of evaluation task: the values of a task of each, and what is known of the kind."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sentdist.frozen import Frozen
from sentdist.plan.corpora.relations import LinkTask
from sentdist.plan.specs import OwnRows, Task, TextRole
from sentdist.plan.tasks import TASKS, TaskCard

SATURATED = 99.5  # points of 100, from which on a measure cannot tell two encoders apart


@dataclass(frozen=True, kw_only=True)
class Measure:
    """name: of a result and of a column TASK:NAME. title: in a line of text. unit: below a table of such scores. lowest, highest: of all
    scores in that unit; no interval of a mean goes beyond. larger_is_better: False of one that does not say how good an
    encoder is: no two are compared by it, and none is chosen."""

    name: str
    title: str
    unit: str
    lowest: float = 0.0
    highest: float = 100.0
    larger_is_better: bool = True


def mean_of(measures: Collection[Measure]) -> Measure:
    """What the mean of one score of each is a number of."""
    if len(set(measures)) == 1:
        return next(iter(measures))
    lowest, highest = (statistics.fmean(ends) for ends in zip(*((one.lowest, one.highest) for one in measures), strict=True))
    *others, last = dict.fromkeys(one.title for one in measures)
    title = f"mean of {', '.join(others)} and {last}" if others else last
    return Measure(name="mean", title=title, unit="mean of several measures × 100", lowest=lowest, highest=highest)


class ClassificationTask(Frozen):
    """Labels read out of frozen embeddings by a linear classifier."""

    later_fields: ClassVar[tuple[str, ...]] = ("role",)

    name: str
    kind: Literal["classification"] = "classification"
    source: str
    revision: str
    columns: tuple[str, ...] = ("text",)  # two: a pair, of which |u − v| and u ∗ v are read
    label: str = "label"
    split: str | None = None  # that is tested, after training on `train`; None: all rows, in nested folds
    dev: str | None = None  # the split that chooses the penalty; None: folds
    num_folds: Annotated[int, Field(ge=2)] = 10
    role: Literal["test", "dev"] = "test"  # dev: the accuracy on which the penalty is chosen, so that it can choose checkpoints
    # SentEval's, stopped early, which its published rows need; or one that is fitted to the end, which small data need.
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
    """A few candidates for each query, to be put in order."""

    name: str
    kind: Literal["reranking"] = "reranking"
    source: str
    revision: str
    query: tuple[str, ...] = ("query",)  # columns whose texts are joined
    document: tuple[str, ...] = ("document",)
    split: str | None = None


class ForumsTask(Frozen):
    """Questions of several forums; each finds its duplicates among those of its own forum, less the questions that are asked."""

    name: str
    kind: Literal["forums"] = "forums"
    source: str
    revision: str
    split: str | None = None


class ClusteringTask(Frozen):
    """Labelled texts, as many k-means clusters as labels."""

    name: str
    kind: Literal["clustering"] = "clustering"
    source: str
    revision: str
    text: str = "text"
    label: str = "label"
    split: str | None = None
    num_runs: Annotated[int, Field(ge=1)] = 5  # with seeds 0, 1, …


class TripletTask(Frozen):
    """Triplets, each right where the anchor is nearer to its positive than to its negative."""

    later_fields: ClassVar[tuple[str, ...]] = ("own",)

    name: str
    kind: Literal["triplets"] = "triplets"
    source: str
    revision: str
    columns: tuple[str, str, str] = ("sent0", "sent1", "hard_neg")  # those of a training corpus
    split: str | None = None
    own: OwnRows | None = None  # as of a `Task`


class GeometryTask(Frozen):
    """The shape of the embeddings of graded pairs' sentences."""

    name: str
    kind: Literal["geometry"] = "geometry"
    source: str
    revision: str
    split: str | None = None
    positive_above: float = 4.0  # gold score from which a pair counts as one that means the same (SimCSE's practice)


LabelTask = ClassificationTask | ParaphraseTask | RerankingTask | ForumsTask | ClusteringTask | TripletTask | GeometryTask
ChosenTask = Task | LabelTask  # those that have a name in the table, or are a user's own
ScoredTask = ChosenTask | LinkTask
DevTask = Task | ClassificationTask | ParaphraseTask | RerankingTask | ForumsTask | TripletTask  # those that can choose checkpoints
OwnRowsTask = Task | TripletTask  # those that held-out rows of a person's own file can be

Floor = Literal["word_overlap", "bm25"]
UNKNOWN_PAIRS = 1000  # of a task whose size is not published


@dataclass(frozen=True, kw_only=True)
class ResolvedTask:
    """What planning knows of a named task once its sources were looked at. columns, documents: of its texts.
    splits: those of the source."""

    name: str
    source: str
    revision: str
    card: TaskCard
    columns: tuple[str, ...]
    documents: tuple[str, ...]
    splits: tuple[str, ...]
    is_own: bool

    @property
    def values(self) -> dict[str, object]:
        """What all tasks have."""
        return {"name": self.name, "source": self.source, "revision": self.revision, "split": self.card.split}


def _pin_of_source(task: ScoredTask) -> tuple[tuple[str, str], ...]:
    assert not isinstance(task, LinkTask)
    return ((task.source, task.revision),)


@dataclass(frozen=True, kw_only=True)
class TaskKind:
    """What is known of a kind of task; `TASK_KINDS` names them all, and every other list is derived from it.
    The data of a kind are read, and an encoder scored on them, in `stages/tasks/NAME.py`.

    main: the measure that stands for a task; those that a table sets beside it have its range. columns: of the texts,
    as a user's own file has them; further: a card's other columns.
    floors: what scores it from words alone. table: title of its table in a report, a column a task, in the main measure's unit; None: not
    of that shape.
    works: keys of citations. own: columns or files of a user's own data, which KIND=SOURCE names; None: there are none.
    chooses: such a task can choose checkpoints; of labelled texts only those whose card has the role dev.
    is_graded_pairs: its items are pairs with a score. has_documents: its queries are looked for among all documents of a source, on which
    an encoder may be trained, too: a cross-validation goes over its queries. needs_train: a card that names a split is fitted on `train`.
    has_queries: its texts are queries and documents, which have prompts of their own.
    averages: what its scores are on; tasks that choose together must agree in it. None: its own name.
    counts_candidates: a card's number of items is that of its candidates. has_intervals: its items are kept with a score each, so
    that there is an interval over other items.
    shown: measures that stand for a task whose main one does not say how good an encoder is, all in units of their own.
    table: the title of its table, a column a task; None: a report has none of it. measures_in_table: of a kind of which each task has a
    table of its own, the columns of that.
    make: the pinned task. encodes: sentences that a task of so many items encodes. pins: what a task reads, and the revisions it means.
    """

    name: str
    main: Measure
    columns: tuple[str, ...] = ()
    further: Callable[[TaskCard], tuple[str, ...]] = lambda card: ()
    floors: tuple[Floor, ...] = ()
    table: str | None
    measures_in_table: tuple[str, ...] = ()
    works: tuple[str, ...] = ()
    own: str | None = None
    chooses: bool = False
    is_graded_pairs: bool = False
    has_documents: bool = False
    has_queries: bool = False
    needs_train: bool = False
    counts_candidates: bool = False
    has_intervals: bool = True
    averages: str | None = None
    shown: tuple[str, ...] = ()
    make: Callable[[ResolvedTask], ChosenTask] | None
    encodes: Callable[[ScoredTask, int], int]
    pins: Callable[[ScoredTask], tuple[tuple[str, str], ...]] = _pin_of_source

    @property
    def is_own(self) -> bool:
        """Whether a user's own data can be of this kind."""
        return self.own is not None

    @property
    def roles(self) -> tuple[TextRole, ...]:
        """What its texts are, each with a prompt of its own."""
        return ("query", "document") if self.has_queries else ("sentence",)

    @property
    def is_compared(self) -> bool:
        """Whether two encoders can be compared by its scores."""
        return self.main.larger_is_better

    @property
    def scale(self) -> str:
        """What scores of two tasks must have in common to be averaged."""
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
            own="`sentence1`, `sentence2`, `score` on any scale; `subset`, `group` (what belongs together) and `split` if you like",
            chooses=True, is_graded_pairs=True, make=_pinned, encodes=_two_each,
        ),
        TaskKind(
            name="retrieval", main=Measure(name="map", title="MAP", unit="mean over queries × 100"),
            floors=("word_overlap", "bm25"), table="Retrieval",
            measures_in_table=("acc@1", "acc@3", "acc@5", "map", "mrr", "ndcg@10"),
            own=(
                "`NAME_docs` (`doc_id`, `text`, `title`), `NAME_queries` (`query_id`, `query`, `group` if you like), `NAME_qrels` "
                "(`query_id`, `doc_id`, `relevance`), each a file, or a folder or zip in BEIR's shape"
            ),
            chooses=True, has_documents=True, has_queries=True, make=_pinned, encodes=_two_each,
        ),
        TaskKind(
            name="classification", main=Measure(name="accuracy", title="accuracy", unit="accuracy × 100"),
            columns=("text",), further=lambda card: (card.label,),
            table="Labels from frozen embeddings", works=("senteval",),
            own=(
                "`text`, `label`, `group` if you like; a linear classifier fitted to the end (SentEval's stops too early on small data); "
                "with `@test` fitted on `train`, the penalty chosen on `dev` where there is one; without a split ten "
                "nested folds"
            ),
            needs_train=True, make=_classification, encodes=_of_columns,
        ),
        TaskKind(
            name="pairs", main=Measure(name="ap", title="average precision", unit="average precision × 100"),
            columns=("sentence1", "sentence2"), further=lambda card: (card.label,),
            floors=("word_overlap",), table="Paraphrases",
            own="`sentence1`, `sentence2`, `label` 1 for a paraphrase, else 0; `group` if you like", averages="precision", chooses=True,
            make=_paraphrases, encodes=_two_each,
        ),
        TaskKind(
            name="reranking", main=Measure(name="map", title="MAP", unit="mean average precision × 100"), columns=("query",),
            further=lambda card: ("query_id", "relevance", *(card.documents or ("document",))),
            floors=("word_overlap", "bm25"), table="Re-ranking",
            own="a row a candidate: `query_id`, `query`, `document_id`, `document`, `relevance`; or a row a query, as mteb's: `query`, "
            "lists `positive` and `negative`; `group` (of queries) if you like",
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
            own="`text`, `label`; `group` if you like",
            make=_clustering, encodes=_of_columns,
        ),
        TaskKind(
            name="triplets", main=Measure(name="accuracy", title="accuracy", unit="share of anchors nearer to their positive × 100"),
            columns=("sent0", "sent1", "hard_neg"), floors=("word_overlap",), table="Triplets",
            own="`sent0`, `sent1`, `hard_neg`: an anchor, its positive, its negative; `group` and `split` if you like", chooses=True,
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
    """Whether its data are a person's own: a file that no card of the table names, or held-out rows."""
    return not isinstance(task, LinkTask) and task.name not in TASKS


def split_of(task: ScoredTask) -> str | None:
    """The split of its source that is scored; None: all rows, or triples that a corpus held out."""
    return None if isinstance(task, LinkTask) else task.split


def own_rows_of(task: ScoredTask) -> OwnRows | None:
    """Which rows of a person's own file are scored; None: those of a source of the task's kind."""
    return task.own if isinstance(task, OwnRowsTask) else None


def num_encoded(task: ScoredTask, known: Mapping[str, int]) -> int:
    """Sentences that a task encodes, repetitions included: two of a pair, query or triple, all of a labelled row.
    known: texts of tasks of a person's own, by name."""
    return known.get(task.name) or TASK_KINDS[task.kind].encodes(task, published_items(task) or UNKNOWN_PAIRS)


def has_known_size(task: ScoredTask, known: Mapping[str, int]) -> bool:
    """Whether planning knows how many that are."""
    return isinstance(task, LinkTask) or task.name in known or published_items(task) is not None


def published_items(task: ScoredTask) -> int | None:
    """How many the published set of a shipped task has; None where that is not known, and of own data."""
    known = TASKS.get(task.name)
    return None if known is None else known.num_items


def have_mean(kinds: Iterable[str]) -> bool:
    """Whether scores of tasks of these kinds can be averaged: half a correlation and half a precision says nothing to a person."""
    return len({TASK_KINDS[kind].scale for kind in kinds}) == 1


def have_one_measure(kinds: Iterable[str]) -> bool:
    """Whether their main scores are of one measure, so that an average has its name; stricter than `have_mean`."""
    return len({TASK_KINDS[kind].main.name for kind in kinds}) == 1
