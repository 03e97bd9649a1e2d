"""The embeddings of a file of sentences, written to a file as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from sentdist.data.texts import TextColumns, Texts
from sentdist.inference.embedding_file import PROMPT, TEXTS, TextsDigest, embedding_writer
from sentdist.inference.ready_encoder import LoadedEncoder

SENTENCES_AT_ONCE = 16_384  # embedded and written together: sorting by length has nothing to gain beyond that


EmbeddedBatches = Callable[[Texts], Iterator[tuple[TextColumns, np.ndarray]]]  # of a file, in its order


def encode_file(
    loaded: LoadedEncoder, texts: Texts, out: Path, *, dtype: str = "float32", batches: EmbeddedBatches | None = None
) -> Iterator[int]:
    """Write the embeddings of all sentences to `out`; gives out after each batch how many are done.

    batches: by whom the file is embedded; None: by `loaded`, here.
    Memory holds one batch. Whoever stops drawing, and every error, leaves no file of that name.

    Raises:
        DataError: as `Texts.batches` and `embedding_writer`. EncoderError: as `LoadedEncoder.embed`.
    """
    done, digest = 0, TextsDigest()
    with_ids = texts.id_column is not None
    use = loaded.use
    facts = {**loaded.facts, PROMPT: use.prompt, "checkpoint": use.checkpoint, "source": texts.name, "dtype": dtype}
    with embedding_writer(out, width=loaded.width, dtype=dtype, facts=facts, with_ids=with_ids) as writer:
        for batch, embeddings_SD in (batches or partial(_embedded_here, loaded))(texts):
            sentences = batch[texts.columns[0]]
            writer.write(embeddings_SD, batch[texts.id_column] if texts.id_column is not None else None)
            digest.add(sentences)
            done += len(sentences)
            yield done
        facts[TEXTS] = digest.hex


def _embedded_here(loaded: LoadedEncoder, texts: Texts) -> Iterator[tuple[TextColumns, np.ndarray]]:
    for batch in texts.batches(SENTENCES_AT_ONCE):
        yield batch, loaded.embed(batch[texts.columns[0]])
