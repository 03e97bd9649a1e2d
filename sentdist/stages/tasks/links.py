"""How link prediction scores an encoder: where the true tail of a relation stands among held-out ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.relations import HeldOutTriples, held_out_relations
from sentdist.evaluation.lexical import Lexical, word_scores
from sentdist.evaluation.link_prediction import LinkPrediction, rank_links, score_links
from sentdist.plan.corpora.relations import LinkTask
from sentdist.stages.corpora.relations import relation_sources
from sentdist.stages.scores.scorer import Scorer


@dataclass(frozen=True, kw_only=True)
class LinksTask:
    """Held-out triples; the main score is the mean reciprocal rank of the true tails × 100, over the triples of all relations."""

    task: LinkTask
    triples: HeldOutTriples

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*self.triples.heads, *self.triples.tails)

    def score_links(self, embeddings_SD: np.ndarray, scorer: Scorer) -> LinkPrediction:
        """Ranks by cos(h + r, t); r = 0 for relations that the encoder has no vector of."""
        num_heads, triples = len(self.triples.heads), self.triples
        vectors = np.zeros((len(triples.names), embeddings_SD.shape[1]))
        known = dict(zip(scorer.relations.names, scorer.relations.vectors, strict=True))
        for place, name in enumerate(triples.names):
            if name in known:
                vectors[place] = known[name]
        return score_links(
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

    def score_words(self, kind: Lexical) -> LinkPrediction:
        """Ranks by words alone."""
        heads, triples = self.triples.heads, self.triples
        scores_TK = word_scores(kind, heads, triples.tails)
        return rank_links(
            lambda rows: scores_TK[rows],
            num_tails=len(triples.tails),
            tail=triples.tail,
            relation=triples.relation,
            names=triples.names,
            known=triples.known,
            pool=self.task.pool,
        )

    def items(self, found: LinkPrediction) -> pa.Table:
        """One row a triple: its relation and the rank of its tail."""
        relation = [self.triples.names[number] for number in self.triples.relation]
        return pa.table({"relation": relation, "head": list(self.triples.heads), "rank": found.ranks})


def load_links(task: LinkTask, root: Path | None) -> LinksTask:
    """Read the held-out triples of a task; DataError as `held_out_relations` says."""
    sources = relation_sources(task.relations, root)
    return LinksTask(task=task, triples=held_out_relations(sources, held_out=task.held_out, part="test", seed=task.seed))


def link_measures(found: LinkPrediction) -> dict[str, float | None]:
    """Every measure of every relation, and of all, as `relation.measure` × 100."""
    measures: dict[str, float | None] = {}
    for score in found.scores:
        measures |= {f"{score.name}.mrr": score.mrr, **{f"{score.name}.hits@{most}": value for most, value in score.hits.items()}}
    return measures
