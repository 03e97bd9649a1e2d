"""The encoder: a Hugging Face model with tokenizer and pooling that embeds sentences without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sentdist.errors import EncoderError, did_you_mean, typed
from sentdist.families import POOLINGS, family_of, is_causal
from sentdist.kernels.flat_attention import Segments
from sentdist.kernels.fused_layer import fuse_layers
from sentdist.kernels.grouped_attention import group_borders
from sentdist.kernels.tensors import inverse, sent_to
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.pooling import PoolingHead, pool, replace_dropout
from sentdist.learning.encoder.pretrained import (
    check_layer_weights,
    load_model,
    load_tokenizer,
    most_tokens_of_loaded,
    quiet,
    saved_head,
)
from sentdist.learning.encoder.tokens import TokenBatch, collate, token_ids
from sentdist.learning.encoder.write_folder import write_folder
from sentdist.learning.gradient_buckets import WordRows
from sentdist.learning.precision import recomputed_within, rows_multiple

PASSES_IN_STEP = 4  # of a padded model with equal passes on all ranks: about as many as a batch of short sentences needs


class SentenceEncoder(nn.Module):
    """Maps S sentences to S embeddings of width D.

    Args:
        pooling: a key of POOLINGS.
        max_length: tokens, special ones included.
        padded_reason: why this model runs padded, in groups of similar length, rather than flat; None: it runs flat. Callers log it once.
        dense_weights: of the layer that gives the pooling's head its shape (see PoolingHead).
        checkpoint: what the folder declares that it was loaded from.
    """

    def __init__(
        self,
        *,
        checkpoint: Checkpoint,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str,
        max_length: int,
        drophead: float,
        padded_reason: str | None,
        dense_weights: Mapping[str, Tensor] | None,
    ) -> None:
        super().__init__()
        width = int(model.config.hidden_size)
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.max_length = max_length
        self.drophead = drophead
        self.padded_reason = padded_reason
        self.checkpoint = checkpoint
        self.is_exported_normalized = checkpoint.is_normalized  # `save` then writes a folder whose embeddings have length 1
        self._num_passes: int | None = None
        self._word_rows: WordRows | None = None
        config = model.config.to_dict()
        self._is_causal = is_causal(config)
        self._family = family_of(config)
        self._without_cache = {"use_cache": False} if self._is_causal else {}  # no cache for generation
        # The model's own pooler never reaches the loss: kept out of the parameters (DDP and ZeRO wait for its gradient), in the export.
        self._unused_pooler = (model._modules.get("pooler"),)
        if self._unused_pooler[0] is not None:
            model._modules["pooler"] = None
        self.model = model
        known = POOLINGS[pooling]
        self.head = (
            PoolingHead(width, initializer_range=self.initializer_range, dense=known.dense, like=dense_weights)
            if known.has_head else None
        )  # fmt: skip
        self.width = width if self.head is None else self.head.dense.out_features

    @classmethod
    def load(
        cls,
        checkpoint: str | Path,
        *,
        revision: str | None = None,
        pooling: str | None = None,
        max_length: int | None = None,
        attention_dropout: float | None = None,
        hidden_dropout: float | None = None,
        drophead: float = 0.0,
        initialization: str = "pretrained",
        layers: int | None = None,
    ) -> SentenceEncoder:
        """Load a checkpoint by hub id and revision, by path, or by a name in PACKAGED_ENCODERS, with float32 weights.

        Args:
            pooling: None: as the folder declares (sentence-transformers' modules.json), else "mean".
            max_length: None: as the checkpoint declares.
            attention_dropout, hidden_dropout: None: the checkpoint's own.
            drophead: probability of dropping an attention head, in [0, 1); only for models that run flat.
            initialization: "pretrained", or "random": take architecture and tokenizer only, with weights from torch's generator.
            layers: keep the first so many transformer layers; None: all.
        Raises:
            EncoderError: the checkpoint or a value cannot be used.
        """
        found = Checkpoint.open(find_checkpoint(checkpoint, revision=revision))
        found.check_can_embed(where=f"encoder {found.folder}")
        pooling = pooling or found.pooling or "mean"
        if pooling not in POOLINGS:
            raise EncoderError(
                where=f"encoder {found.folder}", found=f"pooling {pooling}", expected=f"one of {', '.join(POOLINGS)}",
                remedy=did_you_mean(pooling, POOLINGS, "Name one of these."),
            )  # fmt: skip
        check_layer_weights(found, pooling)
        tokenizer = load_tokenizer(found)
        model, padded_reason = load_model(
            found.folder, attention_dropout=attention_dropout, hidden_dropout=hidden_dropout, initialization=initialization, layers=layers
        )
        _check_has_embeddings(model, tokenizer, found.folder)
        _check_drophead(drophead, padded_reason, found.folder)
        head = saved_head(found, pooling)
        replace_dropout(model)
        fuse_layers(model)
        encoder = cls(
            checkpoint=found,
            model=model,
            tokenizer=tokenizer,
            pooling=pooling,
            max_length=_checked_length(max_length, most_tokens_of_loaded(found, model.config, tokenizer), found.folder),
            drophead=drophead,
            padded_reason=padded_reason,
            dense_weights=head,
        )
        if encoder.head is not None and head is not None and initialization == "pretrained":
            encoder.head.load_state_dict(head)
        return encoder

    @property
    def initializer_range(self) -> float:
        """Standard deviation of a new layer's weights; 0.02, as in BERT, if the family has none."""
        return float(getattr(self.model.config, "initializer_range", 0.02))

    @property
    def is_flat(self) -> bool:
        return self.padded_reason is None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def tokenize(self, sentences: Sequence[str], *, max_length: int | None = None) -> TokenBatch:
        """Tokenize sentences into a TokenBatch on the host, truncated to `max_length` tokens (default: the encoder's own) and counted.

        DataError for an empty sentence, EncoderError for a length without positions in the model.
        """
        ids, num_truncated = token_ids(self.tokenizer, sentences, max_length=self.checked_length(max_length))
        return collate(ids, num_truncated=num_truncated)

    def checked_length(self, max_length: int | None) -> int:
        """Return the length that sentences are truncated to (default: the encoder's own); EncoderError without positions for it."""
        return _checked_length(max_length, self.max_length, Path(str(self.model.config.name_or_path)))

    def tokens_not_pooled(self, num_tokens: int, *, name: str) -> int:
        """Return `num_tokens` of a prompt if the folder excludes it from the declared pooling; else 0. name: as the user gave it."""
        is_left_out = num_tokens and self.pooling == self.checkpoint.pooling and self.checkpoint.leaves_prompt_out(name)
        return num_tokens if is_left_out else 0

    def recompute_layers(self) -> None:
        """In training, keep only the input of each transformer layer and recompute the rest in the backward pass, with the same random
        numbers.

        Saves memory for long sentences and large models, costs a second forward pass, changes no number. EncoderError if the model cannot.
        """
        if not self.model.supports_gradient_checkpointing:
            raise EncoderError(
                where=f"encoder {self.model.config.name_or_path}: runtime.recompute_layers",
                found=f"{typed(self.model)}, whose layers cannot be recomputed",
                expected="a model with gradient checkpointing in transformers",
                remedy="Set runtime.recompute_layers=false; runtime.micro_batch saves memory, too.",
            )
        self.model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": recomputed_within})

    def pass_in_step(self) -> None:
        """From now on, call a model that runs padded a fixed number of times for each batch, which changes only the last digits of results.

        Under ZeRO stage 3 ranks gather parameters together in each call, so a rank with one call more would wait for the others forever.
        """
        self._num_passes = PASSES_IN_STEP

    def watched_words(self, learner: nn.Module) -> WordRows | None:
        """Return the record, kept from now on, of the word embedding rows that each training pass reads.

        None: they are not trained, or another module of the learner shares the matrix, like the masked language modelling head.
        """
        words = cast(nn.Parameter, cast(nn.Embedding, self.model.get_input_embeddings()).weight)
        users = [module for module in learner.modules() if any(one is words for one in module.parameters(recurse=False))]
        self._word_rows = WordRows(words, padding=self._padding) if words.requires_grad and len(users) == 1 else None
        return self._word_rows

    def forward(self, tokens: TokenBatch, *, behind: int = 0) -> Tensor:
        """Return the embeddings (S, D) in float32, in the order of the sentences, not normalized.

        behind: the first so many tokens of each sentence, those of a prompt, are read and not pooled.
        """
        filled = self._filled(tokens)
        pooled = tokens.to(self.device) if behind else filled  # filler sentences may be shorter than the prompt
        embeddings_SD = pool(self._layers(filled), pooled, pooling=self.pooling, training=self.training, behind=behind)
        if pooled.num_sentences > tokens.num_sentences:
            embeddings_SD = embeddings_SD[: tokens.num_sentences]
        if self.head is not None and (self.training or POOLINGS[self.pooling].gives_dense):
            embeddings_SD = self.head(embeddings_SD).float()
        return embeddings_SD

    def token_states(self, tokens: TokenBatch) -> Tensor:
        """Return the last layer's states (T, D) of all tokens, in their order, with their graph, without pooling and head."""
        return self._layers(self._filled(tokens))[-1][: tokens.num_tokens]

    def _filled(self, tokens: TokenBatch) -> TokenBatch:
        """Return the batch on the encoder's device; a flat model gets filler sentences where few sizes are faster."""
        if self._word_rows is not None and self.training and torch.is_grad_enabled():
            self._word_rows.read(tokens.token_ids)
        tokens = tokens.to(self.device)
        return tokens.filled(rows_multiple(tokens.num_tokens, self.device)) if self.is_flat else tokens

    def _layers(self, tokens: TokenBatch) -> Sequence[Tensor]:
        every = POOLINGS[self.pooling].layers is not None
        if self.is_flat:
            return self._flat_layers(tokens, every=every)
        return padded_layers(self.model, tokens, pad_id=self._padding, every=every, num_passes=self._num_passes)

    @property
    def _padding(self) -> int:
        return self.tokenizer.pad_token_id or 0

    def _flat_layers(self, tokens: TokenBatch, *, every: bool) -> Sequence[Tensor]:
        config = self.model.config
        starts = tokens.boundaries[:-1].repeat_interleave(tokens.boundaries.diff(), output_size=tokens.num_tokens)
        positions = torch.arange(tokens.num_tokens, device=starts.device) - starts
        if self._family.positions == "table_behind_padding":
            positions += config.pad_token_id + 1
        output = self.model(
            input_ids=tokens.token_ids[None],
            position_ids=positions[None],
            segments=Segments(
                lengths=tokens.lengths,
                boundaries=tokens.boundaries,
                num_heads=config.num_attention_heads,
                head_width=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
                is_causal=self._is_causal,
            ),
            drophead=self.drophead,
            output_hidden_states=every,
            **self._without_cache,
        )
        # squeeze, not [0]: the gradient of a selection fills and copies a whole tensor
        return [layer.squeeze(0) for layer in (output.hidden_states if every else (output.last_hidden_state,))]

    def save(self, path: Path, *, base_model: str, language: Sequence[str] = ()) -> None:
        """Write a sentence-transformers folder with this encoder's test-time embeddings, of length 1 if `is_exported_normalized`; see
        write_folder.py.
        """
        with quiet():
            write_folder(
                path,
                model=self.model,
                pooler=self._unused_pooler[0],
                tokenizer=self.tokenizer,
                pooling=self.pooling,
                head=self.head,
                max_length=self.max_length,
                normalize=self.is_exported_normalized,
                base_model=base_model,
                language=language,
            )


def _check_has_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    num_embeddings = len(cast(nn.Embedding, model.get_input_embeddings()).weight)
    if len(tokenizer) > num_embeddings:
        raise EncoderError(
            where=f"encoder {folder}",
            found=f"a tokenizer of {len(tokenizer)} tokens and {num_embeddings} word embeddings",
            expected="an embedding for every token",
            remedy="The tokenizer belongs to another model: put the model's tokenizer files into the folder.",
        )


def _checked_length(max_length: int | None, longest: int, folder: Path) -> int:
    if max_length is None:
        return longest
    if 3 <= max_length <= longest:
        return max_length
    raise EncoderError(
        where=f"encoder {folder}: max_length",
        found=str(max_length),
        expected=f"3 to {longest} tokens, special ones included",
        remedy="Lower max_length, or use a checkpoint with more positions.",
    )


def _check_drophead(drophead: float, padded_reason: str | None, folder: Path) -> None:
    if drophead > 0.0 and padded_reason is not None:
        raise EncoderError(
            where=f"encoder {folder}: drophead",
            found=str(drophead),
            expected="0 for a model that runs padded",
            remedy=f"Set drophead to 0: {padded_reason}.",
        )


_PADDED_GROUP_COST = 4000.0  # squared tokens; a group costs one whole forward here, so groups are fewer than inside attention


def padded_layers(model: PreTrainedModel, tokens: TokenBatch, *, pad_id: int, every: bool, num_passes: int | None = None) -> list[Tensor]:
    """Return hidden states as flat (T, D) tensors, computed in padded groups of similar length.

    Places are computed on the host, to avoid waiting for a device; transformers itself waits where it checks a group's mask.
    every: return all layers, embeddings first, instead of the last one. num_passes: number of groups; None: the cheapest; a group without a
    sentence computes one and drops it.
    """
    device = tokens.token_ids.device
    lengths = np.asarray(tokens.lengths)
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    padded_ids = torch.cat([tokens.token_ids, tokens.token_ids.new_full((1,), pad_id)])
    groups, token_order = [], []
    for first, last in pairwise(_borders(lengths[order], num_passes)):
        members = order[first:last] if last > first else order[:1]
        column = np.arange(int(lengths[members[-1]]))
        inside = column < lengths[members][:, None]
        places = np.where(inside, starts[members][:, None] + column, tokens.num_tokens)  # the last one is padding
        token_ids = padded_ids.index_select(0, _there(places.ravel(), device)).view(places.shape)
        mask = _there(inside.astype(np.int64), device)
        output = model(input_ids=token_ids, attention_mask=mask, output_hidden_states=every)
        inside &= last > first
        real = _there(np.flatnonzero(inside), device)
        layers = output.hidden_states if every else (output.last_hidden_state,)
        groups.append([layer.flatten(0, 1).index_select(0, real) for layer in layers])
        token_order.append(places[inside])
    back = _there(inverse(np.concatenate(token_order)), device)
    return [torch.cat(layer).index_select(0, back) for layer in zip(*groups, strict=True)]


def _borders(sorted_lengths: np.ndarray, num_passes: int | None) -> list[int]:
    if num_passes is None:
        return group_borders(sorted_lengths, group_cost=_PADDED_GROUP_COST)
    return [len(sorted_lengths) * number // num_passes for number in range(num_passes + 1)]


def _there(values: np.ndarray, device: torch.device) -> Tensor:
    return sent_to(torch.from_numpy(values), device)
