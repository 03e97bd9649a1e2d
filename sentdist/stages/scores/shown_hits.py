"""What encoders find for one query of a retrieval task: an example that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sentdist.evaluation.nearest import search
from sentdist.plan.specs import LexicalSpec
from sentdist.plan.stages import Scores
from sentdist.stages.context import Context
from sentdist.stages.scores.embed_sentences import embed_here
from sentdist.stages.scores.embedded_tasks import EmbeddedTasks
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.retrieval import LoadedRetrieval


@dataclass(frozen=True, kw_only=True)
class ShownHits:
    """found: label of an encoder -> its nearest documents, best first, each with whether it is relevant."""

    task: str
    query: str
    found: dict[str, list[tuple[str, bool]]]


def shown_hits(stages: Mapping[str, Scores], context: Context, *, num_hits: int, most_documents: int) -> ShownHits | None:
    """Search the first retrieval task of these scores by the encoder of each; None: they have none, or its collection is larger.

    The query is the first one whose nearest document is relevant by the last encoder and not by the first; else the first of all.
    """
    last = list(stages.values())[-1]
    task = next((task for task in last.tasks if task.kind == "retrieval"), None)
    loaded = None if task is None else load_task(task, context.data_root, context.folders)
    if task is None or not isinstance(loaded, LoadedRetrieval) or len(loaded.collection.documents) > most_documents:
        return None
    collection, queries = loaded.collection, loaded.rows
    rankings = []
    for stage in stages.values():
        of, alone = stage.encoder, stage.model_copy(update={"tasks": (task,)})
        assert not isinstance(of, LexicalSpec), "words alone are no encoder"
        embeddings_SD = EmbeddedTasks.of(alone, of, [loaded], context, embed_here(alone, context)).of_task(task, loaded)
        rankings.append(search(embeddings_SD[: len(queries)], embeddings_SD[len(queries) :], depth=num_hits).documents.tolist())

    def is_relevant(place: int, document: int) -> bool:
        return collection.qrels[collection.query_ids[queries[place]]].get(collection.document_ids[document], 0) > 0

    first_hits = [[is_relevant(place, hits[0]) for place, hits in enumerate(ranking)] for ranking in rankings]
    shown = next((place for place in range(len(queries)) if first_hits[-1][place] and not first_hits[0][place]), 0)
    return ShownHits(
        task=task.name,
        query=collection.queries[queries[shown]],
        found={
            label: [(collection.documents[row], is_relevant(shown, row)) for row in ranking[shown]]
            for label, ranking in zip(stages, rankings, strict=True)
        },
    )
