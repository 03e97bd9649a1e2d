"""The batches of a training as one rank reads them: which rows, in which order, with all that a step needs of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from sentdist.data.corpus import OpenedCorpus
from sentdist.data.sampler import epoch_batches
from sentdist.learning.bank import BankReader
from sentdist.learning.encoder.batch import Batch
from sentdist.learning.encoder.tokenizing import Tokenizer
from sentdist.learning.gather import local_rows
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.inputs import folder_of
from sentdist.stages.tokens import tokens_of


class RankBatches:
    """The batches of one training. Their order follows from its seed and the epoch alone: every rank knows it, and can begin anywhere."""

    def __init__(self, stage: Train, context: Context, *, tokenizer: Tokenizer, bank: BankReader | None) -> None:
        self._stage = stage
        self._corpus = OpenedCorpus.open(folder_of(stage.corpus, context))
        self._ids_CR = self._corpus.ids[: stage.num_columns]
        self._tokens = tokens_of(stage, context, tokenizer)
        self._bank = bank

    @property
    def num_rows(self) -> int:
        """Rows of the whole corpus."""
        return self._corpus.num_rows

    def epoch(self, epoch: int) -> np.ndarray:
        """(steps, B) rows of the global batches of an epoch; where sentences of a batch must differ, epochs are not equally long."""
        training = self._stage.training
        return epoch_batches(
            self._ids_CR, batch_size=training.batch_size, seed=self._stage.seed, epoch=epoch, unique_sentences=training.unique_sentences
        )

    def beginning_at(self, epoch: int, step_in_epoch: int, *, rank: int, world_size: int) -> Iterator[tuple[int, int, Batch]]:
        """This rank's share of each global batch from there to the last epoch's end, with its place in its epoch and the steps of that."""
        training = self._stage.training
        rows = local_rows(training.batch_size, rank=rank, world_size=world_size)
        for number in range(epoch, training.epochs):
            batches = self.epoch(number)
            for place in range(step_in_epoch if number == epoch else 0, len(batches)):
                yield place, len(batches), self._share(batches[place], rows)

    def _share(self, rows_M: np.ndarray, rows: range) -> Batch:
        ids_CM = np.asarray(self._ids_CR[:, rows_M])
        labels, relations = self._corpus.labels, self._corpus.relations
        own = slice(rows.start, rows.stop)
        batch = Batch(
            tokens=self._tokens.batch(ids_CM[:, own]),
            num_columns=len(ids_CM),
            first_row=rows.start,
            sentence_ids=ids_CM,
            num_positives=self._stage.corpus.num_positives,
            labels=None if labels is None else torch.tensor(labels[rows_M[own]]),
            relations=None if relations is None else torch.tensor(relations[rows_M[own]], dtype=torch.int64),
        )
        return batch if self._bank is None else self._bank.prepared(batch)
