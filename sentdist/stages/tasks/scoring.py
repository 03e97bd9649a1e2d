"""How a task scores an encoder: which sentences it needs, and what their embeddings are worth."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.folds import groups_of, queries_for
from sentdist.data.pairs import Pairs
from sentdist.data.retrieval import Retrieval, read_retrieval
from sentdist.data.seeded_order import shuffled
from sentdist.data.sources.mirror import data_folder
from sentdist.data.task_texts import TaskTexts
from sentdist.errors import RecipeError
from sentdist.evaluation.lexical import Lexical, word_scores
from sentdist.evaluation.link_prediction import LinkPrediction
from sentdist.evaluation.nearest import Ranking, search
from sentdist.evaluation.postprocess import postprocess
from sentdist.evaluation.retrieval import DEPTH, judgements_of, rank_by, score_ranking
from sentdist.evaluation.sts import jaccard_scores, score_similarities
from sentdist.plan.compatibility import parts_of
from sentdist.plan.corpora.relations import LinkTask
from sentdist.plan.objectives import Objective
from sentdist.plan.specs import Task, View
from sentdist.plan.task_kinds import TASK_KINDS, ScoredTask, TripletTask
from sentdist.stages.scores.scorer import RelationalScorer, Scorer
from sentdist.stages.tasks.geometry import read_task_pairs
from sentdist.stages.tasks.links import LinksTask, link_measures, load_links
from sentdist.stages.tasks.loaded_task import LoadedTask, TaskScore

Folders = tuple[tuple[str, str], ...]


def load_task(task: ScoredTask, data_root: str | None, folders: Folders = ()) -> LoadedTask:
    """Read a task's data; DataError as its reader says. folders: of the run, where files given by path lie."""
    if isinstance(task, Task | TripletTask) and task.own is not None:
        from sentdist.stages.tasks.own import load_own_rows  # which makes tasks of the classes below

        return load_own_rows(task, dict(folders), data_folder(data_root))
    module, _, function = TASK_KINDS[task.kind].loader.partition(":")
    loaded: LoadedTask = getattr(importlib.import_module(module), function)(task, data_folder(data_root))
    return loaded


def load_pairs(task: Task, root: Path | None) -> StsTask:
    """Read the graded pairs of a task."""
    pairs = read_task_pairs(task, root)
    if task.limit is not None:
        pairs = pairs.only(_drawn(pairs.num_pairs, task))
    return StsTask(task=task, pairs=pairs, sentences=(*pairs.sentence1, *pairs.sentence2))


def load_retrieval(task: Task, root: Path | None) -> RetrievalTask:
    """Read queries, documents and judgements of a task."""
    collection = read_retrieval(task.source, split=task.split, data_root=root, document_field=task.document_field)
    rows = _rows_of_fold(task, collection)
    if task.limit is not None:
        rows = tuple(rows[place] for place in _drawn(len(rows), task))
    return RetrievalTask(task=task, collection=collection, rows=rows)


def load_link_ranks(task: LinkTask, root: Path | None) -> RankedLinks:
    """Read the held-out triples of a task."""
    return RankedLinks(links=load_links(task, root))


@dataclass(frozen=True, kw_only=True)
class StsTask:
    """Graded sentence pairs; the main score is Spearman's correlation."""

    task: Task
    pairs: Pairs
    sentences: tuple[str, ...]

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        return self._task_score(scorer.similarities(*np.split(embeddings_SD, 2), where=self.task.name))

    def score_words(self, kind: Lexical) -> TaskScore:
        """Word overlap; BM25 ranks documents and says nothing of pairs (the plan refuses it)."""
        return self._task_score(jaccard_scores(self.pairs.sentence1, self.pairs.sentence2))

    def texts(self) -> TaskTexts:
        left_out = f"{self.pairs.num_ungraded:,} pairs without a score" if self.pairs.num_ungraded else ""
        both = zip(self.pairs.sentence1, self.pairs.sentence2, strict=True)
        return TaskTexts.of_pairs(self.task.name, both, left_out=left_out, given_groups=self.pairs.group)

    def curve(self, embeddings_SD: np.ndarray, scorer: RelationalScorer) -> list[float | None]:
        """The main score at each weight of the reading's curve."""
        first_PD, second_PD = np.split(embeddings_SD, 2)
        return scorer.curve(first_PD, second_PD, self.pairs.score, self.pairs.subset, where=self.task.name)

    def _task_score(self, similarities_P: np.ndarray) -> TaskScore:
        found = score_similarities(similarities_P, self.pairs.score, self.pairs.subset, self.task.aggregation, where=self.task.name)
        items = pa.table(found.items())
        return TaskScore(
            task=self.task.name, main=found.spearman, measures={"spearman": found.spearman, "pearson": found.pearson}, items=items
        )


@dataclass(frozen=True, kw_only=True)
class RetrievalTask:
    """Queries against a collection of documents; the main score is MAP."""

    task: Task
    collection: Retrieval
    rows: tuple[int, ...]  # of the queries that this fold scores

    def __post_init__(self) -> None:
        # Now, and not only when the ranking is scored: before that comes the encoding of the whole collection.
        judgements_of(
            self._query_ids,
            self.collection.document_ids,
            self.collection.qrels,
            unranked=self.collection.empty_document_ids,
            where=self.task.name,
        )

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        return (*(self.collection.queries[row] for row in self.rows), *self.collection.documents)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        queries = scorer.queries(embeddings_SD[: len(self.rows)], where=self.task.name)
        return self._task_score(search(queries, embeddings_SD[len(self.rows) :], depth=min(DEPTH, len(self.collection.documents))))

    def score_words(self, kind: Lexical) -> TaskScore:
        scores_QR = word_scores(kind, self.sentences[: len(self.rows)], self.collection.documents)
        return self._task_score(rank_by(scores_QR, depth=DEPTH))

    def texts(self) -> TaskTexts:
        """An item a query, its pairs those with relevant documents."""
        collection = self.collection
        document = dict(zip(collection.document_ids, collection.documents, strict=True))
        pairs = tuple(
            (item, collection.queries[row], document[name])
            for item, row in enumerate(self.rows)
            for name, relevance in collection.qrels[collection.query_ids[row]].items()
            if relevance > 0 and name in document
        )
        return TaskTexts(name=self.task.name, sentences=tuple((collection.queries[row],) for row in self.rows), pairs=pairs)

    @property
    def _query_ids(self) -> list[str]:
        return [self.collection.query_ids[row] for row in self.rows]

    def _task_score(self, ranking: Ranking) -> TaskScore:
        found = score_ranking(
            ranking,
            query_ids=self._query_ids,
            document_ids=self.collection.document_ids,
            qrels=self.collection.qrels,
            unranked=self.collection.empty_document_ids,
            where=self.task.name,
        )
        items = pa.table({name: list(values) for name, values in found.items().items()})
        measures: dict[str, float | None] = {name: None if found.is_constant else value for name, value in found.measures.items()}
        return TaskScore(task=self.task.name, main=measures["map"], measures=measures, items=items)


@dataclass(frozen=True, kw_only=True)
class RankedLinks:
    """Held-out triples of relations; the main score is the mean reciprocal rank of their tails."""

    links: LinksTask

    @property
    def sentences(self) -> Sequence[str]:
        return self.links.sentences

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        return self._task_score(self.links.score_links(embeddings_SD, scorer))

    def score_words(self, kind: Lexical) -> TaskScore:
        return self._task_score(self.links.score_words(kind))

    def texts(self) -> TaskTexts:
        triples = self.links.triples
        return TaskTexts.of_pairs(self.links.task.name, zip(triples.heads, (triples.tails[place] for place in triples.tail), strict=True))

    def _task_score(self, found: LinkPrediction) -> TaskScore:
        return TaskScore(task=self.links.task.name, main=found.overall.mrr, measures=link_measures(found), items=self.links.items(found))


def viewed(embeddings_SD: np.ndarray, view: View, *, where: str, objective: Objective | None = None) -> np.ndarray:
    """The embeddings as a view reads them: some of the channels, with the mean or all correlation removed.
    objective: what the encoder was trained with, whose parts a view may name.

    Raises:
        RecipeError: channels that the embeddings do not have.
    """
    if view.channels is not None:
        parts = (None if objective is None else parts_of(objective, embeddings_SD.shape[1])) or {}
        first, last = parts[view.channels] if isinstance(view.channels, str) else view.channels
        if not 0 <= first < last <= embeddings_SD.shape[1]:
            raise RecipeError(
                where=f"{where}: view.channels",
                found=f"{first} to {last}",
                expected=f"two numbers from 0 to {embeddings_SD.shape[1]}, the lower one first",
                remedy="Correct the view.",
            )
        embeddings_SD = embeddings_SD[:, first:last]
    return postprocess(embeddings_SD, view.postprocess)


def _drawn(num_items: int, task: Task) -> np.ndarray:
    """The places of the items that a limit leaves, in order: the same ones for every training."""
    return np.sort(shuffled(num_items, seed=0, stream=f"limit of {task.name}")[: task.limit])


def _rows_of_fold(task: Task, collection: Retrieval) -> tuple[int, ...]:
    if task.fold is None or task.fold_role is None:
        return tuple(range(len(collection.query_ids)))
    fold = task.fold
    groups = groups_of(collection, fold.by)
    wanted = set(
        queries_for(collection.query_ids, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, role=task.fold_role, groups=groups)
    )
    return tuple(row for row, query in enumerate(collection.query_ids) if query in wanted)
