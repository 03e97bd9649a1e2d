"""Embedding a corpus over many workers with Ray Data: shards go from the workers to the store, none of them through the driver's memory whole."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset

from sentdist.data.corpus import Corpus
from sentdist.errors import SentdistError
from sentdist.execution.trainer import use_threads
from sentdist.learning.bank import BankShape
from sentdist.learning.encoder import SentenceEncoder
from sentdist.plan.runtime import Runtime
from sentdist.plan.stages import Embed
from sentdist.stages.build import commit_bank, embed_rows, frozen_encoder
from sentdist.stages.context import Context
from sentdist.stages.inputs import folder_of
from sentdist.store.store import Artifact

SHARDS_PER_WORKER = 4  # so that the workers end at about the same time
MIN_ROWS_PER_SHARD = 512  # fewer are embedded faster than they are handed out

Rows = dict[str, np.ndarray]


class ShardEmbedder:
    """A worker: loads the encoder once, then embeds one shard after the other."""

    def __init__(self, stage: Embed, context: Context, rows_per_shard: int, folder: Path | None) -> None:
        """folder: where all workers can write shards to; None where they cannot, then they hand them back."""
        self._stage, self._context = stage, context
        self._rows_per_shard, self._folder = rows_per_shard, folder

    @cached_property
    def _inputs(self) -> tuple[Corpus, SentenceEncoder]:
        # Not in the constructor: Ray Data tries one that fails three times.
        use_threads(self._context.runtime)
        return Corpus.open(folder_of(self._stage.corpus, self._context)), frozen_encoder(self._stage.encoder, self._context)

    def __call__(self, rows: Rows) -> Rows:
        """Embed the one shard whose number stands in `id`. An error for a person is handed back: Ray Data would keep only its text."""
        (shard,) = rows["id"].tolist()
        try:
            return self._embed(shard)
        except SentdistError as error:
            return _row(shard, error=pickle.dumps(error))

    def _embed(self, shard: int) -> Rows:
        corpus, encoder = self._inputs
        first = shard * self._rows_per_shard
        last = min(first + self._rows_per_shard, corpus.num_sentences)
        table = embed_rows(self._stage, self._context, corpus, encoder, rows=range(first, last))
        content = b""
        if self._folder is None:
            buffer = BytesIO()
            np.save(buffer, table)
            content = buffer.getvalue()
        else:
            np.save(self._folder / f"{shard:05d}.npy", table)
        return _row(shard, num_rows=last - first, width=table.shape[1], content=content)


def build_bank_with_ray_data(stage: Embed, context: Context) -> Artifact:
    """Embed every unique sentence of a corpus exactly once, on up to `runtime.workers` workers, and commit the bank.

    Raises:
        SentdistError: what a worker raised, as it raised it.
    """
    started = time.perf_counter()
    num_sentences = Corpus.open(folder_of(stage.corpus, context)).num_sentences
    per_shard = rows_per_shard(num_sentences, context.runtime)
    num_shards = -(-num_sentences // per_shard)
    with context.store.staged() as folder, _quiet():
        shards = folder / "shards"
        shards.mkdir()
        embedder = (stage, context, per_shard, shards if context.store.is_local else None)
        num_rows, width = 0, 0
        for row in _embedded(num_shards, embedder, context.runtime).iter_rows():
            if row["error"]:
                raise pickle.loads(row["error"])
            if row["content"]:
                (shards / f"{row['shard']:05d}.npy").write_bytes(row["content"])
            num_rows, width = num_rows + row["num_rows"], row["width"]
        assert num_rows == num_sentences, "every sentence is embedded once"
        shape = BankShape(num_sentences=num_sentences, width=width, dtype=stage.dtype, rows_per_shard=per_shard)
        return commit_bank(stage, folder, context, shape=shape, started=started)


def rows_per_shard(num_sentences: int, runtime: Runtime) -> int:
    """Rows of a shard: few enough that all workers have several, at most those of the runtime."""
    wanted = -(-num_sentences // (runtime.workers * SHARDS_PER_WORKER))
    return min(runtime.rows_per_shard, max(wanted, MIN_ROWS_PER_SHARD))


def _embedded(num_shards: int, embedder: tuple[Embed, Context, int, Path | None], runtime: Runtime) -> Dataset:
    """What the workers say of each shard, as it comes. Only numbers of shards travel to them: they map the corpus from the store."""
    workers = min(runtime.workers, num_shards)
    numbers = ray.data.range(num_shards, override_num_blocks=num_shards)
    return numbers.map_batches(
        ShardEmbedder,
        batch_size=1,
        fn_constructor_args=embedder,
        compute=ActorPoolStrategy(min_size=1, max_size=workers, initial_size=workers),
        num_cpus=runtime.cpus_per_worker,
        num_gpus=runtime.gpus_per_worker or None,
    )


def _row(shard: int, *, num_rows: int = 0, width: int = 0, content: bytes = b"", error: bytes = b"") -> Rows:
    """What a worker says of a shard: its size, and what it could not keep to itself."""
    numbers = {"shard": shard, "num_rows": num_rows, "width": width}
    carried = {"content": content, "error": error}
    return {name: np.array([value]) for name, value in numbers.items()} | {
        name: np.array([value], dtype=object) for name, value in carried.items()
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data from drawing progress bars and telling its plans: the board tells what people want to know."""
    settings, logger = DataContext.get_current(), logging.getLogger("ray.data")
    before = settings.enable_progress_bars, settings.print_on_execution_start, logger.level
    settings.enable_progress_bars, settings.print_on_execution_start = False, False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        settings.enable_progress_bars, settings.print_on_execution_start = before[:2]
        logger.setLevel(before[2])
