"""Embedding the sentences of an evaluation over the workers of a cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from sentdist.execution.demand import pool_demand
from sentdist.execution.parallel.pool import over_workers, rows_per_part, with_cluster_devices
from sentdist.plan.stages import Scores
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.stages.inputs_in_use import InUse, check_inputs, inputs_watched
from sentdist.stages.scores.embed_sentences import Embed, OnProgress, embed_here


class SentenceEmbedder:
    """A worker: loads the encoder once, then embeds one part of the sentences after the other, each behind the prompt."""

    def __init__(self, stage: Scores, context: Context, prompt: str) -> None:
        self._stage, self._context, self._prompt = stage, context, prompt
        self._inputs: InUse = {}

    @cached_property
    def _embed(self) -> Embed:
        # Not in the constructor: there an error would be reported as the death of an actor.
        from sentdist.execution.reserved import use_reserved  # torch, which who waits for the workers does not need

        runtime = self._context.runtime
        use_reserved(pool_demand(runtime, gpus=runtime.gpus_per_worker))
        return embed_here(self._stage, self._context)

    def work(self, part: tuple[int, list[str]]) -> np.ndarray:
        """The embeddings of the sentences of a part, which has a number.

        Raises:
            ArtifactLost: the encoder was changed since this worker began to read it.
        """
        from sentdist.stages.gpu_memory import explain_full_gpu

        _, sentences = part
        with explain_full_gpu(self._stage, self._context), inputs_watched(self._inputs):
            embeddings = self._embed(sentences, self._prompt)
            check_inputs()
            return embeddings


def embed_over_workers(
    stage: Scores, context: Context, *, on_progress: OnProgress | None = None, tell: PrintLine = lambda line: None
) -> Embed:
    """What embeds sentences by the stage's encoder, on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names.

    Equal to `embed_here` but for roundings: a sentence's last digits depend on the batch that it is in. An encoder given by path, and a
    store that holds the encoder, must be seen by all nodes under the same name; sentences travel, data sets need not.
    tell: is given over how many workers, on what, what lies idle and why.

    Raises:
        ResourceError: no cluster, or one that cannot hold so many workers, both when it is made; or a part lost its worker again and again.
        SentdistError: what a worker raised, as it raised it.
    """
    runtime, devices = with_cluster_devices(context.runtime)
    context = replace(context, runtime=runtime)
    tell(devices)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        num_parts = -(-len(sentences) // rows_per_part(len(sentences), context.runtime))
        # Every num_parts-th sentence: long ones, which stand together, are dealt out.
        parts = ((part, sentences[part::num_parts]) for part in range(num_parts))
        demand = pool_demand(context.runtime, gpus=context.runtime.gpus_per_worker)
        found: dict[int, np.ndarray] = {}
        for (part, _), rows_SD in over_workers(SentenceEmbedder, (stage, context, prompt), parts, demand=demand, where=stage.label):
            found[part] = rows_SD
            if on_progress is not None:
                on_progress(sum(map(len, found.values())), len(sentences))
        embeddings_SD = np.empty((len(sentences), found[0].shape[1]), dtype=np.float32)
        for part, rows_SD in found.items():
            embeddings_SD[part::num_parts] = rows_SD
        return embeddings_SD

    return embed
