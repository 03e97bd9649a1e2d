"""Embed sentences, encode files and search a corpus over many workers of a cluster, part by part."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from sentdist.data.texts import TextColumns, Texts
from sentdist.errors import ResourceError, counted
from sentdist.evaluation.nearest import NearestDocuments
from sentdist.inference.nearest import CorpusSearch, ReadTile, SameEncoder, SearchedFiles, Tile, TileReader
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Scores
from sentdist.run.cluster.connection import connect, on_node, reason
from sentdist.run.resources import (
    Demand,
    capacity,
    cluster_growth,
    gpus_line,
    rows_per_part,
    with_devices,
    with_gpu_type,
    worker_demand,
)
from sentdist.stages.context import Context, InUse, check_inputs, inputs_watched
from sentdist.stages.embed import Embed, OnProgress, embed_here
from sentdist.text import PrintLine

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.tokens import UnknownWords

MAX_LOSSES = 20  # workers that one job may lose: spot machines come and go, a crash loop must end
AHEAD_PER_WORKER = 3  # parts whose answers may wait for an earlier one; 16,384 sentences of width 768 are 50 MB


TaskPart = TypeVar("TaskPart")
Answer = TypeVar("Answer")
PartIn = TypeVar("PartIn", contravariant=True)
AnswerOut = TypeVar("AnswerOut", covariant=True)


class PoolWorker(Protocol[PartIn, AnswerOut]):
    """A worker in a separate process, which gets one part after another. It loads what it needs with the first part."""

    def work(self, part: PartIn) -> AnswerOut:
        """Do one part; a second call (after the loss of the first process) returns the same."""
        ...


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
    worker: Callable[..., PoolWorker[TaskPart, Answer]],
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
        where: name of the job, for messages.

    Raises:
        ResourceError: too many workers were lost.
        Exception: a worker raised it.
    """
    actor: Any = ray.remote(worker).options(**demand.options)
    left = enumerate(parts)
    waiting = deque(itertools.islice(left, demand.workers))
    answers: dict[int, tuple[TaskPart, Answer]] = {}
    calls: dict[ray.ObjectRef, tuple[Any, tuple[int, TaskPart] | None]] = {}  # None: the worker starts
    free: list[Any] = []
    num_drawn, num_yielded, num_lost, num_to_start = len(waiting), 0, 0, len(waiting)
    try:
        while True:
            for _ in range(num_to_start):
                started = actor.remote(*arguments)
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
                raise on_node(error) from None
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
        use_reserved(worker_demand(runtime))
        return embed_here(self._stage, self._context)

    def work(self, part: tuple[int, list[str]]) -> np.ndarray:
        """Embed the sentences of a numbered part.

        Raises:
            ArtifactLost: the encoder was changed since this worker began to read it.
        """
        from sentdist.stages.fit import explain_full_gpu

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
        demand = worker_demand(context.runtime)
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

        use_reserved(worker_demand(self._runtime))
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
    demand = worker_demand(runtime)
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


@dataclass(frozen=True, kw_only=True)
class EncodedPart:
    """Embeddings of some sentences. unknown: the sentences without a known word."""

    embeddings: np.ndarray
    unknown: UnknownWords


class FileEncoder:
    """A worker: loads the encoder once, then embeds parts of the sentences."""

    def __init__(self, encoder: SameEncoder, runtime: Runtime) -> None:
        self._encoder, self._runtime = encoder, runtime

    @cached_property
    def _loaded(self) -> LoadedEncoder:
        # Not in the constructor: there an error would be reported as the death of an actor.
        from sentdist.run.reserved import use_reserved

        use_reserved(worker_demand(self._runtime))
        return self._encoder.load("cuda" if self._runtime.gpus_per_worker else "cpu")

    def work(self, sentences: list[str]) -> EncodedPart:
        """Embed a part of the sentences."""
        embeddings, unknown = self._loaded.embed(sentences), self._loaded.unknown.taken()
        return EncodedPart(embeddings=embeddings, unknown=unknown)


@dataclass(frozen=True, kw_only=True)
class WorkerEncoding:
    """Encodes a file on a cluster. devices: a line on workers, devices and idle GPUs."""

    loaded: LoadedEncoder
    runtime: Runtime
    devices: str

    @classmethod
    def on_cluster(cls, loaded: LoadedEncoder, runtime: Runtime) -> WorkerEncoding:
        """Encode on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names.

        Args:
            loaded: the encoder, which all nodes must see under the same name.

        Raises:
            ResourceError: no cluster, or too few resources.
        """
        decided, devices = with_cluster_devices(runtime)
        return cls(loaded=loaded, runtime=decided, devices=devices)

    def batches(self, texts: Texts) -> Iterator[tuple[TextColumns, np.ndarray]]:
        """Yield each batch of a file with its embeddings, in the order of the file.

        Raises:
            ResourceError: a batch lost its worker repeatedly.
            SentdistError: a worker raised it.
        """
        from sentdist.inference.ready_encoder import SENTENCES_AT_ONCE

        size = SENTENCES_AT_ONCE if texts.num_rows is None else min(SENTENCES_AT_ONCE, rows_per_part(texts.num_rows, self.runtime))
        read = deque[TextColumns]()

        def parts() -> Iterator[list[str]]:
            for batch in texts.batches(size):
                read.append(batch)
                yield batch[texts.columns[0]]

        arguments = (SameEncoder.of(self.loaded), self.runtime)
        for _, answer in over_workers(FileEncoder, arguments, parts(), demand=worker_demand(self.runtime), where="encode"):
            self.loaded.unknown.add(answer.unknown)
            yield read.popleft(), answer.embeddings
