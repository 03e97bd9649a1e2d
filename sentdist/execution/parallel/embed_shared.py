"""Embedding the sentences of an evaluation on what there is for so many: in this process, or on all GPUs of this machine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from sentdist.execution.parallel.sharing import shared_out
from sentdist.plan.stages import Scores
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.stages.scores.embed_sentences import Embed, OnProgress, embed_here


def embed_on_all_gpus(
    stage: Scores, context: Context, *, devices: str, on_progress: OnProgress | None = None, tell: PrintLine = lambda line: None
) -> Embed:
    """What embeds sentences in this process, or, where they are many, on workers of its own on all GPUs of this machine: see `shared_out`.

    Equal to `embed_here` but for roundings, where they are shared out.
    devices: what to say of this process. tell: is given, before the first sentences are embedded, on what they are.
    """
    said: list[str] = []

    @cache
    def here() -> Embed:
        return embed_here(stage, context, on_progress=on_progress)

    def tell_once(line: str) -> None:
        if not said:  # sentences of probes come behind those of the tasks, and are few
            tell(line)
        said.append(line)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        num_sentences = len(sentences) if context.runtime.gpus_per_worker else None
        with shared_out(num_sentences, workers=None, gpus={}) as runtime:
            if runtime is None:
                tell_once(devices)
                return here()(sentences, prompt)
            from sentdist.execution.parallel.embed import embed_over_workers  # Ray, which one process does without

            shared = replace(context, runtime=runtime)
            return embed_over_workers(stage, shared, on_progress=on_progress, tell=tell_once)(sentences, prompt)

    return embed
