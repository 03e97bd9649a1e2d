"""Embeddings of test sentences that are kept, so that other tasks of the same encoder encode only what is new."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.errors import ArtifactLost
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stages import Encoded, Scores, Train
from sentdist.reading import drop_remedy, read_array, read_parquet
from sentdist.stages.commit import commit
from sentdist.stages.context import Context
from sentdist.stages.inputs_in_use import note_input

DIGESTS, EMBEDDINGS = "digests.parquet", "embeddings.npy"


def kept_or_encoded(
    stage: Scores,
    of: EncoderSpec | Train,
    sentences: Sequence[str],
    context: Context,
    encode: Callable[[list[str]], np.ndarray],
    *,
    prompt: str = "",
) -> np.ndarray:
    """(S, D) float32 embeddings of S different sentences: those that the store has, and the others by `encode`, which are then kept too.

    What is kept depends on encoder, length, precision and the prompt before each of them; a sentence's last digits depend on the batch
    that it was encoded in.
    """
    started = time.perf_counter()
    digests = [hashlib.sha256(sentence.encode()).hexdigest()[:32] for sentence in sentences]
    wanted = Encoded(encoder=of, max_length=stage.max_length, precision=stage.precision, sentences="", prompt=prompt)
    known = _kept(wanted, set(digests), context)
    missing = [row for row, digest in enumerate(digests) if digest not in known]
    if missing:
        found_SD = encode([sentences[row] for row in missing])
        new = [digests[row] for row in missing]
        total = hashlib.sha256("".join(new).encode()).hexdigest()[:16]
        made = wanted.model_copy(update={"sentences": f"sha256:{total}"})
        if context.store.get(made) is None:
            with context.store.staged() as folder:
                pq.write_table(pa.table({"digest": new}), folder / DIGESTS)
                np.save(folder / EMBEDDINGS, found_SD)
                commit(made, folder, context, seconds=time.perf_counter() - started, results={"num_sentences": len(new)})
        known |= dict(zip(new, found_SD, strict=True))
    return np.stack([known[digest] for digest in digests]).astype(np.float32)


def _kept(wanted: Encoded, digests: set[str], context: Context) -> dict[str, np.ndarray]:
    """The rows of all artifacts of this encoder, length, precision and prompt that are among `digests`."""
    fields = _beside_sentences(wanted.canonical()["fields"])
    found: dict[str, np.ndarray] = {}
    for artifact in context.store.artifacts(Encoded.kind):
        if fields == _beside_sentences(artifact.record.stage["fields"]):
            try:
                folder = context.store.folder(artifact)
            except ArtifactLost:  # moved aside: these sentences are encoded again
                continue
            note_input(context.store, artifact, folder)
            embeddings = read_array(folder / EMBEDDINGS, remedy=drop_remedy(folder))
            names = read_parquet(folder / DIGESTS, columns=["digest"], remedy=drop_remedy(folder))["digest"].to_pylist()
            found |= {name: embeddings[row] for row, name in enumerate(names) if name in digests}
    return found


def _beside_sentences(fields: object) -> dict[str, object]:
    """All that embeddings depend on but the sentences themselves; without a prompt there is no field of that name."""
    assert isinstance(fields, dict)
    return {name: value for name, value in fields.items() if name != "sentences"}
