"""Score embeddings by retrieval from a collection, from forums, or among the candidates of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.checked_rows import Candidates, Forum, read_candidates, read_forums
from sentdist.data.leaks import TaskTexts
from sentdist.data.retrieval import Retrieval, groups_of, queries_for, read_retrieval
from sentdist.errors import DataError, counted
from sentdist.evaluation.items import STRATUM
from sentdist.evaluation.nearest import Lexical, Ranking, search, word_scores
from sentdist.evaluation.retrieval import (
    DEPTH,
    FORUMS_DEPTH,
    average_precisions,
    judgements_of,
    mean_over_forums,
    rank_by,
    score_candidates,
    score_ranking,
)
from sentdist.evaluation.sts import paired_cosines
from sentdist.recipe.specs import Task
from sentdist.recipe.task_kinds import ForumsTask, RerankingTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore, drawn_rows


@dataclass(frozen=True, kw_only=True)
class LoadedRetrieval:
    """Queries against a collection of documents; the main score is MAP."""

    task: Task
    collection: Retrieval
    rows: tuple[int, ...]  # of the queries that this fold scores

    def __post_init__(self) -> None:
        # Checked now, because the whole collection is encoded before the ranking is scored.
        judgements_of(
            self._query_ids,
            self.collection.document_ids,
            self.collection.qrels,
            unranked=self.collection.empty_document_ids,
            where=self.task.name,
        )
        num_documents = len(self.collection.documents)
        if all(sum(grade > 0 for grade in self.collection.qrels[query].values()) >= num_documents for query in self._query_ids):
            raise DataError(
                where=self.task.name, found=f"{counted(num_documents, 'document')}, relevant to each query, and no others",
                expected="some documents that are not relevant", remedy="Add others to the collection: all rankings of these are equal.",
            )  # fmt: skip

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        return (*(self.collection.queries[row] for row in self.rows), *self.collection.documents)

    @property
    def are_queries(self) -> Sequence[bool]:
        return [True] * len(self.rows) + [False] * len(self.collection.documents)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        queries = scorer.queries(embeddings_SD[: len(self.rows)], where=self.task.name)
        return self._task_score(search(queries, embeddings_SD[len(self.rows) :], depth=min(DEPTH, len(self.collection.documents))))

    def score_words(self, kind: Lexical) -> TaskScore:
        scores_QR = word_scores(kind, self.sentences[: len(self.rows)], self.collection.documents)
        return self._task_score(rank_by(scores_QR, depth=DEPTH))

    def texts(self) -> TaskTexts:
        """Return one item per query, with its relevant documents as pairs."""
        every = range(len(self.collection.query_ids))
        if len(self.rows) == len(every):
            return self._texts(self.rows)
        return replace(self._texts(self.rows), known_groups=self._texts(every).groups()[list(self.rows)])

    def _texts(self, rows: Sequence[int]) -> TaskTexts:
        collection = self.collection
        document = dict(zip(collection.document_ids, collection.documents, strict=True))
        pairs = tuple(
            (item, collection.queries[row], document[name])
            for item, row in enumerate(rows)
            for name, relevance in collection.qrels[collection.query_ids[row]].items()
            if relevance > 0 and name in document
        )
        groups = tuple(collection.groups[row] for row in rows) if collection.groups else ()
        return TaskTexts(name=self.task.name, sentences=tuple((collection.queries[row],) for row in rows), pairs=pairs, given_groups=groups)

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
            are_documents=self.collection.are_documents,
            where=self.task.name,
        )
        items = pa.table({name: list(values) for name, values in found.items().items()})
        measures: dict[str, float | None] = {name: None if found.is_constant else value for name, value in found.measures.items()}
        return TaskScore(task=self.task.name, main=measures["map"], measures=measures, items=items)


def load_retrieval(task: Task, root: Path | None) -> LoadedRetrieval:
    """Read the queries, documents and judgements of a task."""
    collection = read_retrieval(task.source, split=task.split, data_root=root, document_field=task.document_field)
    rows = _rows_of_fold(task, collection)
    if task.limit is not None:
        rows = tuple(rows[place] for place in drawn_rows(len(rows), task))
    return LoadedRetrieval(task=task, collection=collection, rows=rows)


def _rows_of_fold(task: Task, collection: Retrieval) -> tuple[int, ...]:
    if task.fold is None or task.fold_role is None:
        return tuple(range(len(collection.query_ids)))
    fold = task.fold
    groups = groups_of(collection, fold.by)
    wanted = set(
        queries_for(collection.query_ids, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, role=task.fold_role, groups=groups)
    )
    return tuple(row for row, query in enumerate(collection.query_ids) if query in wanted)


@dataclass(frozen=True, kw_only=True)
class LoadedForums:
    """Questions of several forums; the main score is the mean over forums of MAP@100 as USEB computes it."""

    task: ForumsTask
    forums: tuple[Forum, ...]

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        return tuple(text for forum in self.forums for text in (*forum.queries, *forum.pool))

    @property
    def are_queries(self) -> Sequence[bool]:
        return [is_query for forum in self.forums for is_query in (*[True] * len(forum.queries), *[False] * len(forum.pool))]

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        def rankings() -> Iterator[Ranking]:
            first = 0
            for forum in self.forums:
                middle = first + len(forum.queries)
                last = middle + len(forum.pool)
                queries = scorer.queries(embeddings_SD[first:middle], where=self.task.name)
                yield search(queries, embeddings_SD[middle:last], depth=min(FORUMS_DEPTH, len(forum.pool)))
                first = last

        return self._task_score(rankings())

    def score_words(self, kind: Lexical) -> TaskScore:
        return self._task_score(rank_by(word_scores(kind, forum.queries, forum.pool), depth=FORUMS_DEPTH) for forum in self.forums)

    def texts(self) -> TaskTexts:
        """Return one item per question, with its duplicates as pairs."""
        asked = [
            (question, [forum.pool[place] for place in sorted(duplicates)])
            for forum in self.forums
            for question, duplicates in zip(forum.queries, forum.duplicates, strict=True)
        ]
        pairs = tuple((item, question, other) for item, (question, others) in enumerate(asked) for other in others)
        return TaskTexts(name=self.task.name, sentences=tuple((question,) for question, _ in asked), pairs=pairs)

    def _task_score(self, rankings: Iterator[Ranking]) -> TaskScore:
        found = [average_precisions(ranking.documents, forum.duplicates) for ranking, forum in zip(rankings, self.forums, strict=True)]
        items = pa.table(
            {
                "query_id": [key for forum in self.forums for key in forum.query_ids],
                STRATUM: [forum.name for forum in self.forums for _ in forum.query_ids],
                "map@100": np.concatenate(found),
            }
        )
        main = mean_over_forums(found)
        return TaskScore(task=self.task.name, main=main, measures={"map@100": main}, items=items)


def load_forums(task: ForumsTask, root: Path | None) -> LoadedForums:
    """Read the forums of a task; raise DataError as `read_forums`."""
    return LoadedForums(task=task, forums=read_forums(task.source, split=task.split, data_root=root))


@dataclass(frozen=True, kw_only=True)
class LoadedReranking:
    """A few candidates for each query; the main score is MAP."""

    task: RerankingTask
    rows: Candidates

    def __post_init__(self) -> None:
        grades: dict[str, set[int]] = {}
        for query, grade in zip(self.rows.query_ids, self.rows.relevance, strict=True):
            grades.setdefault(query, set()).add(grade)
        if not any(len(different) > 1 for different in grades.values()):
            raise DataError(
                where=self.task.name, found=f"no query, of {len(grades):,} with a relevant candidate, that has others too",
                expected="candidates of relevance 0 beside the relevant ones",
                remedy="Add some: candidates of equal relevance cannot be ranked.",
            )  # fmt: skip

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.rows.queries, *self.rows.documents)

    @property
    def are_queries(self) -> Sequence[bool]:
        return [True] * len(self.rows.queries) + [False] * len(self.rows.documents)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        queries_RD, documents_RD = np.split(embeddings_SD, 2)
        moved_RD = scorer.queries(queries_RD, where=self.task.name)
        return self._task_score(paired_cosines(moved_RD, documents_RD, where=self.task.name))

    def score_words(self, kind: Lexical) -> TaskScore:
        """Word overlap, or BM25 over the candidates of all queries."""
        queries, documents = (list(dict.fromkeys(texts)) for texts in (self.rows.queries, self.rows.documents))
        scores_QR = word_scores(kind, queries, documents)
        row = {text: number for number, text in enumerate(queries)}
        column = {text: number for number, text in enumerate(documents)}
        pairs = zip(self.rows.queries, self.rows.documents, strict=True)
        return self._task_score(np.asarray([scores_QR[row[query], column[document]] for query, document in pairs]))

    def texts(self) -> TaskTexts:
        """Return one item per query, with its relevant candidates as pairs."""
        rows = self.rows
        queries = dict(zip(rows.query_ids, rows.queries, strict=True))
        item = {query_id: number for number, query_id in enumerate(queries)}
        judged = zip(rows.query_ids, rows.documents, rows.relevance, strict=True)
        pairs = tuple((item[query_id], queries[query_id], document) for query_id, document, relevance in judged if relevance > 0)
        lost = rows.num_unanswerable
        left_out = f"{lost:,} of {lost + len(queries):,} queries, which have no relevant candidate" if lost else ""
        of_query = dict(zip(rows.query_ids, rows.groups, strict=True)) if rows.groups else {}
        return TaskTexts(
            name=self.task.name,
            sentences=tuple((query,) for query in queries.values()),
            pairs=pairs,
            left_out=left_out,
            given_groups=tuple(of_query.values()),
        )

    def _task_score(self, scores_R: np.ndarray) -> TaskScore:
        rows = self.rows
        found = score_candidates(
            scores_R, query_ids=rows.query_ids, document_ids=rows.document_ids, relevance=rows.relevance, where=self.task.name
        )
        items = pa.table({name: list(values) for name, values in found.items().items()})
        return TaskScore(task=self.task.name, main=found.measures["map"], measures=found.measures, items=items)


def load_reranking(task: RerankingTask, root: Path | None) -> LoadedReranking:
    """Read the candidates of a task; raise DataError as `read_candidates`, and if no query has both relevant and other candidates."""
    rows = read_candidates(
        task.source, query=task.query, document=task.document, split=task.split, data_root=root, hub_revision=task.revision
    )
    return LoadedReranking(task=task, rows=rows)
