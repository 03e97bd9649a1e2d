"""Link prediction: the rank of a triple's true tail among the tails of held-out triples (RSE, arXiv 2212.08802, Table 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from sentdist.corpora.kind import Reading
from sentdist.corpora.relations import Pool, RelationalCorpus, RelationPart, relation_sources
from sentdist.frozen import Count
from sentdist.tasks.task import Floor, Measure, OfSentences, Task, TaskKind, TaskScore

if TYPE_CHECKING:
    import numpy as np

    from sentdist.corpora.triples import HeldOutTriples
    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import Scorer


class LinkTask(Task):
    """Rank the tails of triples that a relational corpus has held out for test (RSE, arXiv 2212.08802, Table 7)."""

    later_fields: ClassVar[tuple[str, ...]] = ("own", "split")

    name: Literal["links"] = "links"
    kind: Literal["links"] = "links"
    source: str  # a short name of the relations, and the key of the corpus that held the triples out
    relations: tuple[RelationPart, ...]
    held_out: Count
    seed: int
    pool: Pool = "relation"

    @property
    def is_own(self) -> bool:
        return False

    @property
    def num_items(self) -> int:
        return self.held_out * len(self.relations)

    @property
    def pins(self) -> tuple[tuple[str, str], ...]:
        return tuple((file.source, file.source_revision) for part in self.relations for file in part.sources)

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedLinks:
        """Read the held-out triples; raise DataError as `held_out_relations`."""
        from sentdist.corpora.triples import held_out_relations

        sources = relation_sources(self.relations, Reading(root=root))
        return LoadedLinks(task=self, triples=held_out_relations(sources, held_out=self.held_out, part="test", seed=self.seed))


LINKS = TaskKind(
    name="links", value=LinkTask, main=Measure(name="mrr", title="MRR", unit="mean over triples × 100"),
    floors=("word_overlap", "bm25"), table=None, has_intervals=False,
)  # fmt: skip


def link_task(corpus: RelationalCorpus, pool: Pool) -> LinkTask:
    """Return the task on the held-out triples of a corpus, whose `held_out` must be above 0; its revision is the key of the corpus."""
    parts = tuple(part.model_copy(update={"cap": None}) for part in corpus.relations)  # a cap does not change what is held out
    uncapped = corpus.model_copy(update={"relations": parts})
    return LinkTask(
        source=f"relations/{uncapped.label}", revision=corpus.key, relations=parts, held_out=corpus.held_out, seed=corpus.seed, pool=pool
    )


@dataclass(frozen=True, kw_only=True)
class LoadedLinks(OfSentences):
    """Held-out triples; the main score is the mean reciprocal rank of the true tails × 100, over the triples of all relations."""

    task: LinkTask
    triples: HeldOutTriples

    @property
    def sentences(self) -> Sequence[str]:
        return (*self.triples.heads, *self.triples.tails)

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        """Rank by cos(h + r, t); r = 0 for relations without a vector."""
        from sentdist.evaluation.relational import link_similarities

        triples, num_heads = self.triples, len(self.triples.heads)
        vectors = dict(zip(scorer.relations.names, scorer.relations.vectors, strict=True))
        heads_TD = embeddings_SD[:num_heads].astype(float)
        for number, name in enumerate(triples.names):
            if name in vectors:
                heads_TD[triples.relation == number] += vectors[name]
        return self._task_score(link_similarities(heads_TD, embeddings_SD[num_heads:], where=self.task.name))

    def score_words(self, floor: Floor) -> TaskScore:
        from sentdist.evaluation.nearest import word_scores

        scores_TK = word_scores(floor, self.triples.heads, self.triples.tails)
        return self._task_score(lambda rows: scores_TK[rows])

    def texts(self) -> TaskTexts:
        from sentdist.data.leaks import TaskTexts

        triples = self.triples
        return TaskTexts.of_pairs(self.task.name, zip(triples.heads, (triples.tails[place] for place in triples.tail), strict=True))

    def _task_score(self, similarities: Callable[[np.ndarray], np.ndarray]) -> TaskScore:
        """Each measure of each relation, and of all, as `relation.measure` × 100; one item per triple, with the rank of its tail."""
        from sentdist.evaluation.relational import rank_links

        triples = self.triples
        found = rank_links(
            similarities, num_tails=len(triples.tails), tail=triples.tail, relation=triples.relation, names=triples.names,
            known=triples.known, pool=self.task.pool,
        )  # fmt: skip
        measures: dict[str, float | None] = {}
        for score in found.scores:
            measures |= {f"{score.name}.mrr": score.mrr, **{f"{score.name}.hits@{most}": value for most, value in score.hits.items()}}
        relation = [triples.names[number] for number in triples.relation]
        items = {"relation": relation, "head": list(triples.heads), "rank": found.ranks}
        return TaskScore(task=self.task.name, main=found.overall.mrr, measures=measures, items=items)
