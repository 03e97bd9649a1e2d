"""Embed many sentences quickly: batches of similar length under a token budget, packed weights on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from sentdist.errors import ResourceError
from sentdist.kernels.tensors import has_bfloat16
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch, collate
from sentdist.learning.precision import LARGEST_FP32_ERROR, autocast, product_error
from sentdist.learning.prefetch import begin_to_host, made_ahead

_PRODUCT_AND_GELU = {"dense", "intermediate_act_fn"}  # parts with a norm, too, like RoBERTa-PreLayerNorm's, compute more
_TOKENS_AT_ONCE = 4096  # that the layout is optimized for; it works for any number


@contextmanager
def packed_linears(model: nn.Module, precision: str) -> Iterator[None]:
    """Let a model's linear layers compute from packed copies of their weights; for inference, with constant weights.

    A sixth less time for MiniLM on AMD EPYC, in fp32 and bf16.
    Layers are unchanged on other devices, where weights are sharded (ZeRO-3),
    and where this build of torch does not pack or not exactly. The model's own layers return at the end.
    """
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    kept: list[tuple[nn.Module, str, nn.Module]] = []
    try:
        if _packs_exactly(torch.get_float32_matmul_precision()):
            for parent, name, packed in list(_replacements(model, dtype)):
                kept.append((parent, name, parent.get_submodule(name)))
                parent._modules[name] = packed
        yield
    finally:
        for parent, name, child in kept:
            parent._modules[name] = child


class _PackedLinear(nn.Module):
    """x Wᵀ + b, optionally followed by GELU."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, gelu: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.computed_in = torch.float32 if dtype == torch.bfloat16 and not has_bfloat16() else dtype
        rounded = weight.detach().to(dtype).to(self.computed_in)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(rounded, _TOKENS_AT_ONCE)
        self.bias = None if bias is None else bias.detach().to(dtype).to(self.computed_in)
        self.pointwise: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")

    def forward(self, states: Tensor) -> Tensor:
        """Map (…, inner) to (…, width), in the precision of the packed weights."""
        rounded = states.to(self.dtype).to(self.computed_in)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rounded, self.packed, self.bias, *self.pointwise)
        return product.to(self.dtype)


def _replacements(parent: nn.Module, dtype: torch.dtype) -> Iterator[tuple[nn.Module, str, _PackedLinear]]:
    """Yield the replacements of children, a product with its GELU at once, so that a forward in another thread is consistent."""
    for name, child in parent.named_children():
        dense = getattr(child, "dense", None)
        if _is_whole(child):
            yield parent, name, _PackedLinear(child.weight, child.bias, dtype)
        elif child._modules.keys() == _PRODUCT_AND_GELU and _is_whole(dense) and _is_exact_gelu(child.intermediate_act_fn):
            yield parent, name, _PackedLinear(dense.weight, dense.bias, dtype, gelu=True)
        else:
            yield from _replacements(child, dtype)


def _is_whole(module: object) -> TypeGuard[nn.Linear]:
    """Whether it is exactly a linear layer with all its weights in float32 on this machine's processor."""
    if type(module) is not nn.Linear:
        return False
    weight = module.weight
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.shape == (module.out_features, module.in_features)


def _is_exact_gelu(activation: object) -> bool:
    return isinstance(activation, GELUActivation) and activation.act is nn.functional.gelu


@cache
def _packs_exactly(matmul_precision: str) -> bool:
    """Whether packed float32 products exist here and are exact, under a setting of torch's that may allow others."""

    def product(left: Tensor, right: Tensor) -> Tensor:
        result: Tensor = _PackedLinear(right.T.contiguous(), None, torch.float32)(left)
        return result

    try:
        with torch.inference_mode():
            return product_error(product) <= LARGEST_FP32_ERROR
    except (AttributeError, NotImplementedError, RuntimeError):  # a build of torch without oneDNN, or one that calls it otherwise
        return False


_SENTENCES_AT_ONCE = 16_384  # tokenized and sorted together: bounds memory, and sorting more gains nothing
_SENTENCES_WORTH_PACKING = 256  # packing a model's weights takes the time of encoding ten
# Of a forward. On a CPU 2k to 4k are fastest (more exceeds its cache); a GPU computes 4k of a small model in no time.
TOKENS_ON_CPU, TOKENS_ON_GPU = 4_096, 32_768


def encode(
    encoder: SentenceEncoder,
    sentences: Sequence[str],
    *,
    max_length: int | None = None,
    tokens_per_batch: int | None = None,
    precision: str = "fp32",
    on_progress: Callable[[int], None] | None = None,
    on_tokens: Callable[[TokenBatch, Sequence[str]], None] | None = None,
    behind: int = 0,
) -> np.ndarray:
    """Return the test-time embeddings (S, D) float32 of S sentences, in their order, not normalized.

    A GPU never waits for the host: batches are made in a thread meanwhile, and embeddings are read one forward late.

    Args:
        tokens_per_batch: budget of a forward; None: `tokens_at_once` of the encoder's device.
        precision: fp32 (or tf32, which the process sets, see precision.py), or bf16: bfloat16 products over the float32 weights.
        on_progress: called with the number of sentences done, after each forward.
        on_tokens: called with each part of the sentences and its tokens.
        behind: tokens at the beginning of each sentence that are not pooled, see `SentenceEncoder.forward`.
    """
    budget = tokens_at_once(encoder.device) if tokens_per_batch is None else tokens_per_batch
    if budget < 1:
        raise ResourceError(
            where="encode: tokens_per_batch", found=str(budget), expected="at least 1 token", remedy="2048 to 4096 suit a CPU."
        )
    on_gpu = encoder.device.type == "cuda"

    def batches() -> Iterator[tuple[np.ndarray, TokenBatch]]:
        for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
            part = sentences[start : start + _SENTENCES_AT_ONCE]
            chunk = encoder.tokenize(part, max_length=max_length)
            if on_tokens is not None:
                on_tokens(chunk, part)
            for rows, tokens in length_sorted(chunk, tokens_per_batch=budget):
                yield start + rows, _pinned(tokens, encoder.device) if on_gpu else tokens

    embeddings_SD, num_done = np.empty((len(sentences), encoder.width), dtype=np.float32), 0
    was_training = encoder.training
    encoder.eval()
    try:
        packed = packed_linears(encoder.model, precision) if len(sentences) >= _SENTENCES_WORTH_PACKING else nullcontext()
        ahead = made_ahead(batches) if on_gpu else nullcontext(batches())
        with torch.inference_mode(), autocast(precision, encoder.device), packed, ahead as made:
            for rows, embeddings in _read_late(
                (rows, encoder(tokens, behind=behind) if behind else encoder(tokens)) for rows, tokens in made
            ):
                embeddings_SD[rows] = embeddings
                num_done += len(rows)
                if on_progress is not None:
                    on_progress(num_done)
    finally:
        encoder.train(was_training)
    return embeddings_SD


def tokens_at_once(device: torch.device) -> int:
    """Return the default number of tokens of a forward without gradients on this device."""
    return TOKENS_ON_GPU if device.type == "cuda" else TOKENS_ON_CPU


def _pinned(tokens: TokenBatch, device: torch.device) -> TokenBatch:
    """Pin the tokens for that GPU; a thread's default device is the first GPU, where pinning would create a context."""
    with torch.cuda.device(device):
        return tokens.pinned()


def _read_late(forwards: Iterator[tuple[np.ndarray, Tensor]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each forward's result on the host once the next one is launched, so that a GPU has work during the copy."""
    before: tuple[np.ndarray, Callable[[], np.ndarray]] | None = None
    for rows, embeddings in forwards:
        launched = rows, _to_host(embeddings)
        if before is not None:
            yield before[0], before[1]()
        before = launched
    if before is not None:
        yield before[0], before[1]()


def _to_host(embeddings: Tensor) -> Callable[[], np.ndarray]:
    """Start the copy; the call waits for this copy only."""
    arrived = begin_to_host(embeddings)
    return lambda: arrived().numpy()


def length_sorted(tokens: TokenBatch, *, tokens_per_batch: int) -> Iterator[tuple[np.ndarray, TokenBatch]]:
    """Cut a TokenBatch into batches of similar length with at most `tokens_per_batch` tokens (at least one sentence), with their rows."""
    lengths = np.asarray(tokens.lengths)
    starts = np.cumsum(lengths) - lengths
    token_ids = tokens.token_ids.numpy()
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        filled = np.cumsum(lengths[order[first : first + tokens_per_batch]])
        last = first + max(1, int(np.searchsorted(filled, tokens_per_batch, side="right")))
        rows = order[first:last]
        yield rows, collate([token_ids[starts[row] : starts[row] + lengths[row]] for row in rows])
        first = last
