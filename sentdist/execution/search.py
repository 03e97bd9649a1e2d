"""Searching a corpus over the workers of a cluster: tiles go out as they are read, the best of each come back and are merged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayTaskError
from ray.util import ActorPool

from sentdist.evaluation.nearest import NearestDocuments
from sentdist.execution.board import cause_of
from sentdist.execution.resources import capacity, nodes_of
from sentdist.execution.run import check_auth_mode, connect
from sentdist.plan.runtime import Runtime
from sentdist.stages.searching import Corpus, CorpusSearch, OpenTileReader, Tile, TileReader

RESTARTS = 3  # of a worker whose process or node was lost; its tile is searched again


class TileSearcher:
    """A worker: loads the encoder once, or maps the embeddings, then searches one tile after the other. It keeps nothing between them."""

    def __init__(self, reader: TileReader, queries_QD: np.ndarray, depth: int, runtime: Runtime) -> None:
        self._source, self._queries_QD, self._depth, self._runtime = reader, queries_QD, depth, runtime

    @cached_property
    def _reader(self) -> OpenTileReader:
        # Not in the constructor: there an error would be told as the death of an actor.
        torch.set_num_threads(max(1, int(self._runtime.cpus_per_worker)))
        return self._source.open()

    def search(self, tile: Tile) -> tuple[int, np.ndarray]:
        """The tile's first row, and the best of its documents for each query."""
        nearest = NearestDocuments(self._queries_QD, depth=self._depth, first_row=tile.first_row)
        nearest.add(self._reader.read(tile))
        return tile.first_row, nearest.hits


def search_over_workers(
    search: CorpusSearch, corpus: Corpus, reader: TileReader, queries_QD: np.ndarray, *, depth: int, runtime: Runtime
) -> Iterator[int]:
    """Search a corpus on `runtime.workers` workers of the cluster that RAY_ADDRESS names; gives out how many documents are done.

    The same result as `search_here` on equal embeddings, in whatever order tiles come back. At any time there is one tile for each
    worker on its way, so that memory does not grow with the corpus. Files of embeddings and encoders must be seen by all nodes under the same name.

    Raises:
        ResourceError: no cluster, or one that cannot hold so many workers.
        SentdistError: what a worker raised, as it raised it.
    """
    check_auth_mode()
    connect()
    capacity(runtime, nodes_of(ray.nodes()))
    vectors = ray.put(queries_QD)
    options = {
        "num_cpus": runtime.cpus_per_worker, "num_gpus": runtime.gpus_per_worker,
        "max_restarts": RESTARTS, "max_task_retries": RESTARTS,
    }  # fmt: skip
    actors: list[Any] = [
        ray.remote(TileSearcher).options(**options).remote(reader, vectors, depth, runtime) for _ in range(runtime.workers)
    ]
    try:
        for tile, hits_Qk in _searched(actors, corpus):
            search.merge(tile, hits_Qk)
            yield search.nearest.num_documents
    except RayTaskError as error:
        raise cause_of(error) from None
    finally:
        for actor in actors:
            ray.kill(actor)


def _searched(actors: list[Any], corpus: Corpus) -> Iterator[tuple[Tile, np.ndarray]]:
    """Tiles with their hits, in the order in which they come back."""
    pool, away = ActorPool(actors), dict[int, Tile]()
    for tile in corpus.tiles():
        if not pool.has_free():
            yield _next(pool, away)
        away[tile.first_row] = tile
        pool.submit(lambda actor, sent: actor.search.remote(sent), tile)
    while pool.has_next():
        yield _next(pool, away)


def _next(pool: ActorPool, away: dict[int, Tile]) -> tuple[Tile, np.ndarray]:
    first_row, hits_Qk = pool.get_next_unordered()
    return away.pop(first_row), hits_Qk
