"""Duplicate questions within forums, scored by the mean over forums of MAP@100 as USEB computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sentdist.tasks.task import Floor, Measure, Task, TaskKind, TaskScore

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Forum
    from sentdist.data.leaks import TaskTexts
    from sentdist.evaluation.nearest import Ranking
    from sentdist.tasks.scorer import Scorer


class ForumsTask(Task):
    """Duplicate search within forums: each query is compared with the questions of its forum that are not queries."""

    kind: Literal["forums"] = "forums"

    def num_encoded(self, items: int) -> int:
        return items

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedForums:
        """Read the forums; raise DataError as `read_forums`."""
        from sentdist.data.checked_rows import read_forums

        return LoadedForums(task=self, forums=read_forums(self.source, split=self.split, data_root=root))


FORUMS = TaskKind(
    name="forums", value=ForumsTask, main=Measure(name="map@100", title="MAP@100", unit="mean over forums of MAP@100 × 100"),
    columns=("query", "document"), floors=("word_overlap", "bm25"), table="Duplicates within forums", works=("useb",), scale="precision",
    chooses=True, counts_candidates=True, has_queries=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedForums:
    """Questions of several forums."""

    task: ForumsTask
    forums: tuple[Forum, ...]

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        return tuple(text for forum in self.forums for text in (*forum.queries, *forum.pool))

    @property
    def are_queries(self) -> Sequence[bool]:
        return [is_query for forum in self.forums for is_query in (*[True] * len(forum.queries), *[False] * len(forum.pool))]

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        from sentdist.evaluation.nearest import search
        from sentdist.evaluation.retrieval import FORUMS_DEPTH

        def rankings() -> Iterator[Ranking]:
            first = 0
            for forum in self.forums:
                middle = first + len(forum.queries)
                last = middle + len(forum.pool)
                queries = scorer.queries(embeddings_SD[first:middle], where=self.task.name)
                yield search(queries, embeddings_SD[middle:last], depth=FORUMS_DEPTH)
                first = last

        return self._task_score(rankings())

    def score_words(self, floor: Floor) -> TaskScore:
        from sentdist.evaluation.nearest import word_scores
        from sentdist.evaluation.retrieval import FORUMS_DEPTH, rank_by

        return self._task_score(rank_by(word_scores(floor, forum.queries, forum.pool), depth=FORUMS_DEPTH) for forum in self.forums)

    def texts(self) -> TaskTexts:
        """Return one item per question, with its duplicates as pairs."""
        from sentdist.data.leaks import TaskTexts

        asked = [
            (question, [forum.pool[place] for place in sorted(duplicates)])
            for forum in self.forums
            for question, duplicates in zip(forum.queries, forum.duplicates, strict=True)
        ]
        pairs = tuple((item, question, other) for item, (question, others) in enumerate(asked) for other in others)
        return TaskTexts(name=self.task.name, sentences=tuple((question,) for question, _ in asked), pairs=pairs)

    def _task_score(self, rankings: Iterator[Ranking]) -> TaskScore:
        import numpy as np

        from sentdist.evaluation.items import STRATUM
        from sentdist.evaluation.retrieval import average_precisions

        found = [average_precisions(ranking.documents, forum.duplicates) for ranking, forum in zip(rankings, self.forums, strict=True)]
        items = {
            "query_id": [key for forum in self.forums for key in forum.query_ids],
            STRATUM: [forum.name for forum in self.forums for _ in forum.query_ids],
            "map@100": np.concatenate(found),
        }
        main = float(np.mean([values.mean() for values in found]))
        return TaskScore(task=self.task.name, main=main, measures={"map@100": main}, items=items)
