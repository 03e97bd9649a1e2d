"""Building a stage in shards over many workers with Ray Data: shards go from the workers to the store, none of them through the driver's memory whole."""

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

from sentdist.errors import SentdistError
from sentdist.execution.trainer import use_threads
from sentdist.plan.runtime import Runtime
from sentdist.stages.context import Context
from sentdist.stages.sharded import SHARDS, Sharded, ShardedBody, body_of, num_shards, publish, shard_name, shard_rows
from sentdist.store.store import Artifact

SHARDS_PER_WORKER = 4  # so that the workers end at about the same time
MIN_ROWS_PER_SHARD = 512  # fewer are made faster than they are handed out

Rows = dict[str, np.ndarray]


class ShardMaker:
    """A worker: loads what the stage needs once, then makes one shard after the other."""

    def __init__(self, stage: Sharded, context: Context, rows_per_shard: int, folder: Path | None) -> None:
        """folder: where all workers can write shards to; None where they cannot, then they hand them back."""
        self._stage, self._context = stage, context
        self._rows_per_shard, self._folder = rows_per_shard, folder

    @cached_property
    def _body(self) -> ShardedBody:
        # Not in the constructor: Ray Data tries one that fails three times.
        use_threads(self._context.runtime)
        return body_of(self._stage, self._context)

    def __call__(self, rows: Rows) -> Rows:
        """Make the one shard whose number stands in `id`. An error for a person is handed back: Ray Data would keep only its text."""
        (shard,) = rows["id"].tolist()
        try:
            return self._make(shard)
        except SentdistError as error:
            return _row(shard, error=pickle.dumps(error))

    def _make(self, shard: int) -> Rows:
        rows = shard_rows(shard, self._body.num_rows, self._rows_per_shard)
        if self._folder is None:
            buffer = BytesIO()
            self._body.write(rows, buffer)
            return _row(shard, content=buffer.getvalue())
        with (self._folder / shard_name(shard, self._body)).open("wb") as file:
            self._body.write(rows, file)
        return _row(shard)


def build_with_ray_data(stage: Sharded, context: Context) -> Artifact:
    """Make every shard of a stage exactly once, on up to `runtime.workers` workers, and commit the artifact.

    Raises:
        SentdistError: what a worker raised, as it raised it.
    """
    started = time.perf_counter()
    body = body_of(stage, context)
    per_shard = rows_per_shard(body.num_rows, context.runtime)
    with context.store.staged() as folder, _quiet():
        (folder / SHARDS).mkdir()
        maker = (stage, context, per_shard, folder if context.store.is_local else None)
        for row in _made(num_shards(body.num_rows, per_shard), maker, context.runtime).iter_rows():
            if row["error"]:
                raise pickle.loads(row["error"])
            if row["content"]:
                (folder / shard_name(row["shard"], body)).write_bytes(row["content"])
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started)


def rows_per_shard(num_rows: int, runtime: Runtime) -> int:
    """Rows of a shard: few enough that all workers have several, at most those of the runtime."""
    wanted = -(-num_rows // (runtime.workers * SHARDS_PER_WORKER))
    return min(runtime.rows_per_shard, max(wanted, MIN_ROWS_PER_SHARD))


def _made(num_shards: int, maker: tuple[Sharded, Context, int, Path | None], runtime: Runtime) -> Dataset:
    """What the workers say of each shard, as it comes. Only numbers of shards travel to them: they map the corpus from the store."""
    workers = min(runtime.workers, num_shards)
    numbers = ray.data.range(num_shards, override_num_blocks=num_shards)
    return numbers.map_batches(
        ShardMaker,
        batch_size=1,
        fn_constructor_args=maker,
        compute=ActorPoolStrategy(min_size=1, max_size=workers, initial_size=workers),
        num_cpus=runtime.cpus_per_worker,
        num_gpus=runtime.gpus_per_worker or None,
    )


def _row(shard: int, *, content: bytes = b"", error: bytes = b"") -> Rows:
    """What a worker says of a shard, and what it could not keep to itself."""
    return {"shard": np.array([shard]), "content": np.array([content], dtype=object), "error": np.array([error], dtype=object)}


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
