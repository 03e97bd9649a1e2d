"""Embedding the sentences of an evaluation over the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import ray

from sentdist.evaluation.nearest import NearestDocuments
from sentdist.execution.demand import pool_demand
from sentdist.execution.parallel.pool import over_workers, rows_per_part, with_cluster_devices
from sentdist.inference.nearest import CorpusSearch, ReadTile, SearchedFiles, Tile, TileReader
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import Scores
from sentdist.stages.context import Context, InUse, check_inputs, inputs_watched
from sentdist.stages.scores.embed_sentences import Embed, OnProgress, embed_here
from sentdist.text import PrintLine

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.tokens import UnknownWords


class SentenceEmbedder:
    """A worker: loads the encoder once, then embeds one part of the sentences after the other, each behind the prompt."""

    def __init__(self, stage: Scores, context: Context, prompt: str) -> None:
        self._stage, self._context, self._prompt = stage, context, prompt
        self._inputs: InUse = {}

    @cached_property
    def _embed(self) -> Embed:
        # Not in the constructor: there an error would be reported as the death of an actor.
        from sentdist.execution.reserved import use_reserved  # torch, which who waits for the workers does not need

        runtime = self._context.runtime
        use_reserved(pool_demand(runtime, gpus=runtime.gpus_per_worker))
        return embed_here(self._stage, self._context)

    def work(self, part: tuple[int, list[str]]) -> np.ndarray:
        """The embeddings of the sentences of a part, which has a number.

        Raises:
            ArtifactLost: the encoder was changed since this worker began to read it.
        """
        from sentdist.stages.gpu_memory import explain_full_gpu

        _, sentences = part
        with explain_full_gpu(self._stage, self._context), inputs_watched(self._inputs):
            embeddings = self._embed(sentences, self._prompt)
            check_inputs()
            return embeddings


def embed_over_workers(
    stage: Scores, context: Context, *, on_progress: OnProgress | None = None, tell: PrintLine = lambda line: None
) -> Embed:
    """What embeds sentences by the stage's encoder, on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names.

    Equal to `embed_here` but for roundings: a sentence's last digits depend on the batch that it is in. An encoder given by path, and a
    store that holds the encoder, must be seen by all nodes under the same name; sentences travel, data sets need not.
    tell: is given over how many workers, on what, what lies idle and why.

    Raises:
        ResourceError: no cluster, or one that cannot hold so many workers, both when it is made; or a part lost its worker again and again.
        SentdistError: what a worker raised, as it raised it.
    """
    runtime, devices = with_cluster_devices(context.runtime)
    context = replace(context, runtime=runtime)
    tell(devices)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        num_parts = -(-len(sentences) // rows_per_part(len(sentences), context.runtime))
        # Every num_parts-th sentence: long ones, which stand together, are dealt out.
        parts = ((part, sentences[part::num_parts]) for part in range(num_parts))
        demand = pool_demand(context.runtime, gpus=context.runtime.gpus_per_worker)
        found: dict[int, np.ndarray] = {}
        for (part, _), rows_SD in over_workers(SentenceEmbedder, (stage, context, prompt), parts, demand=demand, where=stage.label):
            found[part] = rows_SD
            if on_progress is not None:
                on_progress(sum(map(len, found.values())), len(sentences))
        embeddings_SD = np.empty((len(sentences), found[0].shape[1]), dtype=np.float32)
        for part, rows_SD in found.items():
            embeddings_SD[part::num_parts] = rows_SD
        return embeddings_SD

    return embed


@dataclass(frozen=True, kw_only=True)
class SearchedTile:
    """hits: the best of a tile's documents for each query. unknown: those of its sentences without a word that is known; None: they were
    not embedded."""

    hits: np.ndarray
    unknown: UnknownWords | None


class TileSearcher:
    """A worker: loads the encoder once, or maps the embeddings, then searches one tile after the other. It keeps nothing between them."""

    def __init__(self, reader: TileReader, queries_QD: np.ndarray, depth: int, runtime: Runtime) -> None:
        self._reader, self._queries_QD, self._depth, self._runtime = reader, queries_QD, depth, runtime

    @cached_property
    def _loaded(self) -> LoadedEncoder | None:
        # Not in the constructor: there an error would be reported as the death of an actor.
        if self._reader.embeddings is not None:
            return None
        from sentdist.execution.reserved import use_reserved  # torch, which a file of embeddings does not need

        use_reserved(pool_demand(self._runtime, gpus=self._runtime.gpus_per_worker))
        return self._reader.encoder.load("cuda" if self._runtime.gpus_per_worker else "cpu")

    @cached_property
    def _read(self) -> ReadTile:
        return self._reader.open(self._loaded)

    def work(self, tile: Tile) -> SearchedTile:
        nearest = NearestDocuments(self._queries_QD, depth=self._depth, first_row=tile.first_row)
        nearest.add(self._read(tile))
        return SearchedTile(hits=nearest.hits, unknown=None if self._loaded is None else self._loaded.unknown.taken())


def search_over_workers(
    search: CorpusSearch,
    corpus: SearchedFiles,
    reader: TileReader,
    queries_QD: np.ndarray,
    *,
    depth: int,
    runtime: Runtime,
    unknown: UnknownWords | None = None,
    tell: PrintLine = lambda line: None,
) -> Iterator[int]:
    """Search a corpus on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names; gives out how many documents are done.

    The same result as `search_here` on equal embeddings, in whatever order tiles come back. At any time there is one tile for each
    worker on its way, so that memory does not grow with the corpus.
    Files of embeddings and encoders must be seen by all nodes under the same name.
    unknown: is added the sentences without a word that is known, those that come first in the corpus first; at the end.
    tell: is given over how many workers, on what, what lies idle and why.

    Raises:
        ResourceError: no cluster, one that cannot hold so many workers, or a tile that lost its worker again and again.
        SentdistError: what a worker raised, as it raised it.
    """
    runtime, devices = with_cluster_devices(runtime if reader.embeddings is None else runtime.with_gpus(0.0))  # a file needs no encoder
    tell(devices)
    demand = pool_demand(runtime, gpus=runtime.gpus_per_worker)
    arguments = (reader, ray.put(queries_QD), depth, runtime)
    found: dict[int, UnknownWords] = {}
    for tile, searched in over_workers(TileSearcher, arguments, corpus.tiles(), demand=demand, where="search"):
        search.merge(tile, searched.hits)
        if searched.unknown is not None and searched.unknown.num_sentences:
            found[tile.first_row] = searched.unknown
        yield search.nearest.num_documents
    if unknown is not None:
        for first_row in sorted(found):
            unknown.add(found[first_row])
