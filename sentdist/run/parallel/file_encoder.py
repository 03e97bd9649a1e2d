"""Encode a file over the workers of a cluster, batch by batch, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sentdist.data.texts import TextColumns, Texts
from sentdist.inference.nearest import SameEncoder
from sentdist.inference.ready_encoder import SENTENCES_AT_ONCE, LoadedEncoder
from sentdist.learning.encoder.tokens import UnknownWords
from sentdist.recipe.sections import Runtime
from sentdist.run.demand import pool_demand
from sentdist.run.parallel.pool import over_workers, rows_per_part, with_cluster_devices

AHEAD_PER_WORKER = 2  # 16,384 sentences of width 768 are 50 MB


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

        use_reserved(pool_demand(self._runtime, gpus=self._runtime.gpus_per_worker))
        return self._encoder.load("cuda" if self._runtime.gpus_per_worker else "cpu")

    def work(self, part: tuple[int, list[str]]) -> EncodedPart:
        """Embed the sentences of a numbered part."""
        _, sentences = part
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
        """Yield each batch of a file with its embeddings, in the order of the file. AHEAD_PER_WORKER batches a worker may wait in memory.

        Raises:
            ResourceError: a batch lost its worker repeatedly.
            SentdistError: a worker raised it.
        """
        size = SENTENCES_AT_ONCE if texts.num_rows is None else min(SENTENCES_AT_ONCE, rows_per_part(texts.num_rows, self.runtime))
        read: dict[int, TextColumns] = {}

        def parts() -> Iterator[tuple[int, list[str]]]:
            for number, batch in enumerate(texts.batches(size)):
                read[number] = batch
                yield number, batch[texts.columns[0]]

        demand = pool_demand(self.runtime, gpus=self.runtime.gpus_per_worker)
        made: dict[int, EncodedPart] = {}
        turn = 0
        arguments = (SameEncoder.of(self.loaded), self.runtime)
        answers = over_workers(FileEncoder, arguments, parts(), demand=demand, where="encode", ahead_per_worker=AHEAD_PER_WORKER)
        for (number, _), answer in answers:
            made[number] = answer
            while turn in made:
                self.loaded.unknown.add(made[turn].unknown)
                yield read.pop(turn), made.pop(turn).embeddings
                turn += 1
