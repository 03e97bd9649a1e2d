"""Sentences as a model reads them: all tokens of a step one after another, without padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from sentdist.errors import DataError


def inverse(order: np.ndarray) -> np.ndarray:
    """Of a permutation: in one pass, for each step needs it of all tokens."""
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return back


def sent_to(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A tensor of the host on `device`, without making the host wait for a GPU, as a copy out of memory that is not pinned would."""
    device = torch.device(device)
    if device.type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """S sentences of T tokens in all.

    token_ids: (T,) int64, sentence after sentence, special tokens included.
    boundaries: (S + 1,) int32 cumulative lengths on the same device; sentence s is `token_ids[boundaries[s]:boundaries[s + 1]]`.
    lengths: the S lengths on the host, so that nobody waits for a device to learn a shape.
    num_truncated: how many of the sentences were longer than the tokenizer's limit and lost their end.
    """

    token_ids: Tensor
    boundaries: Tensor
    lengths: tuple[int, ...]
    num_truncated: int = 0

    @property
    def num_sentences(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids.shape[0])

    @property
    def longest(self) -> int:
        return max(self.lengths)

    def to(self, device: torch.device | str) -> TokenBatch:
        """Return the batch on `device`; nobody waits for it."""
        return replace(self, token_ids=sent_to(self.token_ids, device), boundaries=sent_to(self.boundaries, device))

    def pinned(self) -> TokenBatch:
        """Return the batch in pinned memory, from which a GPU copies by itself."""
        return replace(self, token_ids=self.token_ids.pin_memory(), boundaries=self.boundaries.pin_memory())

    def take(self, rows: Sequence[int]) -> TokenBatch:
        """Return the sentences of `rows`, in that order (a micro-batch); truncation is counted by the whole batch only."""
        chosen = np.asarray(rows, dtype=np.int64)
        all_lengths = np.asarray(self.lengths, dtype=np.int64)
        lengths_S = all_lengths[chosen]
        ends_S = np.cumsum(lengths_S)
        places = np.arange(ends_S[-1]) + np.repeat((np.cumsum(all_lengths) - all_lengths)[chosen] - (ends_S - lengths_S), lengths_S)
        device = self.token_ids.device
        return TokenBatch(
            token_ids=self.token_ids.index_select(0, torch.from_numpy(places).to(device)),
            boundaries=torch.from_numpy(np.concatenate([[0], ends_S]).astype(np.int32)).to(device),
            lengths=tuple(lengths_S.tolist()),
        )

    def places_behind(self, num: int) -> tuple[Tensor, Tensor]:
        """The places of all tokens but the first `num` of each sentence, and the boundaries (S + 1,) of sentences among them; DataError
        for a sentence without further tokens."""
        lengths_S = np.asarray(self.lengths, dtype=np.int64) - num
        if lengths_S.min() < 1:
            raise DataError(
                where="pooling behind a prompt",
                found=f"{num} tokens of prompt and nothing behind them",
                expected="a token of the sentence",
                remedy="Allow for longer sentences, or shorten the prompt.",
            )
        ends_S = np.cumsum(lengths_S)
        places = np.arange(ends_S[-1]) + np.repeat(num * np.arange(1, len(lengths_S) + 1), lengths_S)
        boundaries = torch.from_numpy(np.concatenate([[0], ends_S]).astype(np.int32))
        return torch.from_numpy(places).to(self.token_ids.device), boundaries.to(self.token_ids.device)

    def filled(self, multiple: int) -> TokenBatch:
        """Return the batch with sentences of no meaning behind its own, none longer than these, so that T is a multiple of `multiple`."""
        missing = -self.num_tokens % multiple
        if not missing:
            return self
        fillers = [min(self.longest, missing - start) for start in range(0, missing, self.longest)]
        lengths = (*self.lengths, *fillers)
        return replace(
            self,
            token_ids=torch.cat([self.token_ids, self.token_ids[:1].expand(missing)]),
            boundaries=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=self.boundaries.device),
            lengths=lengths,
        )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one rank trains on in one step.

    tokens: C·B sentences, column by column: anchors, positives[, negatives].
    num_columns: C.
    first_row: this rank's first row among the M rows of the global batch.
    sentence_ids: (C, M) ids of the global batch, which are rows of a bank.
    num_positives: P. Columns 1 … P are positives, the Q = C − 1 − P others hard negatives.
    labels: (B,) float32, what a pair of this rank is worth; None where rows have no label.
    relations: (B,) int64, which relation holds between anchor and positive; None where rows have none.
    augmented: (N, 1 + P, B, D) embeddings of this rank's anchors and positives by the N encoders of a bank, in the bank's type;
    None where they were not looked up ahead.
    bank_ids: (1 + P, B) int64, the rows of these in a bank that lies on the device (`DeviceBank`); None where it lies elsewhere.
    """

    tokens: TokenBatch
    num_columns: int
    first_row: int
    sentence_ids: np.ndarray
    num_positives: int = 1
    labels: Tensor | None = None
    relations: Tensor | None = None
    augmented: Tensor | None = None
    bank_ids: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """B, the anchors of this rank."""
        return self.tokens.num_sentences // self.num_columns

    @property
    def num_rows_of_all(self) -> int:
        """M, the anchors of all ranks."""
        return int(self.sentence_ids.shape[1])

    @property
    def own_sentence_ids(self) -> np.ndarray:
        """(C·B,) ids of the sentences of `tokens`, in their order."""
        return self.sentence_ids[:, self.first_row : self.first_row + self.num_rows].ravel()

    @property
    def regulated_ids(self) -> np.ndarray:
        """(1 + P, B) ids of this rank's anchors and positives, which are what a bank is asked for."""
        return self.sentence_ids[: 1 + self.num_positives, self.first_row : self.first_row + self.num_rows]

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with all but its tokens on `device`: these go there when they are encoded."""
        return self._with(self.tokens, lambda tensor: tensor.to(device, non_blocking=True))

    @property
    def beside_tokens(self) -> tuple[Tensor, ...]:
        """What `to` moves."""
        return tuple(tensor for tensor in (self.labels, self.relations, self.augmented, self.bank_ids) if tensor is not None)

    def left_on_host(self) -> Batch:
        """Return the batch without what `to` moves."""
        return replace(self, labels=None, relations=None, augmented=None, bank_ids=None)

    def pinned(self) -> Batch:
        """Return the batch in pinned memory, from which a GPU copies by itself."""
        return self._with(self.tokens.pinned(), Tensor.pin_memory)

    def _with(self, tokens: TokenBatch, change: Callable[[Tensor], Tensor]) -> Batch:
        def changed(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        return replace(
            self,
            tokens=tokens,
            labels=changed(self.labels),
            relations=changed(self.relations),
            augmented=changed(self.augmented),
            bank_ids=changed(self.bank_ids),
        )


def collate(token_ids: Sequence[Sequence[int] | np.ndarray], *, num_truncated: int = 0) -> TokenBatch:
    """Join the token ids of S sentences into one TokenBatch on the host; a sentence without a token is a DataError."""
    if not token_ids:
        raise DataError(where="collate", found="no sentences", expected="at least one", remedy="Drop empty batches before training.")
    lengths = tuple(len(sentence) for sentence in token_ids)
    if min(lengths) == 0:
        raise DataError(
            where="collate",
            found=f"no token in sentence {lengths.index(0)} of the batch",
            expected="at least one token a sentence",
            remedy="Drop empty sentences from the corpus.",
        )
    flat = np.concatenate([np.asarray(sentence, dtype=np.int64) for sentence in token_ids])
    return TokenBatch(
        token_ids=torch.from_numpy(flat),
        boundaries=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        lengths=lengths,
        num_truncated=num_truncated,
    )
