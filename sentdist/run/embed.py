"""Embed sentences, encode files and search a corpus over many workers of a cluster, part by part."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.data.texts import TextColumns, Texts
from sentdist.errors import ResourceError, counted
from sentdist.evaluation.nearest import NearestDocuments
from sentdist.inference.nearest import CorpusSearch, SameEncoder, SearchedFiles, Tile, TileReader
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Scores
from sentdist.run.connection import cause_of, connect, reason
from sentdist.run.resources import (
    Demand,
    capacity,
    cluster_growth,
    gpus_line,
    rows_per_part,
    use_reserved,
    with_devices,
    with_gpu_type,
    worker_demand,
)
from sentdist.stages.context import Context, InUse, check_inputs, inputs_watched
from sentdist.stages.embed import Embed, OnProgress, embed_here
from sentdist.text import PrintLine

if TYPE_CHECKING:  # torch, which the caller does not need
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.tokens import UnknownWords

MAX_LOSSES = 20  # workers that one job may lose: spot machines come and go, a crash loop must end
AHEAD_PER_WORKER = 3  # parts whose answers may wait for an earlier one; 16,384 sentences of width 768 are 50 MB

TaskPart = TypeVar("TaskPart")
Answer = TypeVar("Answer")


class PoolWorker:
    """A process that answers one part after another."""

    def __init__(self, make: Callable[..., Callable[[Any], Any]], arguments: tuple[object, ...]) -> None:
        self._make, self._arguments = make, arguments

    @cached_property
    def _answer(self) -> Callable[[Any], Any]:
        return self._make(*self._arguments)  # with the first part: an error in the constructor would be reported as the death of an actor

    def work(self, part: Any) -> Any:
        """Answer a part."""
        return self._answer(part)


def with_cluster_devices(runtime: Runtime) -> tuple[Runtime, str]:
    """Connect to the cluster that RAY_ADDRESS names; return the runtime with its device, and a line on workers and devices.

    Raises:
        ResourceError: no cluster, or too few resources.
    """
    connect()
    nodes = with_gpu_type(cluster_growth().nodes, runtime)
    decided = with_devices(runtime, nodes)
    capacity(decided, nodes)
    devices = gpus_line(decided, nodes, workers_at_once=decided.most_workers)
    return decided, f"over {counted(decided.most_workers, 'worker')}, {devices}"


def over_workers(
    make: Callable[..., Callable[[TaskPart], Answer]],
    arguments: tuple[object, ...],
    parts: Iterable[TaskPart],
    *,
    demand: Demand,
    where: str,
) -> Iterator[tuple[TaskPart, Answer]]:
    """Yield each part with a worker's answer, in order; draw parts as workers become free, few ahead of the oldest missing answer.

    No worker waits for another: each begins when there is room and gets parts once it runs, so that one worker can do all parts; it
    holds its CPUs until the end. The caller must reserve nothing, or its workers would wait for what it holds.

    A part whose process or node is lost goes to the next free worker. Ray's own restart (`max_restarts`) would wait forever for room
    when a node is lost and the other workers hold the rest of the cluster.

    Args:
        make: returns, on a worker, the function that answers a part; takes `arguments`.
        where: name of the job, for messages.

    Raises:
        ResourceError: too many workers were lost.
        Exception: a worker raised it.
    """
    actor: Any = ray.remote(PoolWorker).options(**demand.options)
    left = enumerate(parts)
    waiting = deque(itertools.islice(left, demand.workers))
    answers: dict[int, tuple[TaskPart, Answer]] = {}
    calls: dict[ray.ObjectRef, tuple[Any, tuple[int, TaskPart] | None]] = {}  # None: the worker starts
    free: list[Any] = []
    num_drawn, num_yielded, num_lost, num_to_start = len(waiting), 0, 0, len(waiting)
    try:
        while True:
            for _ in range(num_to_start):
                started = actor.remote(make, arguments)
                calls[started.__ray_ready__.remote()] = (started, None)
            num_to_start = 0
            while num_yielded in answers:
                yield answers.pop(num_yielded)
                num_yielded += 1
            while free:
                if not waiting and num_drawn - num_yielded < AHEAD_PER_WORKER * demand.workers:
                    waiting.extend(itertools.islice(left, 1))
                    num_drawn += len(waiting)
                if not waiting:
                    break
                one, task = free.pop(), waiting.popleft()
                calls[one.work.remote(task[1])] = (one, task)
            if num_yielded == num_drawn:
                return
            (ready,), _ = ray.wait(list(calls), num_returns=1)
            one, done = calls.pop(ready)
            try:
                answer: Answer = ray.get(ready)
            except RayTaskError as error:
                ray.kill(one)
                raise cause_of(error) from None
            except RayError as error:
                ray.kill(one)  # it may live on a node that is only out of reach
                num_lost += 1
                if num_lost > MAX_LOSSES:
                    raise ResourceError(
                        where=where,
                        found=f"that {num_lost} workers were lost ({reason(error)})",
                        expected="processes and nodes that live until a part is done",
                        remedy="Check `ray status` and the nodes' memory; what is finished is kept.",
                    ) from error
                waiting.extendleft([done] if done is not None else [])
                num_to_start = 1
                continue
            free.append(one)
            if done is not None:
                answers[done[0]] = (done[1], answer)
    finally:
        for one in [*free, *(one for one, _ in calls.values())]:
            ray.kill(one)


def embed_over_workers(
    stage: Scores, context: Context, *, on_progress: OnProgress | None = None, tell: PrintLine = lambda line: None
) -> Embed:
    """Return a function that embeds sentences on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names.

    Its results equal those of `embed_here` up to rounding, which depends on the batch. All nodes must see an encoder given by path, or
    the store of the encoder, under the same name; sentences are sent to the workers.

    Args:
        on_progress: takes the number of embedded sentences and of all.
        tell: takes a line on workers and devices.

    Raises:
        ResourceError: no cluster, or too few resources (both raised here), or too many workers were lost (raised by the function).
        SentdistError: a worker raised it.
    """
    runtime, devices = with_cluster_devices(context.runtime)
    context = replace(context, runtime=runtime)
    tell(devices)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        num_parts = -(-len(sentences) // rows_per_part(len(sentences), context.runtime))
        # Every num_parts-th sentence: this spreads long ones, which are neighbours.
        parts = (sentences[part::num_parts] for part in range(num_parts))
        found: list[np.ndarray] = []
        arguments = (stage, context, prompt)
        for _, rows_SD in over_workers(_sentence_embedder, arguments, parts, demand=worker_demand(runtime), where=stage.label):
            found.append(rows_SD)
            if on_progress is not None:
                on_progress(sum(map(len, found)), len(sentences))
        embeddings_SD = np.empty((len(sentences), found[0].shape[1]), dtype=np.float32)
        for part, rows_SD in enumerate(found):
            embeddings_SD[part::num_parts] = rows_SD
        return embeddings_SD

    return embed


def _sentence_embedder(stage: Scores, context: Context, prompt: str) -> Callable[[list[str]], np.ndarray]:
    """Return a function that embeds sentences; it raises ArtifactLost if the encoder was changed since this worker began to read it."""
    from sentdist.stages.fit import explain_full_gpu

    use_reserved(worker_demand(context.runtime))
    inputs: InUse = {}
    with explain_full_gpu(stage, context), inputs_watched(inputs):
        embed_sentences = embed_here(stage, context)

    def embed(sentences: list[str]) -> np.ndarray:
        with explain_full_gpu(stage, context), inputs_watched(inputs):
            embeddings = embed_sentences(sentences, prompt)
            check_inputs()
            return embeddings

    return embed


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
        unknown: gets the sentences without a known word, in the order of the corpus.
        tell: takes a line on workers and devices.

    Raises:
        ResourceError: no cluster, or too few resources, or too many workers were lost.
        SentdistError: a worker raised it.
    """
    runtime, devices = with_cluster_devices(runtime if reader.embeddings is None else runtime.with_gpus(0.0))  # a file needs no encoder
    tell(devices)
    arguments = (reader, ray.put(queries_QD), depth, runtime)
    for tile, (hits, unknown_here) in over_workers(
        _tile_searcher, arguments, corpus.tiles(), demand=worker_demand(runtime), where="search"
    ):
        search.merge(tile, hits)
        if unknown is not None and unknown_here is not None:
            unknown.add(unknown_here)
        yield search.nearest.num_documents


def _tile_searcher(
    reader: TileReader, queries: ray.ObjectRef, depth: int, runtime: Runtime
) -> Callable[[Tile], tuple[np.ndarray, UnknownWords | None]]:
    """Return a function that gives the best documents for each query, and sentences without a known word (None if not embedded)."""
    loaded = None if reader.embeddings is not None else _loaded_here(reader.encoder, runtime)
    read, queries_QD = reader.open(loaded), ray.get(queries)

    def find(tile: Tile) -> tuple[np.ndarray, UnknownWords | None]:
        nearest = NearestDocuments(queries_QD, depth=depth, first_row=tile.first_row)
        nearest.add(read(tile))
        return nearest.hits, None if loaded is None else loaded.unknown.taken()

    return find


class WorkerEncoding:
    """Encodes files on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names. devices: a line on workers and devices."""

    def __init__(self, loaded: LoadedEncoder, runtime: Runtime) -> None:
        """Take the encoder, which all nodes must see under the same name.

        Raises:
            ResourceError: no cluster, or too few resources.
        """
        self._loaded = loaded
        self._runtime, self.devices = with_cluster_devices(runtime)

    def batches(self, texts: Texts) -> Iterator[tuple[TextColumns, np.ndarray]]:
        """Yield each batch of a file with its embeddings, in the order of the file.

        Raises:
            ResourceError: too many workers were lost.
            SentdistError: a worker raised it.
        """
        from sentdist.inference.ready_encoder import SENTENCES_AT_ONCE

        size = SENTENCES_AT_ONCE if texts.num_rows is None else min(SENTENCES_AT_ONCE, rows_per_part(texts.num_rows, self._runtime))
        read = deque[TextColumns]()

        def parts() -> Iterator[list[str]]:
            for batch in texts.batches(size):
                read.append(batch)
                yield batch[texts.columns[0]]

        arguments, demand = (SameEncoder.of(self._loaded), self._runtime), worker_demand(self._runtime)
        for _, (embeddings, unknown) in over_workers(_encoder, arguments, parts(), demand=demand, where="encode"):
            self._loaded.unknown.add(unknown)
            yield read.popleft(), embeddings


def _encoder(encoder: SameEncoder, runtime: Runtime) -> Callable[[list[str]], tuple[np.ndarray, UnknownWords]]:
    """Return a function that gives the embeddings of sentences, and the sentences without a known word."""
    loaded = _loaded_here(encoder, runtime)
    return lambda sentences: (loaded.embed(sentences), loaded.unknown.taken())


def _loaded_here(encoder: SameEncoder, runtime: Runtime) -> LoadedEncoder:
    use_reserved(worker_demand(runtime))
    return encoder.load("cuda" if runtime.gpus_per_worker else "cpu")
