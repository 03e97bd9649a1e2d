"""Relations in stages: how triples are read, what an encoder's relation table is worth to a task, how the table is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sentdist.data.relations import HeldOutTriples, RelationSource, held_out_relations, join_relations
from sentdist.data.sources.pinned import read_source
from sentdist.evaluation.lexical import Lexical, word_scores
from sentdist.evaluation.link_prediction import LinkPrediction, rank_links, score_links
from sentdist.evaluation.relational import relation_cosines, relation_weights, relational_queries, relational_similarities, weight_curve
from sentdist.evaluation.sts import score_similarities
from sentdist.learning.objective import Objective
from sentdist.learning.relation_file import Relations, has_relations, read_relations
from sentdist.plan.corpora.relations import LinkTask, RelationalCorpus, RelationFile, RelationPart
from sentdist.plan.relational import RelationalScoring
from sentdist.plan.stage import Json

COLUMNS = ("anchor", "positive", "negative")


def relational_rows(stage: RelationalCorpus, root: Path | None) -> tuple[pa.Table, dict[str, Json]]:
    """Columns anchor, positive, negative and relation, and the counts of each relation for the record.

    Raises:
        DataError: what `join_relations` refuses; an unreadable source.
    """
    sources = [_source(part, root) for part in stage.relations]
    found = join_relations(sources, cap_rule=stage.cap_rule, held_out=stage.held_out, seed=stage.seed)
    return found.table, {"relations": {name: asdict(count) for name, count in found.counts.items()}}


@dataclass(frozen=True, kw_only=True)
class RelationalScorer:
    """An encoder's relations, and how a view scores by them; scoring None: pairs and queries by their plain cosine."""

    relations: Relations
    scoring: RelationalScoring | None

    def similarities(self, first_SD: np.ndarray, second_SD: np.ndarray, *, where: str) -> np.ndarray:
        """(S,) relational similarities of pairs; `scoring` must be there."""
        assert self.scoring is not None, "asked only where a view scores by relations"
        weights_K = self._weights(where)
        return relational_similarities(
            first_SD, second_SD, self.relations.vectors, weights_K, directions=self.scoring.directions, where=where
        )

    def check(self, *, where: str) -> None:
        """DataError unless the encoder has the relations that are weighted."""
        self._weights(where)

    def queries(self, queries_QD: np.ndarray, *, where: str) -> np.ndarray:
        """(Q, D) vectors whose cosines with documents rank as the queries' relational scores do;
        the queries themselves without a scoring."""
        if self.scoring is None:
            return queries_QD
        return relational_queries(queries_QD, self.relations.vectors, self._weights(where), where=where)

    def curve(
        self, first_SD: np.ndarray, second_SD: np.ndarray, gold_S: np.ndarray, subsets: Sequence[str], *, where: str
    ) -> list[float | None]:
        """Spearman × 100 at each weight of the scoring's grid; `scoring.curve` must be there."""
        assert self.scoring is not None and self.scoring.curve is not None, "asked only where a view has a curve"
        found = weight_curve(
            first_SD,
            second_SD,
            self.relations.vectors,
            self.relations.names,
            self.scoring.by_name,
            relation=self.scoring.curve.relation,
            grid=self.scoring.curve.weights,
            score=lambda similarities: score_similarities(similarities, gold_S, subsets, where=where).spearman,
            directions=self.scoring.directions,
            where=where,
        )
        return list(found.scores)

    def facts(self) -> dict[str, Json]:
        """How alike the relations are, for the record; a table that did not learn (vectors of length 0) says nothing."""
        lengths_K = np.linalg.norm(self.relations.vectors, axis=1)
        if not lengths_K.all():
            return {}
        cosines = relation_cosines(self.relations.vectors).round(6).tolist()
        return {
            "relations": {"names": list(self.relations.names), "cosines": cosines, "lengths": [round(float(one), 6) for one in lengths_K]}
        }

    def _weights(self, where: str) -> np.ndarray:
        assert self.scoring is not None
        return relation_weights(self.scoring.by_name, self.relations.names, normalize=self.scoring.normalized, where=where)


@dataclass(frozen=True, kw_only=True)
class LinksTask:
    """Held-out triples; the main score is the mean reciprocal rank of the true tails × 100, over the triples of all relations."""

    task: LinkTask
    triples: HeldOutTriples

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*self.triples.heads, *self.triples.tails)

    def score_links(self, embeddings_SD: np.ndarray, scorer: RelationalScorer | None) -> LinkPrediction:
        """Ranks by cos(h + r, t); r = 0 for relations that the encoder has no vector of."""
        num_heads, triples = len(self.triples.heads), self.triples
        vectors = np.zeros((len(triples.names), embeddings_SD.shape[1]))
        known = {} if scorer is None else dict(zip(scorer.relations.names, scorer.relations.vectors, strict=True))
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
    sources = [_source(part, root) for part in task.relations]
    return LinksTask(task=task, triples=held_out_relations(sources, held_out=task.held_out, part="test", seed=task.seed))


def link_measures(found: LinkPrediction) -> dict[str, float | None]:
    """Every measure of every relation, and of all, as `relation.measure` × 100."""
    measures: dict[str, float | None] = {}
    for score in found.scores:
        measures |= {f"{score.name}.mrr": score.mrr, **{f"{score.name}.hits@{most}": value for most, value in score.hits.items()}}
    return measures


def saved_scorer(folder: Path, scoring: RelationalScoring | None) -> RelationalScorer | None:
    """What an encoder's folder says of relations; None where it has none."""
    return RelationalScorer(relations=read_relations(folder), scoring=scoring) if has_relations(folder) else None


def live_scorer(objective: Objective, scoring: RelationalScoring | None) -> RelationalScorer | None:
    """What a training's objective knows of relations at this moment; None where pairs are not scored by them.
    Collective: ZeRO may share the table out."""
    if scoring is None:
        return None
    relations = objective.relations()
    assert relations is not None, "the plan scores by relations only what learns them"
    return RelationalScorer(relations=relations, scoring=scoring)


def _source(part: RelationPart, root: Path | None) -> RelationSource:
    return RelationSource(
        name=part.name,
        tables=tuple(_read(file, part, root) for file in part.sources),
        construction=part.construction,
        columns=part.columns,
        only=part.only,
        cap=part.cap,
    )


def _read(file: RelationFile, part: RelationPart, root: Path | None) -> pa.Table:
    hub_revision = file.source_revision if file.source.startswith("hub:") else None
    columns = (*part.columns, *(part.only[:1] if part.only else ()))
    return read_source(file.source, split=file.split, data_root=root, columns=columns, hub_revision=hub_revision)
