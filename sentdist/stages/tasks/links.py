"""Score embeddings by link prediction: the rank of a triple's true tail among held-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.corpora.kind import Reading
from sentdist.corpora.relations import LinkTask, relation_sources
from sentdist.corpora.triples import HeldOutTriples, held_out_relations
from sentdist.data.leaks import TaskTexts
from sentdist.evaluation.nearest import Lexical, word_scores
from sentdist.evaluation.relational import LinkPrediction, rank_links, score_links
from sentdist.stages.scores.scorer import Scorer
from sentdist.stages.tasks.loaded_task import TaskScore


@dataclass(frozen=True, kw_only=True)
class LoadedLinks:
    """Held-out triples; the main score is the mean reciprocal rank of the true tails × 100, over the triples of all relations."""

    task: LinkTask
    triples: HeldOutTriples

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.triples.heads, *self.triples.tails)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        """Rank by cos(h + r, t); r = 0 for relations without a vector."""
        num_heads, triples = len(self.triples.heads), self.triples
        vectors = np.zeros((len(triples.names), embeddings_SD.shape[1]))
        known = dict(zip(scorer.relations.names, scorer.relations.vectors, strict=True))
        for place, name in enumerate(triples.names):
            if name in known:
                vectors[place] = known[name]
        found = score_links(
            embeddings_SD[:num_heads],
            embeddings_SD[num_heads:],
            tail=triples.tail,
            relation=triples.relation,
            relations_RD=vectors,
            names=triples.names,
            known=triples.known,
            pool=self.task.pool,
            where=self.task.name,
        )
        return self._task_score(found)

    def score_words(self, kind: Lexical) -> TaskScore:
        triples = self.triples
        scores_TK = word_scores(kind, triples.heads, triples.tails)
        found = rank_links(
            lambda rows: scores_TK[rows],
            num_tails=len(triples.tails),
            tail=triples.tail,
            relation=triples.relation,
            names=triples.names,
            known=triples.known,
            pool=self.task.pool,
        )
        return self._task_score(found)

    def texts(self) -> TaskTexts:
        triples = self.triples
        return TaskTexts.of_pairs(self.task.name, zip(triples.heads, (triples.tails[place] for place in triples.tail), strict=True))

    def _task_score(self, found: LinkPrediction) -> TaskScore:
        """Each measure of each relation, and of all, as `relation.measure` × 100; one item per triple, with the rank of its tail."""
        measures: dict[str, float | None] = {}
        for score in found.scores:
            measures |= {f"{score.name}.mrr": score.mrr, **{f"{score.name}.hits@{most}": value for most, value in score.hits.items()}}
        relation = [self.triples.names[number] for number in self.triples.relation]
        items = pa.table({"relation": relation, "head": list(self.triples.heads), "rank": found.ranks})
        return TaskScore(task=self.task.name, main=found.overall.mrr, measures=measures, items=items)


def load_links(task: LinkTask, root: Path | None) -> LoadedLinks:
    """Read the held-out triples of a task; raise DataError as `held_out_relations`."""
    sources = relation_sources(task.relations, Reading(root=root))
    return LoadedLinks(task=task, triples=held_out_relations(sources, held_out=task.held_out, part="test", seed=task.seed))
