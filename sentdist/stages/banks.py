"""Build a bank: every unique sentence of a corpus, embedded by one frozen encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
import torch

from sentdist.data.corpus import OpenedCorpus
from sentdist.learning.bank import BankReader, StoredBank, check_rows
from sentdist.learning.bank_shape import BankShape
from sentdist.learning.device_bank import let_bank_go, on_device
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Bank, Train
from sentdist.stages.context import Context, folder_of
from sentdist.stages.embed import frozen_encoder
from sentdist.stages.fit import gpu_bytes, size_of

# Share of a worker's GPU memory that a bank there may take: it only saves copies, and the estimate of the rest of a training does not
# know long sentences. 10 GiB of an H100's 80 hold RCL's five banks of BERT-base over a million sentences (7.2).
BANK_SHARE = 1 / 8


class BankBody:
    """`ShardedBody` of a bank; the shards are its files."""

    suffix = "npy"

    def __init__(self, stage: Bank, context: Context) -> None:
        self._stage, self._context = stage, context

    @cached_property
    def num_rows(self) -> int:
        return self._corpus.num_sentences

    def write(self, rows: range, file: IO[bytes]) -> None:
        """Write (rows, D) embeddings in the bank's dtype."""
        stage = self._stage
        embeddings_SD = encode(
            self._encoder,
            self._corpus.sentences(np.arange(rows.start, rows.stop)),
            max_length=stage.max_length,
            tokens_per_batch=self._context.runtime.tokens_per_batch,
            precision=stage.precision,
        )
        with np.errstate(over="ignore"):  # reported below, with the sentence
            stored_SD = embeddings_SD.astype(stage.dtype)
        check_rows(stored_SD, first_id=rows.start, where=f"bank {stage.label}")
        np.save(file, stored_SD)

    def finish(self, folder: Path, shards: Sequence[Path], *, rows_per_shard: int) -> dict[str, Json]:
        """Describe the shards in bank.json."""
        shapes = [np.load(shard, mmap_mode="r").shape for shard in shards]
        assert sum(rows for rows, _ in shapes) == self.num_rows, "every sentence is embedded once"
        shape = BankShape(num_sentences=self.num_rows, width=shapes[0][1], dtype=self._stage.dtype, rows_per_shard=rows_per_shard)
        (folder / "bank.json").write_text(json.dumps(asdict(shape)))
        return {"num_sentences": shape.num_sentences, "width": shape.width, "bytes": shape.num_bytes}

    @cached_property
    def _corpus(self) -> OpenedCorpus:
        return OpenedCorpus.open(folder_of(self._stage.corpus, self._context))

    @cached_property
    def _encoder(self) -> SentenceEncoder:
        return frozen_encoder(self._stage.encoder, self._context, precision=self._stage.precision)


def placed(bank: StoredBank | None, stage: Train, context: Context, device: torch.device) -> BankReader | None:
    """Return the bank for a training on `device`: the given one, or an equal copy on the GPU.

    An earlier training's copy of another bank is removed from the GPU. Ranks may decide differently.
    """
    if bank is not None and device.type == "cuda":
        mine = torch.cuda.get_device_properties(device).total_memory * min(1.0, context.runtime.gpus_per_worker)
        left = mine - gpu_bytes(stage, size_of(stage.encoder, context), context.runtime)
        if bank.num_bytes <= min(BANK_SHARE * mine, left):
            return on_device(bank, device)
    let_bank_go()
    return bank
