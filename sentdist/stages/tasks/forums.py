"""How a task over several forums scores an encoder: each question finds its duplicates in its own forum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.forums import Forum, read_forums
from sentdist.data.task_texts import TaskTexts
from sentdist.evaluation.forums import DEPTH, average_precisions, mean_over_forums
from sentdist.evaluation.items import STRATUM
from sentdist.evaluation.lexical import Lexical, word_scores
from sentdist.evaluation.nearest import Ranking, search
from sentdist.evaluation.retrieval import rank_by
from sentdist.plan.task_kinds import ForumsTask
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore


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
                yield search(queries, embeddings_SD[middle:last], depth=min(DEPTH, len(forum.pool)))
                first = last

        return self._task_score(rankings())

    def score_words(self, kind: Lexical) -> TaskScore:
        return self._task_score(rank_by(word_scores(kind, forum.queries, forum.pool), depth=DEPTH) for forum in self.forums)

    def texts(self) -> TaskTexts:
        """An item a question, its pairs those with its duplicates."""
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
    """Read the forums of a task; DataError as `read_forums` says."""
    return LoadedForums(task=task, forums=read_forums(task.source, split=task.split, data_root=root))
