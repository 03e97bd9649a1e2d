"""Ranking of a few candidates for each query, scored by MAP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.errors import DataError
from sentdist.tasks.cards import TaskCard
from sentdist.tasks.task import Floor, Measure, Task, TaskKind, TaskScore, halves

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Candidates
    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import Scorer


class RerankingTask(Task):
    """Ranking of a few candidates for each query."""

    kind: Literal["reranking"] = "reranking"
    query: tuple[str, ...] = ("query",)  # columns whose texts are joined
    document: tuple[str, ...] = ("document",)

    @classmethod
    def of_card(cls, card: TaskCard, columns: tuple[str, ...]) -> dict[str, object]:
        return {"query": columns, "document": card.documents}

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedReranking:
        """Read the candidates; raise DataError as `read_candidates`, and if no query has both relevant and other candidates."""
        from sentdist.data.checked_rows import read_candidates

        rows = read_candidates(
            self.source, query=self.query, document=self.document, split=self.split, data_root=root, hub_revision=self.revision
        )
        grades: dict[str, set[int]] = {}
        for query, grade in zip(rows.query_ids, rows.relevance, strict=True):
            grades.setdefault(query, set()).add(grade)
        if not any(len(different) > 1 for different in grades.values()):
            found = f"no query, of {len(grades):,} with a relevant candidate, that has others too"
            raise DataError(where=self.name, found=found, expected="candidates of relevance 0 beside the relevant ones", remedy="Add some.")
        return LoadedReranking(task=self, rows=rows)


RERANKING = TaskKind(
    name="reranking", value=RerankingTask, main=Measure(name="map", title="MAP", unit="mean average precision × 100"), columns=("query",),
    further=lambda card: ("query_id", "relevance", *card.documents), floors=("word_overlap", "bm25"), table="Re-ranking",
    own="a row per candidate: `query_id`, `query`, `document_id`, `document`, `relevance`; or a row per query, as in mteb: "
    "`query`, lists `positive` and `negative`; optional `group` (of queries)",
    scale="precision", chooses=True, counts_candidates=True, has_queries=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedReranking:
    """A few candidates for each query; the main score is MAP."""

    task: RerankingTask
    rows: Candidates

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.rows.queries, *self.rows.documents)

    @property
    def are_queries(self) -> Sequence[bool]:
        return [True] * len(self.rows.queries) + [False] * len(self.rows.documents)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        from sentdist.evaluation.sts import paired_cosines

        queries_RD, documents_RD = halves(embeddings_SD)
        return self._task_score(paired_cosines(scorer.queries(queries_RD, where=self.task.name), documents_RD, where=self.task.name))

    def score_words(self, floor: Floor) -> TaskScore:
        """Word overlap, or BM25 over the candidates of all queries."""
        import numpy as np

        from sentdist.evaluation.nearest import word_scores

        row = {text: number for number, text in enumerate(dict.fromkeys(self.rows.queries))}
        column = {text: number for number, text in enumerate(dict.fromkeys(self.rows.documents))}
        scores_QR = word_scores(floor, list(row), list(column))
        pairs = zip(self.rows.queries, self.rows.documents, strict=True)
        return self._task_score(np.asarray([scores_QR[row[query], column[document]] for query, document in pairs]))

    def texts(self) -> TaskTexts:
        """Return one item per query, with its relevant candidates as pairs."""
        from sentdist.data.leaks import TaskTexts

        rows = self.rows
        queries = dict(zip(rows.query_ids, rows.queries, strict=True))
        item = {query_id: number for number, query_id in enumerate(queries)}
        judged = zip(rows.query_ids, rows.documents, rows.relevance, strict=True)
        lost = rows.num_unanswerable
        return TaskTexts(
            name=self.task.name,
            sentences=tuple((query,) for query in queries.values()),
            pairs=tuple((item[query_id], queries[query_id], document) for query_id, document, relevance in judged if relevance > 0),
            left_out=f"{lost:,} of {lost + len(queries):,} queries, which have no relevant candidate" if lost else "",
            given_groups=tuple(dict(zip(rows.query_ids, rows.groups, strict=True)).values()) if rows.groups else (),
        )

    def _task_score(self, scores_R: np.ndarray) -> TaskScore:
        from sentdist.evaluation.retrieval import score_candidates

        found = score_candidates(scores_R, query_ids=self.rows.query_ids, relevance=self.rows.relevance)
        return TaskScore(task=self.task.name, main=found.measures["map"], measures=found.measures, items=found.items())
