"""Queries against a collection of documents, scored by MAP; folds of the queries cross-validate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.errors import DataError, counted
from sentdist.tasks.sts import LimitedTask
from sentdist.tasks.task import Floor, Measure, TaskKind, TaskScore, drawn_rows

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.leaks import TaskTexts
    from sentdist.data.retrieval import Retrieval
    from sentdist.evaluation.nearest import Ranking
    from sentdist.tasks.scorer import Scorer


class RetrievalTask(LimitedTask):
    """Queries with documents."""

    kind: Literal["retrieval"] = "retrieval"

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedRetrieval:
        """Read the queries, documents and judgements; raise DataError as `read_retrieval` and `judgements_of`."""
        from sentdist.corpora.own_rows import open_split
        from sentdist.data.retrieval import read_retrieval

        if self.own is not None:
            rows = open_split(self.source, self.own, self.split, revision=self.revision, folders=folders, root=root)
            collection = rows.queries()
        else:
            collection = read_retrieval(self.source, split=self.split, data_root=root, document_field=self.document_field)
        of_fold = self._rows_of_fold(collection)
        if self.limit is not None:
            of_fold = tuple(of_fold[place] for place in drawn_rows(len(of_fold), self.name, self.limit))
        loaded = LoadedRetrieval(task=self, collection=collection, rows=of_fold)
        loaded.check()
        return loaded

    def _rows_of_fold(self, collection: Retrieval) -> tuple[int, ...]:
        from sentdist.data.retrieval import groups_by_answer, queries_for

        fold, ids = self.fold, collection.query_ids
        if fold is None or self.fold_role is None:
            return tuple(range(len(ids)))
        groups = groups_by_answer(collection) if fold.by == "answer" else None
        wanted = set(queries_for(ids, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, role=self.fold_role, groups=groups))
        return tuple(row for row, query in enumerate(ids) if query in wanted)


RETRIEVAL = TaskKind(
    name="retrieval", value=RetrievalTask, main=Measure(name="map", title="MAP", unit="mean over queries × 100"),
    floors=("word_overlap", "bm25"), table="Retrieval", measures_in_table=("acc@1", "acc@3", "acc@5", "map", "mrr", "ndcg@10"),
    own=(
        "`NAME_docs` (`doc_id`, `text`, `title`), `NAME_queries` (`query_id`, `query`, optional `group`), `NAME_qrels` "
        "(`query_id`, `doc_id`, `relevance`), each a file; or a folder in BEIR format"
    ),
    chooses=True, has_documents=True, has_queries=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedRetrieval:
    """Queries against a collection of documents; the main score is MAP."""

    task: RetrievalTask
    collection: Retrieval
    rows: tuple[int, ...]  # of the queries that this fold scores

    def check(self) -> None:
        """Raise DataError for judgements that no ranking can be scored by, before the whole collection is encoded."""
        from sentdist.evaluation.retrieval import judgements_of

        documents, qrels = self.collection.documents, self.collection.qrels
        judgements_of(
            self._query_ids, self.collection.document_ids, qrels, unranked=self.collection.empty_document_ids, where=self.task.name
        )
        if all(sum(grade > 0 for grade in qrels[query].values()) >= len(documents) for query in self._query_ids):
            found = f"{counted(len(documents), 'document')}, relevant to each query, and no others"
            raise DataError(where=self.task.name, found=found, expected="others, too", remedy="All rankings of these are equal: add some.")

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        return (*(self.collection.queries[row] for row in self.rows), *self.collection.documents)

    @property
    def are_queries(self) -> Sequence[bool]:
        return [True] * len(self.rows) + [False] * len(self.collection.documents)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        from sentdist.evaluation.nearest import search
        from sentdist.evaluation.retrieval import DEPTH

        queries = scorer.queries(embeddings_SD[: len(self.rows)], where=self.task.name)
        return self._task_score(search(queries, embeddings_SD[len(self.rows) :], depth=DEPTH))

    def score_words(self, floor: Floor) -> TaskScore:
        from sentdist.evaluation.nearest import word_scores
        from sentdist.evaluation.retrieval import DEPTH, rank_by

        scores_QR = word_scores(floor, self.sentences[: len(self.rows)], self.collection.documents)
        return self._task_score(rank_by(scores_QR, depth=DEPTH))

    def texts(self) -> TaskTexts:
        """Return one item per query, with its relevant documents as pairs."""
        every = range(len(self.collection.query_ids))
        if len(self.rows) == len(every):
            return self._texts(self.rows)
        return replace(self._texts(self.rows), known_groups=self._texts(every).groups()[list(self.rows)])

    def _texts(self, rows: Sequence[int]) -> TaskTexts:
        from sentdist.data.leaks import TaskTexts

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
        from sentdist.evaluation.retrieval import score_ranking

        found = score_ranking(
            ranking,
            query_ids=self._query_ids,
            document_ids=self.collection.document_ids,
            qrels=self.collection.qrels,
            unranked=self.collection.empty_document_ids,
            are_documents=self.collection.are_documents,
            where=self.task.name,
        )
        return TaskScore(task=self.task.name, main=found.measures["map"], measures=found.measures, items=found.items())
