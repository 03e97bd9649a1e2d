"""Build a stage in shards on the ranks of a worker group, each rank its share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

from sentdist.recipe.stages import Tokens
from sentdist.run.demand import stage_demand
from sentdist.run.parallel.pool import rows_per_part
from sentdist.run.reserved import use_reserved
from sentdist.stages.context import Context
from sentdist.stages.memory import explain_full_gpu
from sentdist.stages.sharded import (
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


def build_over_ranks(stage: Sharded | Tokens, context: Context, ranks: Ranks, *, make_body: Callable[[], ShardedBody]) -> Artifact | None:
    """Make every shard of a stage on the ranks of a running group, each its share; the first rank commits the artifact and returns it.

    Args:
        make_body: returns the stage's body on a rank.

    Raises:
        SentdistError: one rank raised it; all ranks raise it.
    """
    started = time.perf_counter()
    with ExitStack() as stack:
        folder = ranks.from_first(lambda: stack.enter_context(staged_shards(context.store)))
        with ranks.errors_on_all():
            body = make_body()
        per_shard = rows_per_part(body.num_rows, context.runtime)
        for first in range(0, num := num_shards(body.num_rows, per_shard), ranks.world_size):
            # Ranks meet after each shard: a longer wait than the timeout of the process group (half an hour) fails the stage.
            shard, content = first + ranks.rank, None
            with ranks.errors_on_all():
                if shard < num:
                    with explain_full_gpu(stage, context):
                        content = _make(body, shard, per_shard, folder if context.store.is_shared else None)
            if not context.store.is_shared:
                _write_received(folder, body, {first + rank: one for rank, one in enumerate(ranks.gather(content))})
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started) if ranks.is_first else None


def _make(body: ShardedBody, shard: int, per_shard: int, folder: Path | None) -> bytes | None:
    """Write a shard into the folder that all ranks see; return its content if there is none."""
    if folder is not None:
        write_shard(body, shard, per_shard, folder)
        return None
    buffer = BytesIO()
    body.write(shard_rows(shard, body.num_rows, per_shard), buffer)
    return buffer.getvalue()


def _write_received(folder: Path, body: ShardedBody, contents: Mapping[int, object]) -> None:
    for shard, content in contents.items():
        if isinstance(content, bytes):
            (folder / shard_name(shard, body)).write_bytes(content)


def worker_body(stage: Sharded, context: Context) -> ShardedBody:
    """Return the body of a stage on a worker, limited to its reserved CPUs and GPU share."""
    use_reserved(stage_demand(stage, context.runtime))
    return body_of(stage, context)
