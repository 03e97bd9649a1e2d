"""A layer of the BERT family as one operation: matrix products by torch, all between them by kernels of our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.activations import GELUActivation

from sentdist.learning.encoder.flat_attention import Segments, serve_short
from sentdist.learning.encoder.regularizers import head_scales
from sentdist.learning.kernels import calls
from sentdist.learning.kernels.lazy_triton import gpu_kernels
from sentdist.learning.kernels.values import Kernels, Mask, Normed, Sentences, States
from sentdist.learning.products import product

_LINEARS = (
    "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense",
)  # fmt: skip
_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
_DROPOUTS = ("attention.self.dropout", "attention.output.dropout", "output.dropout")
_ACTIVATION = "intermediate.intermediate_act_fn"
_DROPPED = attrgetter(*(f"{name}.p" for name in _DROPOUTS))
_OF_NORMS = attrgetter(*(f"{part}.{kind}" for part in _NORMS for kind in ("weight", "bias")))
_PARAMETERS = attrgetter(*(f"{part}.{kind}" for part in (*_LINEARS, *_NORMS) for kind in ("weight", "bias")))


def fuse_layers(model: nn.Module) -> None:
    """Let each layer of `model` that has BERT's parts compute as one operation among flat sentences.

    Names, parameters, value and gradient stay. Dropout draws other masks, by the kernels, since a mask that is drawn again need not be
    kept. Where weights are not in float32 or not whole, the machine has no kernels, or a sentence is too long for those of its GPU, a
    layer computes as before.
    """
    for layer in model.modules():
        if _has_parts_of_bert(layer):
            layer.__class__ = _fused(type(layer))  # type: ignore[arg-type]  # mypy: a class has no hash


@cache
def _fused(kind: type[nn.Module]) -> type[nn.Module]:
    """A layer of that kind that computes as one operation where it can. A class, not a function in the layer: transformers wraps the
    `forward` of each class of layers, and recomputes what is asked of it."""

    class FusedLayer(kind):  # type: ignore[misc, valid-type]
        def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            out = _forward(self, hidden_states, **kwargs)
            return super().forward(hidden_states, *args, **kwargs) if out is None else out

        def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:  # pickle finds no class that a function made
            return _empty, (kind,), self.__dict__

    return FusedLayer


def _empty(kind: type[nn.Module]) -> nn.Module:
    """A fused layer of that kind without its parts, which pickle fills in."""
    fused = _fused(kind)  # type: ignore[arg-type]  # as above
    return fused.__new__(fused)


def _has_parts_of_bert(layer: nn.Module) -> bool:
    """Whether it is a layer of an encoder, with norms behind its sums and a GELU by the error function, and has no other part."""
    leaves = {name: part for name, part in layer.named_modules() if not any(part.children())}
    activation = leaves.pop(_ACTIVATION, None)
    kinds = dict.fromkeys(_LINEARS, nn.Linear) | dict.fromkeys(_NORMS, nn.LayerNorm) | dict.fromkeys(_DROPOUTS, nn.Dropout)
    return (
        leaves.keys() == kinds.keys()
        and all(isinstance(part, kinds[name]) for name, part in leaves.items())
        and isinstance(activation, GELUActivation)
        and activation.act is nn.functional.gelu
    )


def _forward(
    layer: nn.Module, hidden_states: Tensor, *, segments: Segments | None = None, drophead: float = 0.0, **_: object
) -> Tensor | None:
    """(1, T, W) to (1, T, W) float32; None where no kernels serve."""
    learns = torch.is_grad_enabled()
    # Without a derivative the products are those of the layer's own parts, in whose place packed ones may stand.
    parameters = _PARAMETERS(layer) if learns else _OF_NORMS(layer)
    kernels = None if segments is None else _kernels(layer, segments, (hidden_states, *parameters), drophead=drophead)
    if segments is None or kernels is None:
        return None
    asked = _asked(layer, segments, kernels, hidden_states.device, drophead=drophead)
    hidden = hidden_states.squeeze(0).contiguous()
    if not learns:
        return _infer(layer, hidden, asked).unsqueeze(0)
    with torch.autocast(hidden.device.type, enabled=False):
        out: Tensor = _Layer.apply(hidden, asked, *parameters)
    return out.unsqueeze(0)


def _kernels(layer: Any, segments: Segments, tensors: Sequence[Tensor], *, drophead: float) -> Kernels | None:
    """Those that serve a layer's input and weights and these sentences, on the device where they are."""
    device = tensors[0].device
    dtype = _product_type(device)
    if device.type == "cpu":
        return calls if calls.serve(*tensors, between=dtype) else None
    drops, scales = layer.training and layer.attention.self.dropout.p > 0.0, layer.training and drophead > 0.0
    adds, width = torch.is_grad_enabled(), layer.attention.self.attention_head_size  # else the layer's own parts have added their biases
    if not serve_short(segments, device, dtype, width, drops=drops, adds=adds, scales=scales):
        return None
    return gpu_kernels() if gpu_kernels().serve(*tensors, between=dtype) else None


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a layer computes, beside its weights. dtype: of the products. masks: of attention, of its output, of the layer's output."""

    kernels: Kernels
    sentences: Sentences
    dtype: torch.dtype
    masks: tuple[Mask | None, ...]
    epsilons: tuple[float, float]


def _asked(layer: Any, segments: Segments, kernels: Kernels, device: torch.device, *, drophead: float) -> _Asked:
    """Draw what the layer drops, from the device's default generator: a recomputed pass draws it again."""
    heads = segments.num_heads
    dropouts = _DROPPED(layer) if layer.training else (0.0,) * len(_DROPOUTS)
    masks = kernels.draw_masks(dropouts, device)
    scales = None
    if drophead > 0.0 and layer.training:
        scales = head_scales(segments.num_sentences, heads, drophead, device=device)
    attention = layer.attention.self
    return _Asked(
        kernels=kernels,
        sentences=Sentences(
            boundaries=segments.boundaries, heads=heads, head_width=attention.attention_head_size, scale=attention.scaling, head_scales=scales,
            launches=() if kernels is calls else segments.launches,
        ),
        dtype=_product_type(device),
        masks=masks,
        epsilons=(layer.attention.output.LayerNorm.eps, layer.output.LayerNorm.eps),
    )  # fmt: skip


def _product_type(device: torch.device) -> torch.dtype:
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32


def _infer(layer: Any, hidden: Tensor, asked: _Asked) -> Tensor:
    """(T, W) to (T, W) float32, without what a derivative needs. Its products are the layer's own parts', which may be packed ones."""
    inside, outside = layer.attention, layer.output
    entered = hidden.to(asked.dtype)
    states = States(inside.self.query(entered), inside.self.key(entered), inside.self.value(entered))
    context, _ = asked.kernels.attention(states, asked.sentences, asked.masks[0], keep=False)
    middle = _normed(asked.kernels, inside.output, context, asked.masks[1], hidden)
    return _normed(asked.kernels, outside, layer.intermediate(middle.product_ready), asked.masks[2], middle.out).out


def _normed(kernels: Kernels, part: Any, entered: Tensor, mask: Mask | None, residual: Tensor) -> Normed:
    norm = part.LayerNorm
    return kernels.add_norm(part.dense(entered), None, mask, residual, norm.weight, norm.bias, epsilon=norm.eps, keep=False)


class _Weights(NamedTuple):
    """A layer's parameters, in the order of _LINEARS and _NORMS."""

    query: Tensor
    query_bias: Tensor
    key: Tensor
    key_bias: Tensor
    value: Tensor
    value_bias: Tensor
    context: Tensor
    context_bias: Tensor
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor
    middle_norm: Tensor
    middle_shift: Tensor
    last_norm: Tensor
    last_shift: Tensor


class _Kept(NamedTuple):
    """What the derivative reads: tensors of T rows, in the type of the products but for those of the norms, and all matrices in that type.

    GELU's output and the first norm's are not among them: the derivative makes them again while it passes over what they are made from.
    """

    entered: Tensor
    projection: Tensor
    context_matrix: Tensor
    inner_matrix: Tensor
    outer_matrix: Tensor
    states: Tensor
    context: Tensor
    statistics: Tensor | None
    middle: Tensor
    middle_inverse: Tensor
    inner: Tensor
    last: Tensor
    last_inverse: Tensor


def _compute(hidden: Tensor, asked: _Asked, weights: _Weights) -> tuple[Tensor, _Kept]:
    """(T, W) float32 to the layer's output, (T, W) float32, and what the derivative reads."""
    kernels, dtype = asked.kernels, asked.dtype
    entered = hidden.to(dtype)
    projection = torch.cat([weights.query, weights.key, weights.value]).to(dtype)
    context_matrix, inner_matrix, outer_matrix = (one.to(dtype) for one in (weights.context, weights.inner, weights.outer))
    states = product(entered, projection.t())
    context, statistics = kernels.attention(_split(states, weights), asked.sentences, asked.masks[0], keep=True)
    middle = kernels.add_norm(
        product(context, context_matrix.t()), weights.context_bias, asked.masks[1], hidden, weights.middle_norm, weights.middle_shift,
        epsilon=asked.epsilons[0], keep=True,
    )  # fmt: skip
    inner = product(middle.product_ready, inner_matrix.t())
    activated = kernels.gelu(inner, weights.inner_bias)
    last = kernels.add_norm(
        product(activated, outer_matrix.t()), weights.outer_bias, asked.masks[2], middle.out, weights.last_norm, weights.last_shift,
        epsilon=asked.epsilons[1], keep=True,
    )  # fmt: skip
    assert middle.for_derivative is not None and last.for_derivative is not None
    kept = _Kept(
        entered, projection, context_matrix, inner_matrix, outer_matrix, states, context, statistics, *middle.for_derivative, inner,
        *last.for_derivative,
    )  # fmt: skip
    return last.out, kept


class _Layer(torch.autograd.Function):
    """`_compute` with its derivative."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, asked: _Asked, *parameters: Tensor) -> Tensor:
        out, kept = _compute(hidden, asked, _Weights(*parameters))
        ctx.save_for_backward(*parameters, *kept)
        ctx.asked = asked
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        asked, saved = ctx.asked, ctx.saved_tensors  # which may be asked for once
        kernels, dtype = asked.kernels, asked.dtype
        weights, kept = _Weights(*saved[: len(_Weights._fields)]), _Kept(*saved[len(_Weights._fields) :])
        needed: Any = _Weights(*ctx.needs_input_grad[2:])
        last = kernels.add_norm_backward(
            grad.contiguous(), None, (kept.last, kept.last_inverse), weights.last_norm, asked.masks[2], dtype=dtype
        )  # fmt: skip
        to_inner_product = product(last.product, kept.outer_matrix)
        activated, to_inner_bias = kernels.gelu_backward(kept.inner, weights.inner_bias, to_inner_product)
        to_outer = kernels.weight_grad(last.product, activated) if needed.outer else None
        del activated
        middle = kernels.add_norm_backward(
            last.residual, product(to_inner_product, kept.inner_matrix), (kept.middle, kept.middle_inverse), weights.middle_norm, asked.masks[1],
            dtype=dtype, shift=weights.middle_shift,
        )  # fmt: skip
        to_inner = kernels.weight_grad(to_inner_product, middle.again) if needed.inner else None
        to_context = kernels.weight_grad(middle.product, kept.context) if needed.context else None
        to_states = torch.empty_like(kept.states)
        kernels.attention_backward(
            _split(kept.states, weights), asked.sentences, asked.masks[0], grad=product(middle.product, kept.context_matrix),
            statistics=kept.statistics, to=_thirds(to_states),
        )  # fmt: skip
        in_one = needed.query or needed.key or needed.value
        to_query, to_key, to_value = kernels.weight_grad(to_states, kept.entered).chunk(3) if in_one else (None, None, None)
        to_query_bias, to_key_bias, to_value_bias = kernels.column_sums(to_states).chunk(3)
        to_hidden = kernels.add_product(middle.residual, to_states, kept.projection)
        of_weights = (  # in the order of _Weights
            to_query, to_query_bias, to_key, to_key_bias, to_value, to_value_bias, to_context, middle.bias, to_inner, to_inner_bias,
            to_outer, last.bias, middle.weight, middle.shift, last.weight, last.shift,
        )  # fmt: skip
        return to_hidden, None, *of_weights


def _split(states: Tensor, weights: _Weights) -> States:
    return States(*_thirds(states), (weights.query_bias, weights.key_bias, weights.value_bias))


def _thirds(states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = states.chunk(3, dim=1)
    return query, key, value
