"""Whether one process does a work on sentences, workers of a cluster, or workers of its own on all GPUs of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sentdist.execution.cluster.address import local_nodes
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.plan.runtime import Runtime
from sentdist.stages.devices import usable_gpus

# Workers are up in about 20 s, in which a GPU encodes so many short sentences, at 10,000 a second. Neither was measured on GPUs.
MANY_SENTENCES = 200_000


@contextmanager
def shared_out(num_sentences: int | None, *, workers: int | None, gpus: Mapping[str, float | str]) -> Iterator[Runtime | None]:
    """What workers have that share a work on so many sentences (None: nobody knows how many); None: this process does it alone.

    workers: of the cluster that RAY_ADDRESS names, with these fields of a runtime, as a person asks. Where nobody asks: one for each GPU of
    this machine, if it has several, the sentences are MANY_SENTENCES or more, and nobody runs a cluster, whose GPUs they are. Ray is
    started for these, and ends with the context.
    """
    if workers is not None:
        yield Runtime.model_validate({"engine": "torch", "workers": workers, **gpus})
        return
    num_gpus = _gpus_to_share(num_sentences)
    if not num_gpus:
        yield None
        return
    import joblib

    from sentdist.execution.cluster.own_cluster import own_cluster

    num_cpus = max(joblib.cpu_count(), num_gpus)  # what a container or a scheduler leaves this process
    with own_cluster(cpus=num_cpus, gpus=num_gpus):
        yield Runtime(engine="torch", workers=num_gpus, cpus_per_worker=num_cpus // num_gpus)


def _gpus_to_share(num_sentences: int | None) -> int:
    """GPUs of this machine over which a work is shared out that nobody asked workers for; 0: it is not."""
    if num_sentences is None or num_sentences < MANY_SENTENCES or os.environ.get("RAY_ADDRESS"):
        return 0
    keep_gpu_memory_whole()  # before torch is asked anything of the GPU: this process may yet do it alone
    num_gpus = usable_gpus()
    return num_gpus if num_gpus > 1 and not local_nodes() else 0
