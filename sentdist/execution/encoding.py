"""Embedding the sentences of an evaluation over the workers of a cluster with Ray Data."""

from __future__ import annotations

import pickle
from functools import cached_property
from io import BytesIO

import numpy as np
import pyarrow as pa
import ray

from sentdist.errors import SentdistError
from sentdist.execution.ray_data import Rows, answer, over_workers, quiet, rows_per_part
from sentdist.execution.resources import capacity, nodes_of
from sentdist.execution.run import check_auth_mode, connect
from sentdist.execution.trainer import use_threads
from sentdist.plan.stages import Evaluate
from sentdist.stages.context import Context
from sentdist.stages.embedding import Embed, Told, embed_here


class SentenceEmbedder:
    """A worker: loads the encoder once, then embeds one part of the sentences after the other."""

    def __init__(self, stage: Evaluate, context: Context) -> None:
        self._stage, self._context = stage, context

    @cached_property
    def _embed(self) -> Embed:
        # Not in the constructor: Ray Data tries one that fails three times.
        use_threads(self._context.runtime)
        return embed_here(self._stage, self._context)

    def __call__(self, rows: Rows) -> Rows:
        """The embeddings of the one part that the rows are."""
        (part,) = set(rows["part"].tolist())
        try:
            buffer = BytesIO()
            np.save(buffer, self._embed(rows["sentence"].tolist()))
            return answer(part, content=buffer.getvalue())
        except SentdistError as error:
            return answer(part, error=pickle.dumps(error))


def embed_over_workers(stage: Evaluate, context: Context, *, told: Told | None = None) -> Embed:
    """By the stage's encoder, on up to `runtime.workers` workers of the cluster that RAY_ADDRESS names.

    Equal to `embed_here` but for roundings: a sentence's last digits depend on the batch that it is in. An encoder given by path, and a
    store that holds the encoder, must be seen by all nodes under the same name; sentences travel, data sets need not.

    Raises:
        ResourceError: no cluster, or one that cannot hold so many workers; both when it is made.
        SentdistError: what a worker raised, as it raised it.
    """
    check_auth_mode()
    connect()
    capacity(context.runtime, nodes_of(ray.nodes()))

    def embed(sentences: list[str]) -> np.ndarray:
        num_parts = -(-len(sentences) // rows_per_part(len(sentences), context.runtime))
        # Every num_parts-th sentence: long ones, which stand together, are dealt out.
        parts = [pa.table({"sentence": sentences[part::num_parts]}) for part in range(num_parts)]
        numbered = [table.append_column("part", pa.array([part] * len(table))) for part, table in enumerate(parts)]
        found: dict[int, np.ndarray] = {}
        with quiet():
            answers = over_workers(
                ray.data.from_arrow(numbered), SentenceEmbedder, num_parts=num_parts, batch_size=None, arguments=(stage, context),
                runtime=context.runtime,
            )  # fmt: skip
            for row in answers.iter_rows():
                if row["error"]:
                    raise pickle.loads(row["error"])
                found[row["part"]] = np.load(BytesIO(row["content"]))
                if told is not None:
                    told(sum(map(len, found.values())), len(sentences))
        embeddings_SD = np.empty((len(sentences), found[0].shape[1]), dtype=np.float32)
        for part, rows_SD in found.items():
            embeddings_SD[part::num_parts] = rows_SD
        return embeddings_SD

    return embed
