"""Building a stage in shards over many workers: shards go from the workers to the store, none of them through the driver's memory whole."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from io import BytesIO
from pathlib import Path

from sentdist.errors import SentdistError
from sentdist.execution.board.heartbeats import Heartbeats, HeartbeatSink
from sentdist.execution.parallel.pool import over_workers, rows_per_part
from sentdist.execution.parallel.ranks import Ranks
from sentdist.execution.reserved import use_reserved
from sentdist.execution.resources import stage_demand
from sentdist.plan.stages import Tokens
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import full_gpu_told
from sentdist.stages.sharded import SHARDS, Sharded, ShardedBody, body_of, num_shards, publish, shard_name, shard_rows
from sentdist.store.store import Artifact


class ShardMaker:
    """A worker: loads what the stage needs once, then makes one shard after the other."""

    def __init__(self, stage: Sharded, context: Context, rows_per_shard: int, folder: Path | None, sink: HeartbeatSink | None) -> None:
        """folder: where all workers can write shards to; None where they cannot, then they hand them back. sink: takes their heartbeats."""
        self._stage, self._context, self._sink = stage, context, sink
        self._rows_per_shard, self._folder = rows_per_shard, folder

    @cached_property
    def _body(self) -> ShardedBody:
        # Not in the constructor: there an error would be told as the death of an actor.
        use_reserved(stage_demand(self._stage, self._context.runtime))
        return body_of(self._stage, self._context)

    def work(self, shard: int) -> bytes:
        """Make a shard; its content, or nothing if it was written."""
        beats = nullcontext() if self._sink is None else Heartbeats(self._stage, self._sink, worker=f"shard {shard}")
        with beats, full_gpu_told(self._stage, self._context):
            if self._folder is not None:
                _write(self._body, shard, self._rows_per_shard, self._folder)
                return b""
            buffer = BytesIO()
            self._body.write(shard_rows(shard, self._body.num_rows, self._rows_per_shard), buffer)
            return buffer.getvalue()


def _write(body: ShardedBody, shard: int, rows_per_shard: int, folder: Path) -> None:
    """Make a shard in `folder`; renamed when it is whole: a worker that was taken for lost may still be writing the same one."""
    place = folder / shard_name(shard, body)
    unfinished = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}")
    with unfinished.open("wb") as file:
        body.write(shard_rows(shard, body.num_rows, rows_per_shard), file)
    unfinished.replace(place)


def build_over_workers(stage: Sharded, context: Context, *, sink: HeartbeatSink | None = None) -> Artifact:
    """Make every shard of a stage, on up to `runtime.workers` workers, and commit the artifact. The caller reserves nothing.

    Raises:
        ResourceError: a shard lost its worker again and again.
        SentdistError: what a worker raised, as it raised it.
    """
    started = time.perf_counter()
    body = body_of(stage, context)
    per_shard = rows_per_part(body.num_rows, context.runtime)
    shards = range(num_shards(body.num_rows, per_shard))
    with context.store.staged() as folder:
        (folder / SHARDS).mkdir()
        maker = (stage, context, per_shard, folder if context.store.is_local else None, sink)
        # Only numbers of shards travel to the workers: they map the corpus from the store.
        for shard, content in over_workers(ShardMaker, maker, shards, demand=stage_demand(stage, context.runtime), where=stage.label):
            if content:
                (folder / shard_name(shard, body)).write_bytes(content)
        whole = {folder / shard_name(shard, body) for shard in shards}
        for path in (folder / SHARDS).iterdir():
            if path not in whole:  # of a worker that was lost while it wrote
                path.unlink()
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started)


def build_over_ranks(
    stage: Sharded | Tokens,
    context: Context,
    ranks: Ranks,
    *,
    make_body: Callable[[], ShardedBody] | None = None,
    sink: HeartbeatSink | None = None,
) -> Artifact | None:
    """Make every shard of a stage on the workers of a group that is there, each its share; the first one commits the artifact.

    Where the workers share no folder the first one makes all: shards of any size may have to pass through no memory but its own.
    make_body: None: the stage's own. sink: takes heartbeats, where nobody else sends them.

    Raises:
        SentdistError: what one of them raised, on all of them.
    """
    started = time.perf_counter()
    is_shared = context.store.is_local
    with context.store.staged() if ranks.is_first else nullcontext() as staged:
        if staged is not None:
            (staged / SHARDS).mkdir()
        folder = next(said for said in ranks.exchange(staged) if said is not None)
        assert isinstance(folder, Path)
        error: SentdistError | None = None
        try:
            if make_body is None:
                assert not isinstance(stage, Tokens), "a training has the tokenizer"
                use_reserved(stage_demand(stage, context.runtime))
                body = body_of(stage, context)
            else:
                body = make_body()
            per_shard = rows_per_part(body.num_rows, context.runtime)
            if is_shared or ranks.is_first:
                first, step = (ranks.rank, ranks.world_size) if is_shared else (0, 1)
                for shard in range(first, num_shards(body.num_rows, per_shard), step):
                    beats = nullcontext() if sink is None else Heartbeats(stage, sink, worker=f"shard {shard}")
                    with beats, full_gpu_told(stage, context):
                        _write(body, shard, per_shard, folder)
        except SentdistError as found:
            error = found
        for said in ranks.exchange(error):
            if isinstance(said, SentdistError):
                raise said
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started) if ranks.is_first else None
