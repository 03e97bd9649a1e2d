"""Building a stage in shards over many workers with Ray Data: shards go from the workers to the store, none of them through the driver's memory whole."""

from __future__ import annotations

import pickle
import time
from functools import cached_property
from io import BytesIO
from pathlib import Path

import ray
from ray.data import Dataset

from sentdist.errors import SentdistError
from sentdist.execution.ray_data import Rows, answer, over_workers, quiet, rows_per_part
from sentdist.execution.trainer import use_threads
from sentdist.plan.runtime import Runtime
from sentdist.stages.context import Context
from sentdist.stages.sharded import SHARDS, Sharded, ShardedBody, body_of, num_shards, publish, shard_name, shard_rows
from sentdist.store.store import Artifact


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
            return answer(shard, error=pickle.dumps(error))

    def _make(self, shard: int) -> Rows:
        rows = shard_rows(shard, self._body.num_rows, self._rows_per_shard)
        if self._folder is None:
            buffer = BytesIO()
            self._body.write(rows, buffer)
            return answer(shard, content=buffer.getvalue())
        with (self._folder / shard_name(shard, self._body)).open("wb") as file:
            self._body.write(rows, file)
        return answer(shard)


def build_with_ray_data(stage: Sharded, context: Context) -> Artifact:
    """Make every shard of a stage exactly once, on up to `runtime.workers` workers, and commit the artifact.

    Raises:
        SentdistError: what a worker raised, as it raised it.
    """
    started = time.perf_counter()
    body = body_of(stage, context)
    per_shard = rows_per_part(body.num_rows, context.runtime)
    with context.store.staged() as folder, quiet():
        (folder / SHARDS).mkdir()
        maker = (stage, context, per_shard, folder if context.store.is_local else None)
        for row in _made(num_shards(body.num_rows, per_shard), maker, context.runtime).iter_rows():
            if row["error"]:
                raise pickle.loads(row["error"])
            if row["content"]:
                (folder / shard_name(row["part"], body)).write_bytes(row["content"])
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started)


def _made(num_shards: int, maker: tuple[Sharded, Context, int, Path | None], runtime: Runtime) -> Dataset:
    """What the workers say of each shard, as it comes. Only numbers of shards travel to them: they map the corpus from the store."""
    numbers = ray.data.range(num_shards, override_num_blocks=num_shards)
    return over_workers(numbers, ShardMaker, num_parts=num_shards, batch_size=1, arguments=maker, runtime=runtime)
