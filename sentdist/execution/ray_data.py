"""How parts of a work go over workers with Ray Data."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from ray.data import ActorPoolStrategy, DataContext, Dataset

from sentdist.plan.runtime import Runtime

PARTS_PER_WORKER = 4  # so that the workers end at about the same time
MIN_ROWS_PER_PART = 512  # fewer are made faster than they are handed out

Rows = dict[str, np.ndarray]


def rows_per_part(num_rows: int, runtime: Runtime) -> int:
    """Rows of a part: few enough that all workers have several, at most those of a shard."""
    wanted = -(-num_rows // (runtime.workers * PARTS_PER_WORKER))
    return min(runtime.rows_per_shard, max(wanted, MIN_ROWS_PER_PART))


def over_workers(
    parts: Dataset, worker: type, *, num_parts: int, batch_size: int | None, arguments: tuple[object, ...], runtime: Runtime
) -> Dataset:
    """What workers make of each block of `parts`, as it comes: up to `runtime.workers` actors, begun with one where no more find room."""
    workers = min(runtime.workers, num_parts)
    return parts.map_batches(
        worker,
        batch_size=batch_size,
        fn_constructor_args=arguments,
        compute=ActorPoolStrategy(min_size=1, max_size=workers, initial_size=workers),
        num_cpus=runtime.cpus_per_worker,
        num_gpus=runtime.gpus_per_worker or None,
    )


def answer(part: int, *, content: bytes = b"", error: bytes = b"") -> Rows:
    """What a worker says of a part, and what it could not keep to itself: its content, or a pickled error for a person, of which Ray Data would keep only the text."""
    return {"part": np.array([part]), "content": np.array([content], dtype=object), "error": np.array([error], dtype=object)}


@contextmanager
def quiet() -> Iterator[None]:
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
