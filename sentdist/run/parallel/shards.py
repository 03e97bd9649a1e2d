"""Build a stage in shards over many workers, without the whole stage in any driver's memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from io import BytesIO
from pathlib import Path

from sentdist.recipe.stages import Tokens
from sentdist.run.board.diagnosis import Heartbeats, HeartbeatSink
from sentdist.run.demand import stage_demand
from sentdist.run.parallel.pool import over_workers, rows_per_part
from sentdist.run.reserved import use_reserved
from sentdist.stages.context import Context, InUse, check_inputs, inputs_watched
from sentdist.stages.memory import explain_full_gpu
from sentdist.stages.sharded import (
    SHARDS,
    Sharded,
    ShardedBody,
    body_of,
    num_shards,
    publish,
    shard_name,
    shard_rows,
    staged_shards,
    write_shard,
)
from sentdist.stages.train_setup import Ranks
from sentdist.store.store import Artifact


class ShardMaker:
    """A worker: loads what the stage needs once, then makes shards."""

    def __init__(self, stage: Sharded, context: Context, rows_per_shard: int, folder: Path | None, sink: HeartbeatSink | None) -> None:
        """folder: shared folder for the shards; None if there is none: `work` then returns them. sink: takes heartbeats."""
        self._stage, self._context, self._sink = stage, context, sink
        self._rows_per_shard, self._folder = rows_per_shard, folder
        self._inputs: InUse = {}

    @cached_property
    def _body(self) -> ShardedBody:
        # Not in the constructor: there an error would be reported as the death of an actor.
        return worker_body(self._stage, self._context)

    def work(self, shard: int) -> bytes:
        """Make a shard; return its content, or nothing if it was written to the shared folder.

        Raises:
            ArtifactLost: an input was changed since this worker began to read it.
        """
        with _making(shard, self._stage, self._context, self._sink), inputs_watched(self._inputs):
            buffer = BytesIO()
            if self._folder is not None:
                write_shard(self._body, shard, self._rows_per_shard, self._folder)
            else:
                self._body.write(shard_rows(shard, self._body.num_rows, self._rows_per_shard), buffer)
            check_inputs()  # this machine's copies, and an encoder, are seen here only
            return buffer.getvalue()


def build_over_workers(stage: Sharded, context: Context, *, sink: HeartbeatSink | None = None) -> Artifact:
    """Make every shard of a stage on up to `runtime.workers` workers, and commit the artifact. The caller must reserve nothing.

    Raises:
        ResourceError: a shard lost its worker repeatedly.
        SentdistError: a worker raised it.
    """
    started = time.perf_counter()
    body = body_of(stage, context)
    per_shard = rows_per_part(body.num_rows, context.runtime)
    shards = range(num_shards(body.num_rows, per_shard))
    with staged_shards(context.store) as folder:
        maker = (stage, context, per_shard, folder if context.store.is_shared else None, sink)
        # Workers get only numbers of shards: they map the corpus from the store.
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
    make_body: Callable[[], ShardedBody],
    sink: HeartbeatSink | None = None,
) -> Artifact | None:
    """Make every shard of a stage on the ranks of a running group, each its share; the first rank commits the artifact and returns it.

    Without a shared folder the first rank makes all shards, so that they need not pass through other memory.

    Args:
        make_body: returns the stage's body on a rank.
        sink: takes heartbeats, if the caller does not send them.

    Raises:
        SentdistError: one rank raised it; all ranks raise it.
    """
    started = time.perf_counter()
    with ExitStack() as stack:
        folder = ranks.from_first(lambda: stack.enter_context(staged_shards(context.store)))
        with ranks.errors_on_all():
            body = make_body()
        per_shard = rows_per_part(body.num_rows, context.runtime)
        for shard in _own_rounds(num_shards(body.num_rows, per_shard), ranks, is_shared=context.store.is_shared):
            with ranks.errors_on_all():
                if shard is not None:
                    with _making(shard, stage, context, sink):
                        write_shard(body, shard, per_shard, folder)
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started) if ranks.is_first else None


def _own_rounds(num: int, ranks: Ranks, *, is_shared: bool) -> list[int | None]:
    """The shard that this rank makes in each round, None if it only waits for the others.

    Ranks meet after each round: one that waits longer than the process group's timeout (half an hour) fails, and the stage with it.
    is_shared: whether all ranks can write to the first rank's folder.
    """
    if not is_shared:
        return [shard if ranks.is_first else None for shard in range(num)]
    firsts = range(0, num, ranks.world_size)
    return [first + ranks.rank if first + ranks.rank < num else None for first in firsts]


def worker_body(stage: Sharded, context: Context) -> ShardedBody:
    """Return the body of a stage on a worker, limited to its reserved CPUs and GPU share."""
    use_reserved(stage_demand(stage, context.runtime))
    return body_of(stage, context)


@contextmanager
def _making(shard: int, stage: Sharded | Tokens, context: Context, sink: HeartbeatSink | None) -> Iterator[None]:
    """Send heartbeats while a shard is made, and explain errors of a full GPU."""
    beats = nullcontext() if sink is None else Heartbeats(stage, sink, worker=f"shard {shard}")
    with beats, explain_full_gpu(stage, context):
        yield
