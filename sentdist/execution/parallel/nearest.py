"""Searching a corpus over the workers of a cluster: tiles go out as they are read, the best of each come back and are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import ray

from sentdist.evaluation.nearest import NearestDocuments
from sentdist.execution.demand import pool_demand
from sentdist.execution.parallel.pool import over_workers, with_cluster_devices
from sentdist.inference.nearest import CorpusSearch, ReadTile, SearchedFiles, Tile, TileReader
from sentdist.plan.runtime import Runtime
from sentdist.print_line import PrintLine

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.unknown_words import UnknownWords


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
