"""Embed the sentences of an evaluation, and search a corpus, over the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import ray

from sentdist.evaluation.nearest import NearestDocuments
from sentdist.inference.nearest import CorpusSearch, ReadTile, SearchedFiles, Tile, TileReader
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Scores
from sentdist.run.demand import pool_demand
from sentdist.run.parallel.pool import over_workers, rows_per_part, with_cluster_devices
from sentdist.stages.context import Context, InUse, check_inputs, inputs_watched
from sentdist.stages.scores.embed_sentences import Embed, OnProgress, embed_here
from sentdist.text import PrintLine

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.tokens import UnknownWords


class SentenceEmbedder:
    """A worker: loads the encoder once, then embeds parts of the sentences, with the prompt before each sentence."""

    def __init__(self, stage: Scores, context: Context, prompt: str) -> None:
        self._stage, self._context, self._prompt = stage, context, prompt
        self._inputs: InUse = {}

    @cached_property
    def _embed(self) -> Embed:
        # Not in the constructor: there an error would be reported as the death of an actor.
        from sentdist.run.reserved import use_reserved  # torch, which the caller does not need

        runtime = self._context.runtime
        use_reserved(pool_demand(runtime, gpus=runtime.gpus_per_worker))
        return embed_here(self._stage, self._context)

    def work(self, part: tuple[int, list[str]]) -> np.ndarray:
        """Embed the sentences of a numbered part.

        Raises:
            ArtifactLost: the encoder was changed since this worker began to read it.
        """
        from sentdist.stages.memory import explain_full_gpu

        _, sentences = part
        with explain_full_gpu(self._stage, self._context), inputs_watched(self._inputs):
            embeddings = self._embed(sentences, self._prompt)
            check_inputs()
            return embeddings


def embed_over_workers(
    stage: Scores, context: Context, *, on_progress: OnProgress | None = None, tell: PrintLine = lambda line: None
) -> Embed:
    """Return a function that embeds sentences on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names.

    Its results equal those of `embed_here` up to rounding, which depends on the batch. All nodes must see an encoder given by path, or
    the store of the encoder, under the same name; sentences are sent to the workers.

    Args:
        on_progress: takes the number of embedded sentences and of all.
        tell: takes a line on workers, devices and idle GPUs.

    Raises:
        ResourceError: no cluster, or too few resources (both raised here), or a part lost its worker repeatedly (raised by the function).
        SentdistError: a worker raised it.
    """
    runtime, devices = with_cluster_devices(context.runtime)
    context = replace(context, runtime=runtime)
    tell(devices)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        num_parts = -(-len(sentences) // rows_per_part(len(sentences), context.runtime))
        # Every num_parts-th sentence: this spreads long ones, which are neighbours.
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


class TileSearcher:
    """A worker: loads the encoder or maps the embeddings once, then searches tiles, and keeps no results between them."""

    def __init__(self, reader: TileReader, queries_QD: np.ndarray, depth: int, runtime: Runtime) -> None:
        self._reader, self._queries_QD, self._depth, self._runtime = reader, queries_QD, depth, runtime

    @cached_property
    def _loaded(self) -> LoadedEncoder | None:
        # Not in the constructor: there an error would be reported as the death of an actor.
        if self._reader.embeddings is not None:
            return None
        from sentdist.run.reserved import use_reserved  # torch, which a file of embeddings does not need

        use_reserved(pool_demand(self._runtime, gpus=self._runtime.gpus_per_worker))
        return self._reader.encoder.load("cuda" if self._runtime.gpus_per_worker else "cpu")

    @cached_property
    def _read(self) -> ReadTile:
        return self._reader.open(self._loaded)

    def work(self, tile: Tile) -> tuple[np.ndarray, UnknownWords | None]:
        """Return the best documents for each query, and sentences without a known word (None if not embedded)."""
        nearest = NearestDocuments(self._queries_QD, depth=self._depth, first_row=tile.first_row)
        nearest.add(self._read(tile))
        return nearest.hits, None if self._loaded is None else self._loaded.unknown.taken()


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
    """Search a corpus on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names; yield the number of searched documents.

    The result equals that of `search_here` on equal embeddings. Each worker has at most one tile, so that memory does not grow with the
    corpus. All nodes must see files of embeddings and encoders under the same name.

    Args:
        depth: number of documents for each query.
        unknown: gets the sentences without a known word at the end, in the order of the corpus.
        tell: takes a line on workers, devices and idle GPUs.

    Raises:
        ResourceError: no cluster, or too few resources, or a tile lost its worker repeatedly.
        SentdistError: a worker raised it.
    """
    runtime, devices = with_cluster_devices(runtime if reader.embeddings is None else runtime.with_gpus(0.0))  # a file needs no encoder
    tell(devices)
    demand = pool_demand(runtime, gpus=runtime.gpus_per_worker)
    arguments = (reader, ray.put(queries_QD), depth, runtime)
    found: dict[int, UnknownWords] = {}
    for tile, (hits, unknown_here) in over_workers(TileSearcher, arguments, corpus.tiles(), demand=demand, where="search"):
        search.merge(tile, hits)
        if unknown_here is not None and unknown_here.num_sentences:
            found[tile.first_row] = unknown_here
        yield search.nearest.num_documents
    if unknown is not None:
        for first_row in sorted(found):
            unknown.add(found[first_row])
