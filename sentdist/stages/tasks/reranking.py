"""How a few candidates for each query, to be put in order, score an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.candidates import Candidates, read_candidates
from sentdist.data.task_texts import TaskTexts
from sentdist.errors import DataError
from sentdist.evaluation.lexical import Lexical, word_scores
from sentdist.evaluation.metrics import paired_cosines
from sentdist.evaluation.reranking import score_candidates
from sentdist.plan.task_kinds import RerankingTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore


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
                where=self.task.name, found=f"no query, of {len(grades):,} with a relevant candidate, that has others, too",
                expected="candidates of relevance 0 beside the relevant ones",
                remedy="Add some: of candidates that are all alike no order is better than another.",
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
        """An item a query, its pairs those with relevant candidates."""
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
    """Read the candidates of a task; DataError as `read_candidates` says, and where no order is better than another."""
    rows = read_candidates(
        task.source,
        query=task.query,
        document=task.document,
        split=task.split,
        data_root=root,
        hub_revision=task.revision,
    )
    return LoadedReranking(task=task, rows=rows)
