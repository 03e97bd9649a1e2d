"""Mask tokens and train the head of masked language modelling (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from sentdist.errors import EncoderError
from sentdist.kernels.tensors import sent_to
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.gather import gather_rows, largest_share
from sentdist.learning.grad_cache import sum_over_micro_batches
from sentdist.learning.objective import Objective
from sentdist.learning.precision import autocast

MASKED_FRACTION = 0.8  # of the chosen tokens: they become [MASK]; half of the others become any token, the rest stay


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What masking needs of a tokenizer."""

    mask_id: int
    special_ids: tuple[int, ...]  # tokens that are never chosen
    num_tokens: int  # V

    @classmethod
    def of(cls, encoder: SentenceEncoder) -> Vocabulary:
        """Return the encoder's vocabulary; EncoderError if its tokenizer has no mask token."""
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token_id is None:
            raise EncoderError(
                where=f"encoder {encoder.model.config.name_or_path}: mlm",
                found="a tokenizer without a mask token",
                expected="a tokenizer for masked language modelling",
                remedy="Use another encoder, or leave the objective mlm out.",
            )
        return cls(mask_id=int(tokenizer.mask_token_id), special_ids=tuple(tokenizer.all_special_ids), num_tokens=len(tokenizer))


def masked(token_ids_T: Tensor, *, vocabulary: Vocabulary, fraction: float) -> tuple[Tensor, Tensor]:
    """Return the ids (T,) that the encoder sees, and (T,) bool: which tokens it has to guess.

    Each token that is not special is chosen with probability `fraction`.
    Of the chosen, 80 % become the mask token, 10 % a token drawn from the whole vocabulary, 10 % stay as they are.
    Drawn from torch's default generator of the ids' device, so that a resumed run draws the same.
    Source: Devlin et al. 2019 (arXiv 1810.04805), 3.1, as in transformers' collator and SimCSE's code.
    """
    special_T = torch.isin(token_ids_T, torch.tensor(vocabulary.special_ids, device=token_ids_T.device))
    chosen_T = (torch.rand(token_ids_T.shape, device=token_ids_T.device) < fraction) & ~special_T
    fate_T = torch.rand(token_ids_T.shape, device=token_ids_T.device)
    any_T = torch.randint(vocabulary.num_tokens, token_ids_T.shape, device=token_ids_T.device)
    seen_T = torch.where(chosen_T & (fate_T < MASKED_FRACTION), vocabulary.mask_id, token_ids_T)
    seen_T = torch.where(chosen_T & (fate_T >= (1 + MASKED_FRACTION) / 2), any_T, seen_T)
    return seen_T, chosen_T


class MaskedLMHead(nn.Module):
    """Map token states (K, D) to logits (K, V): dense, the encoder's activation, layer norm, the tied word embeddings and a bias.

    The decoder's matrix *is* the encoder's embedding matrix (Press & Wolf 2017), one parameter that both train.
    It belongs to a linear layer that is called, because ZeRO stage 3 gathers parameters by module.
    """

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        config = encoder.model.config
        words = cast(nn.Embedding, encoder.model.get_input_embeddings())
        num_tokens, width = words.weight.shape
        self.dense = nn.Linear(int(config.hidden_size), width)
        nn.init.normal_(self.dense.weight, std=encoder.initializer_range)
        nn.init.zeros_(self.dense.bias)
        self.activation = ACT2FN[getattr(config, "hidden_act", None) or getattr(config, "activation", "gelu")]
        self.norm = nn.LayerNorm(width, eps=getattr(config, "layer_norm_eps", 1e-12))
        self.decoder = nn.Linear(width, num_tokens, device="meta")  # the matrix is not made: it is the encoder's
        self.decoder.weight = words.weight
        self.decoder.bias = nn.Parameter(torch.zeros(num_tokens))
        self.decoder.register_state_dict_post_hook(_without_matrix)
        self.decoder.register_load_state_dict_pre_hook(_with_own_matrix)

    def forward(self, states_KD: Tensor) -> Tensor:
        logits_KV: Tensor = self.decoder(self.norm(self.activation(self.dense(states_KD))))
        return logits_KV


def _without_matrix(decoder: nn.Module, state: dict[str, Tensor], prefix: str, local_metadata: object) -> None:
    """Leave the tied matrix out of a state: the encoder's part has it, and a copy is as large as all layers of a small encoder."""
    del state[f"{prefix}weight"]


def _with_own_matrix(decoder: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Load a state without the tied matrix: keep the encoder's."""
    state.setdefault(f"{prefix}weight", cast(nn.Linear, decoder).weight.detach())


class MaskedLMLoss(nn.Module, Objective):
    """Masked language modelling on all sentences of a batch: nats, mean over the hidden tokens of all ranks.

    A copy of the batch's tokens, masked anew at each step, goes through the encoder in a second pass. It is an objective by itself
    (pre-training) or a term of a sum: SimCSE's auxiliary has weight 0.1 (Gao et al. 2021, arXiv 2104.08821) and masks both views again.
    The value returned is this rank's sum over hidden tokens, times the number of shares of its size in the batch, over the number of hidden
    tokens on all ranks: averaged over anchors it is the mean, however many tokens each rank hides; 0 where no rank hides one.

    Args:
        encoder: not registered as a submodule; EncoderError if its tokenizer has no mask token.
        loss: sum over the K hidden tokens, from their logits (K, V) and ids (K,).
        fraction: share of tokens that are chosen, in (0, 1).
        precision: of the second pass.
        micro_batch: sentences whose activations are held at a time; None: all (see grad_cache.py).
        hide: replaces `masked`, with the same signature.
    """

    reads_embeddings = False

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        fraction: float = 0.15,
        precision: str = "fp32",
        micro_batch: int | None = None,
        hide: Callable[..., tuple[Tensor, Tensor]] = masked,
    ) -> None:
        super().__init__()
        self._vocabulary = Vocabulary.of(encoder)
        self._encoder = (encoder,)  # in a tuple, so that torch does not count its parameters as the objective's
        self._loss, self._hide = loss, hide
        self.fraction, self.precision, self.micro_batch = fraction, precision, micro_batch
        self.head = MaskedLMHead(encoder)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Return the scalar loss from the sentences of `batch.tokens`; the embeddings are not read."""
        most = batch.num_columns * largest_share(batch.num_rows_of_all)
        loss, count = sum_over_micro_batches(self._sum_and_count, batch.tokens, micro_batch=self.micro_batch, most=most)
        return part_of_mean(loss, count, shares=batch.num_rows_of_all / batch.num_rows)

    def loss_of(self, tokens: TokenBatch, chosen_T: Tensor, token_ids_T: Tensor) -> Tensor:
        """Return the summed loss of guessing `token_ids_T` where `chosen_T`, from the masked `tokens`."""
        places_K = sent_to(chosen_T.nonzero().squeeze(1), self._encoder[0].device)
        with autocast(self.precision, places_K.device):
            logits_KV = self.head(self._encoder[0].token_states(tokens).index_select(0, places_K))
        return self._loss(logits_KV, sent_to(token_ids_T[chosen_T], places_K.device))

    def _sum_and_count(self, tokens: TokenBatch) -> Tensor:
        """Return (2,): summed loss and number of hidden tokens. A recomputed pass draws the same masks again."""
        seen_T, chosen_T = self._hide(tokens.token_ids, vocabulary=self._vocabulary, fraction=self.fraction)
        loss = self.loss_of(replace(tokens, token_ids=seen_T), chosen_T, tokens.token_ids)
        return torch.stack([loss, loss.new_full((), float(chosen_T.sum()))])


def part_of_mean(local_sum: Tensor, local_count: Tensor, *, shares: float) -> Tensor:
    """Return this rank's part of Σ sums / Σ counts over all ranks; the mean of the parts over anchors is the whole. 0 for no counts.

    shares: rows of the global batch over rows of this rank.
    """
    counts_W = gather_rows(local_count.detach()[None])
    return local_sum * (shares / counts_W.sum().clamp(min=1))
