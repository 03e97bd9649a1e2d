"""How retrieval scores an encoder: where the relevant documents of a query stand in a collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.folds import groups_of, queries_for
from sentdist.data.retrieval import Retrieval, read_retrieval
from sentdist.data.task_texts import TaskTexts
from sentdist.errors import DataError, counted
from sentdist.evaluation.lexical import Lexical, word_scores
from sentdist.evaluation.nearest import Ranking, search
from sentdist.evaluation.retrieval import DEPTH, judgements_of, rank_by, score_ranking
from sentdist.plan.specs import Task
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore, drawn_rows


@dataclass(frozen=True, kw_only=True)
class LoadedRetrieval:
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
        num_documents = len(self.collection.documents)
        if all(sum(grade > 0 for grade in self.collection.qrels[query].values()) >= num_documents for query in self._query_ids):
            raise DataError(
                where=self.task.name, found=f"{counted(num_documents, 'document')}, relevant to each query, and no others",
                expected="documents to tell them from", remedy="Add others to the collection: no order of these is better than another.",
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
        """An item a query, its pairs those with relevant documents."""
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
    """Read queries, documents and judgements of a task."""
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
