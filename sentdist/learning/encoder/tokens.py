"""Tokenize sentences, join the tokens of a step without padding, and store token tables."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import IO

import numpy as np
import tokenizers
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers import PreTrainedTokenizerBase as Tokenizer

from sentdist.errors import DataError, EncoderError, brief
from sentdist.files import drop_remedy, read_array
from sentdist.kernels.tensors import sent_to


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """S sentences of T tokens in total."""

    token_ids: Tensor  # (T,) int64, sentence after sentence, special tokens included
    boundaries: Tensor  # (S + 1,) int32, same device; sentence s is `token_ids[boundaries[s]:boundaries[s + 1]]`
    lengths: tuple[int, ...]  # the S lengths on the host, so that shapes are known without waiting for a device
    num_truncated: int = 0  # sentences that were longer than the tokenizer's limit and lost their end

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
        """Return the batch on `device`, without waiting."""
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
        """Return the places of all tokens except the first `num` of each sentence, and the boundaries (S + 1,) of sentences among them.

        DataError for a sentence without further tokens.
        """
        lengths_S = np.asarray(self.lengths, dtype=np.int64) - num
        if lengths_S.min() < 1:
            raise DataError(
                where="pooling without the prompt",
                found=f"{num} tokens of prompt and nothing after them",
                expected="a token of the sentence",
                remedy="Raise max_length, or shorten the prompt.",
            )
        ends_S = np.cumsum(lengths_S)
        places = np.arange(ends_S[-1]) + np.repeat(num * np.arange(1, len(lengths_S) + 1), lengths_S)
        boundaries = torch.from_numpy(np.concatenate([[0], ends_S]).astype(np.int32))
        return torch.from_numpy(places).to(self.token_ids.device), boundaries.to(self.token_ids.device)

    def filled(self, multiple: int) -> TokenBatch:
        """Return the batch with filler sentences at its end, none longer than its own, so that T is a multiple of `multiple`."""
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

    Args:
        tokens: C·B sentences, column by column: anchors, positives[, negatives].
        num_columns: C.
        first_row: this rank's first row among the M rows of the global batch.
        sentence_ids: (C, M) ids of the global batch, which are rows of a bank.
        num_positives: P. Columns 1 … P are positives, the Q = C − 1 − P others hard negatives.
        labels: (B,) float32, of this rank's pairs; None if rows have no label.
        relations: (B,) int64, the relation between anchor and positive; None if rows have none.
        augmented: (N, 1 + P, B, D) embeddings of this rank's anchors and positives by the N encoders of a bank, in the bank's type; None if
            not looked up ahead.
        bank_ids: (1 + P, B) int64, their rows in a bank on the device (`DeviceBank`); None if it is elsewhere.
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
        """(1 + P, B) ids of this rank's anchors and positives, for the bank."""
        return self.sentence_ids[: 1 + self.num_positives, self.first_row : self.first_row + self.num_rows]

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with all but its tokens on `device`; tokens move when they are encoded."""
        return self._with(self.tokens, lambda tensor: tensor.to(device, non_blocking=True))

    @property
    def beside_tokens(self) -> tuple[Tensor, ...]:
        """The tensors that `to` moves."""
        return tuple(tensor for tensor in (self.labels, self.relations, self.augmented, self.bank_ids) if tensor is not None)

    def left_on_host(self) -> Batch:
        """Return the batch without the tensors that `to` moves."""
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
    """Join the token ids of S sentences into one TokenBatch on the host; DataError for a sentence without a token."""
    if not token_ids:
        raise DataError(where="collate", found="no sentences", expected="at least one", remedy="Drop empty batches before training.")
    lengths = tuple(len(sentence) for sentence in token_ids)
    if min(lengths) == 0:
        raise DataError(
            where="collate",
            found=f"no token in sentence {lengths.index(0)} of the batch",
            expected="at least one token per sentence",
            remedy="Drop empty sentences from the corpus.",
        )
    flat = np.concatenate([np.asarray(sentence, dtype=np.int64) for sentence in token_ids])
    return TokenBatch(
        token_ids=torch.from_numpy(flat),
        boundaries=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        lengths=lengths,
        num_truncated=num_truncated,
    )


IDS = "ids.npy"  # (T,) uint16, or uint32 where a vocabulary is larger: sentence after sentence
BOUNDS = "bounds.npy"  # (S + 1,) int64: sentence s is ids[bounds[s]:bounds[s + 1]]


@dataclass(frozen=True, kw_only=True)
class TokenTable:
    """S tokenized sentences. Both arrays are views of mapped files: the processes of a host share their pages."""

    folder: Path
    ids: np.ndarray
    bounds: np.ndarray

    @classmethod
    def open(cls, folder: Path) -> TokenTable:
        """Map the files of `merge_shards`; DataError if they are damaged."""
        expected = f"a table of tokens ({IDS}, {BOUNDS})"
        ids, bounds = (
            read_array(folder / name, expected=expected, remedy=drop_remedy(folder), mapped=True).view(np.ndarray) for name in (IDS, BOUNDS)
        )
        if ids.dtype not in (np.uint16, np.uint32) or bounds.dtype != np.int64 or len(bounds) < 2 or bounds[-1] != len(ids):
            raise DataError(where=str(folder), found="arrays that do not fit together", expected=expected, remedy=drop_remedy(folder))
        return cls(folder=folder, ids=ids, bounds=bounds)

    @property
    def num_sentences(self) -> int:
        return len(self.bounds) - 1

    def batch(self, sentence_ids: np.ndarray) -> TokenBatch:
        """Return the tokens of sentences (any shape, read in order) on the host, not the number of truncated ones; DataError for an unknown
        id.
        """
        wanted = np.asarray(sentence_ids, dtype=np.int64).ravel()
        if wanted.min() < 0 or wanted.max() >= self.num_sentences:
            raise DataError(
                where=str(self.folder),
                found=f"sentence ids from {wanted.min()} to {wanted.max()}",
                expected=f"0 to {self.num_sentences - 1}",
                remedy="The rows belong to another corpus: build it again.",
            )
        starts = self.bounds[wanted]
        lengths = self.bounds[wanted + 1] - starts
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        return TokenBatch(
            token_ids=torch.from_numpy(self.ids[places].astype(np.int64)),
            boundaries=torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)),
            lengths=tuple(lengths.tolist()),
        )


def write_shard(file: IO[bytes], token_ids: Sequence[Sequence[int]], *, num_truncated: int) -> None:
    """Write the tokens of some sentences, for `merge_shards`."""
    lengths = np.fromiter(map(len, token_ids), dtype=np.int64, count=len(token_ids))
    flat = np.fromiter((token for sentence in token_ids for token in sentence), dtype=np.uint32, count=int(lengths.sum()))
    np.savez(file, ids=flat, lengths=lengths, num_truncated=np.array(num_truncated))


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """Counts of a whole table."""

    num_sentences: int
    num_tokens: int
    num_truncated: int
    longest: int


def merge_shards(folder: Path, shards: Sequence[Path]) -> TableFacts:
    """Write the two files of a table into `folder` from shards in the order of their sentences. Memory holds one shard."""
    sizes, largest, longest, num_truncated = [], 0, 0, 0
    for path in shards:
        with np.load(path) as shard:
            ids, lengths = shard["ids"], shard["lengths"]
            sizes.append((len(ids), len(lengths)))
            largest, longest = max(largest, int(ids.max())), max(longest, int(lengths.max()))
            num_truncated += int(shard["num_truncated"])
    num_tokens, num_sentences = (sum(column) for column in zip(*sizes, strict=True))
    dtype = np.uint16 if largest < 2**16 else np.uint32
    flat = np.lib.format.open_memmap(folder / IDS, mode="w+", dtype=dtype, shape=(num_tokens,))
    bounds = np.lib.format.open_memmap(folder / BOUNDS, mode="w+", dtype=np.int64, shape=(num_sentences + 1,))
    token = sentence = 0
    for path in shards:
        with np.load(path) as shard:
            ids, lengths = shard["ids"], shard["lengths"]
        flat[token : token + len(ids)] = ids
        bounds[sentence + 1 : sentence + 1 + len(lengths)] = token + np.cumsum(lengths)
        token, sentence = token + len(ids), sentence + len(lengths)
    flat.flush()
    bounds.flush()
    return TableFacts(num_sentences=num_sentences, num_tokens=num_tokens, num_truncated=num_truncated, longest=longest)


__all__ = ["Tokenizer", "token_ids", "tokenizer_digest"]


def token_ids(tokenizer: Tokenizer, sentences: Sequence[str], *, max_length: int, first: int = 0) -> tuple[list[list[int]], int]:
    """Return the token ids of each sentence, special ones included, at most `max_length`, and the number of truncated sentences.

    DataError for a sentence without a visible character, numbered from `first` + 1.
    """
    for index, sentence in enumerate(sentences):
        if not sentence.strip():
            raise DataError(
                where=f"sentence {first + index + 1:,}",
                found=repr(sentence),
                expected="a sentence with at least one visible character",
                remedy="Fill it in, or leave it out.",
            )
    encoded = tokenizer(list(sentences), truncation=True, max_length=max_length, return_attention_mask=False, return_token_type_ids=False)
    num_truncated = sum(bool(encoding.overflowing) for encoding in encoded.encodings or ())
    ids: list[list[int]] = encoded["input_ids"]
    return ids, num_truncated


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Return `sha256:…` of all that token ids depend on except the maximum length: rules, vocabulary, and the library's version.

    Equal for a checkpoint and for an encoder that was trained from it and saved.
    """
    if tokenizer.is_fast:
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()  # each call sets both as it needs them
        backend.no_padding()
        facts = [tokenizers.__version__, tokenizer.truncation_side, str(tokenizer.split_special_tokens), backend.to_str()]
        return _digest(fact.encode() for fact in facts)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        files = [path for path in sorted(Path(scratch).rglob("*")) if path.is_file()]
        return _digest([transformers.__version__.encode(), *(part for path in files for part in (path.name.encode(), path.read_bytes()))])


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8))
        found.update(part)
    return f"sha256:{found.hexdigest()[:32]}"


class UnknownWords:
    """Counts sentences of which all tokens are unknown or special. first: the first of them; "": none."""

    def __init__(self) -> None:
        self.num_sentences, self.first = 0, ""

    def count(self, tokenizer: PreTrainedTokenizerBase, tokens: TokenBatch, sentences: Sequence[str], *, behind: int = 0) -> None:
        """Count among these sentences, without the first `behind` tokens of each, those of a prompt."""
        if tokenizer.unk_token_id is None or not tokens.num_sentences:
            return
        ids, starts = tokens.token_ids.numpy(), tokens.boundaries.numpy()[:-1]
        is_own = np.arange(len(ids)) - np.repeat(starts, tokens.lengths) >= behind
        has_unknown = np.logical_or.reduceat((ids == tokenizer.unk_token_id) & is_own, starts)
        has_known = np.logical_or.reduceat(~np.isin(ids, [*tokenizer.all_special_ids, tokenizer.unk_token_id]) & is_own, starts)
        found = np.flatnonzero(has_unknown & ~has_known)
        if len(found):
            self.first = self.first or sentences[int(found[0])]
            self.num_sentences += len(found)

    def add(self, others: UnknownWords) -> None:
        """Add the counts of later sentences."""
        self.first = self.first or others.first
        self.num_sentences += others.num_sentences

    def taken(self) -> UnknownWords:
        """Return the counts so far and reset them."""
        taken = UnknownWords()
        taken.add(self)
        self.num_sentences, self.first = 0, ""
        return taken


def tokens_of_prompt(tokenizer: Tokenizer, prompt: str) -> int:
    """Return the number of tokens before those of the sentence, the opening one included; 0 without a prompt."""
    if not prompt:
        return 0
    ids: list[int] = tokenizer(prompt)["input_ids"]
    return len(ids) - (bool(ids) and ids[-1] in tokenizer.all_special_ids)


def check_room(prompt: str, num_tokens: int, *, longest: int, checkpoint: str) -> None:
    """Raise EncoderError for a prompt that leaves no room for a sentence within `longest` tokens: all embeddings would be alike."""
    if num_tokens + 1 >= longest:  # a special token closes most sentences
        raise EncoderError(
            where=f"encoder {checkpoint}",
            found=f"the prompt {brief(prompt)} of {num_tokens} tokens",
            expected=f"one that leaves room for a sentence within {longest} tokens",
            remedy="Shorten it, or raise max_length.",
        )
