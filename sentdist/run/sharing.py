"""Decide whether sentences are processed here, on workers of a cluster, or on private workers on all GPUs of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np

from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Scores
from sentdist.run.address import local_nodes
from sentdist.stages.context import Context
from sentdist.stages.embed import Embed, OnProgress, embed_here
from sentdist.stages.fit import usable_gpus
from sentdist.text import PrintLine

# Workers start in about 20 s; a GPU encodes as many short sentences in that time at 10,000 a second. Neither was measured on GPUs.
MANY_SENTENCES = 200_000


@contextmanager
def shared_out(num_sentences: int | None, *, workers: int | None) -> Iterator[Runtime | None]:
    """Yield the runtime of workers that share the sentences; None if this process does the work alone.

    By default there is one worker for each GPU of this machine if it has several, if there are at least MANY_SENTENCES, and if no cluster
    runs, which would own the GPUs. Ray is started for these workers and ends with the context.

    Args:
        num_sentences: None if unknown.
        workers: requested workers of the cluster that RAY_ADDRESS names.
    """
    if workers is not None:
        yield Runtime(engine="torch", workers=workers)
        return
    num_gpus = _gpus_to_share(num_sentences)
    if not num_gpus:
        yield None
        return
    import joblib

    from sentdist.run.address import own_cluster

    num_cpus = max(joblib.cpu_count(), num_gpus)  # what a container or a scheduler leaves this process
    with own_cluster(cpus=num_cpus, gpus=num_gpus):
        yield Runtime(engine="torch", workers=num_gpus, cpus_per_worker=num_cpus // num_gpus)


def _gpus_to_share(num_sentences: int | None) -> int:
    """GPUs of this machine to use by default; 0 for this process alone."""
    if num_sentences is None or num_sentences < MANY_SENTENCES or os.environ.get("RAY_ADDRESS"):
        return 0
    keep_gpu_memory_whole()  # before torch is asked anything of the GPU: this process may yet do it alone
    num_gpus = usable_gpus()
    return num_gpus if num_gpus > 1 and not local_nodes() else 0


def embed_on_all_gpus(
    stage: Scores, context: Context, *, devices: str, on_progress: OnProgress | None = None, tell: PrintLine = lambda line: None
) -> Embed:
    """Return a function that embeds here, or many sentences on all GPUs of this machine: see `shared_out`. Results differ by rounding only.

    Args:
        devices: line on the device of this process.
        tell: takes the line on the devices used, before the first sentences are embedded.
    """
    printed: list[str] = []

    @cache
    def here() -> Embed:
        return embed_here(stage, context, on_progress=on_progress)

    def tell_once(line: str) -> None:
        if not printed:  # sentences of probes come after those of the tasks, and are few
            tell(line)
        printed.append(line)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        num_sentences = len(sentences) if context.runtime.gpus_per_worker else None
        with shared_out(num_sentences, workers=None) as runtime:
            if runtime is None:
                tell_once(devices)
                return here()(sentences, prompt)
            from sentdist.run.embed import embed_over_workers  # Ray, which one process does not need

            shared = replace(context, runtime=runtime)
            return embed_over_workers(stage, shared, on_progress=on_progress, tell=tell_once)(sentences, prompt)

    return embed
