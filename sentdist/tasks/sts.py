"""Graded sentence pairs, scored by Spearman's correlation with the gold scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from sentdist.errors import DataError, counted
from sentdist.recipe.specs import Fold
from sentdist.tasks.task import Floor, Measure, OfSentences, Task, TaskKind, TaskScore, drawn_rows, halves

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Pairs
    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import RelationalScorer, Scorer


class LimitedTask(Task):
    """Graded pairs, or queries with documents: both have all of these fields in their keys."""

    later_fields: ClassVar[tuple[str, ...]] = ("own", "limit")

    aggregation: Literal["all"] = "all"  # of subsets: one correlation over all pairs, the protocol of published tables
    document_field: Literal["answer", "question", "question_answer"] = "answer"
    fold: Fold | None = None
    fold_role: Literal["dev", "test"] | None = None
    limit: Annotated[int, Field(ge=10)] | None = None  # pairs or queries, always the same sample; None: all


class StsTask(LimitedTask):
    """Graded pairs."""

    kind: Literal["sts"] = "sts"

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedSts:
        """Read the pairs; raise DataError as `read_pairs`, and if all scores of a user file are equal."""
        pairs = read_graded_pairs(self, root) if self.own is None else self._held_out(root, folders)
        if self.limit is not None:
            pairs = pairs.only(drawn_rows(pairs.num_pairs, self.name, self.limit))
        # Published pairs may pass: the geometry of their embeddings is reported even without a score.
        if self.is_own and len(set(pairs.score.tolist())) < 2:
            found = f"one score, {pairs.score[0]:g}, in all of {counted(pairs.num_pairs, 'pair')}"
            raise DataError(where=self.name, found=found, expected="scores that differ", remedy="Give more rows.")
        return LoadedSts(task=self, pairs=pairs)

    def _held_out(self, root: Path | None, folders: Mapping[str, str]) -> Pairs:
        import numpy as np

        from sentdist.corpora.own_rows import open_split
        from sentdist.data.checked_rows import Pairs

        assert self.own is not None
        rows = open_split(self.source, self.own, self.split, revision=self.revision, folders=folders, root=root)
        table = rows.table()
        first, second, score = (table[name].to_pylist() for name in table.column_names)
        subset = (self.source,) * table.num_rows
        return Pairs(subset=subset, sentence1=tuple(first), sentence2=tuple(second), score=np.array(score), group=rows.groups)


STS = TaskKind(
    name="sts", value=StsTask, main=Measure(name="spearman", title="Spearman", unit="Spearman's correlation × 100", lowest=-100.0),
    columns=("sentence1", "sentence2", "score"), floors=("word_overlap",), table="Semantic textual similarity",
    own="`sentence1`, `sentence2`, `score` on any scale; optional `subset`, `group` (rows that belong together) and `split`",
    chooses=True, is_graded_pairs=True,
)  # fmt: skip


def read_graded_pairs(task: Task, root: Path | None) -> Pairs:
    """Read graded pairs; those of a user file may have any scale, since only ranks count."""
    from sentdist.data.checked_rows import read_pairs

    scale = (-math.inf, math.inf) if task.is_own else (0.0, 5.0)
    return read_pairs(task.source, split=task.split, data_root=root, hub_revision=task.revision, score_range=scale)


@dataclass(frozen=True, kw_only=True)
class LoadedSts(OfSentences):
    """Graded sentence pairs; the main score is Spearman's correlation."""

    task: StsTask
    pairs: Pairs

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.pairs.sentence1, *self.pairs.sentence2)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        return self._task_score(scorer.similarities(*halves(embeddings_SD), where=self.task.name))

    def score_words(self, floor: Floor) -> TaskScore:
        """Score by word overlap; the plan refuses BM25, which ranks documents."""
        from sentdist.evaluation.sts import jaccard_scores

        return self._task_score(jaccard_scores(self.pairs.sentence1, self.pairs.sentence2))

    def texts(self) -> TaskTexts:
        from sentdist.data.leaks import TaskTexts

        left_out = f"{counted(self.pairs.num_ungraded, 'pair')} without a score" if self.pairs.num_ungraded else ""
        both = zip(self.pairs.sentence1, self.pairs.sentence2, strict=True)
        return TaskTexts.of_pairs(self.task.name, both, left_out=left_out, given_groups=self.pairs.group)

    def curve(self, embeddings_SD: np.ndarray, scorer: RelationalScorer) -> list[float | None]:
        """Return the main score at each weight of the view's curve."""
        return scorer.curve(*halves(embeddings_SD), self.pairs.score, where=self.task.name)

    def _task_score(self, similarities_P: np.ndarray) -> TaskScore:
        from sentdist.evaluation.sts import pearson, spearman

        gold = self.pairs.score
        main = spearman(similarities_P, gold)
        items = {"subset": self.pairs.subset, "score": gold, "similarity": similarities_P}
        return TaskScore(task=self.task.name, main=main, measures={"spearman": main, "pearson": pearson(similarities_P, gold)}, items=items)
