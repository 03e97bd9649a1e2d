"""A layer of the BERT family as one operation: matrix products by torch, everything between them by our kernels."""

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

from sentdist.kernels import cpp_kernels
from sentdist.kernels.flat_attention import Segments, load_triton_kernels, longest_supported
from sentdist.kernels.interface import (
    AddNormOutput,
    AttentionLayout,
    DropoutMask,
    Kernels,
    QueryKeyValue,
    Triple,
)
from sentdist.kernels.tensors import head_scales, product

_BEFORE_GELU, _ACTIVATION = "intermediate.dense", "intermediate.intermediate_act_fn"
_NUM_DROPOUTS = 3


class _LayerParts(NamedTuple):
    """Names of the parts of a BERT-like layer in a family.

    kinds: name -> class of all that have parameters or dropout. attention: the module that attends. products: of queries, keys, values, the
    attention's output and the layer's; the one before GELU is in the module `intermediate`. norms: two, norm_parameters: of both.
    probabilities: of dropout, in the order of `_LayerSettings`.
    """

    kinds: dict[str, type[nn.Module]]
    attention: attrgetter[Any]
    products: attrgetter[tuple[Any, ...]]
    norms: attrgetter[tuple[Any, ...]]
    probabilities: attrgetter[tuple[float, ...]]
    norm_parameters: attrgetter[tuple[Tensor, ...]]
    parameters: attrgetter[tuple[Tensor, ...]]


def _parts(attention: str, *, linears: Sequence[str], norms: Sequence[str], dropouts: Sequence[str]) -> _LayerParts:
    def parameters_of(modules: Sequence[str]) -> list[str]:
        return [f"{module}.{kind}" for module in modules for kind in ("weight", "bias")]

    return _LayerParts(
        kinds=dict.fromkeys(linears, nn.Linear) | dict.fromkeys(norms, nn.LayerNorm) | dict.fromkeys(dropouts, nn.Dropout),
        attention=attrgetter(attention),
        products=attrgetter(*(linear for linear in linears if linear != _BEFORE_GELU)),
        norms=attrgetter(*norms),
        probabilities=attrgetter(*(f"{dropout}.p" for dropout in dropouts)),
        norm_parameters=attrgetter(*parameters_of(norms)),
        parameters=attrgetter(*parameters_of([*linears, *norms])),
    )


_PARTS = {
    "BERT": _parts(
        "attention.self",
        linears=[
            *(f"attention.self.{name}" for name in ("query", "key", "value")),
            "attention.output.dense", _BEFORE_GELU, "output.dense",
        ],
        norms=["attention.output.LayerNorm", "output.LayerNorm"],
        dropouts=["attention.self.dropout", "attention.output.dropout", "output.dropout"],
    ),
    "MPNet": _parts(
        "attention.attn",
        linears=[*(f"attention.attn.{name}" for name in "qkvo"), _BEFORE_GELU, "output.dense"],
        norms=["attention.LayerNorm", "output.LayerNorm"],
        dropouts=["attention.attn.dropout", "attention.dropout", "output.dropout"],
    ),
}  # fmt: skip


def fuse_layers(model: nn.Module) -> None:
    """Let each layer of `model` with BERT's parts compute as one operation on flat sentences.

    Names, parameters, value and gradient are unchanged. Dropout draws other masks, in the kernels, since redrawn masks need not be
    stored. A layer computes as before if weights are not float32 or not whole, the machine has no kernels, or a sentence is too long for
    those
    of its GPU.
    """
    for layer in model.modules():
        family = next((family for family, parts in _PARTS.items() if _has(layer, parts)), None)
        if family is not None:
            layer.__class__ = _fused(type(layer), family)  # type: ignore[arg-type]  # mypy: a class has no hash


@cache
def _fused(kind: type[nn.Module], family: str) -> type[nn.Module]:
    """Return a subclass, not a `forward` in the layer, since transformers wraps the `forward` of layer classes for recomputation."""
    parts = _PARTS[family]

    class FusedLayer(kind):  # type: ignore[misc, valid-type]
        def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            out = _forward(self, parts, hidden_states, **kwargs)
            return super().forward(hidden_states, *args, **kwargs) if out is None else out

        def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:  # pickle finds no class that a function made
            return _empty, (kind, family), self.__dict__

    return FusedLayer


def _empty(kind: type[nn.Module], family: str) -> nn.Module:
    """Return a fused layer without its parts, which pickle fills in."""
    fused = _fused(kind, family)  # type: ignore[arg-type]  # as above
    return fused.__new__(fused)


def _has(layer: nn.Module, parts: _LayerParts) -> bool:
    """Whether it is an encoder layer with norms after its sums, exact GELU, and no other part."""
    leaves = {name: part for name, part in layer.named_modules() if not any(part.children())}
    activation = leaves.pop(_ACTIVATION, None)
    return (
        leaves.keys() == parts.kinds.keys()
        and all(isinstance(part, parts.kinds[name]) for name, part in leaves.items())
        and isinstance(activation, GELUActivation)
        and activation.act is nn.functional.gelu
    )


def _forward(
    layer: nn.Module, parts: _LayerParts, hidden_states: Tensor, *, segments: Segments | None = None, drophead: float = 0.0, **_: object
) -> Tensor | None:
    """Map (1, T, W) to (1, T, W) float32; None if no kernels support it."""
    has_backward = torch.is_grad_enabled()
    # Without a derivative the products are the layer's own modules, which packed ones may replace.
    parameters = parts.parameters(layer) if has_backward else parts.norm_parameters(layer)
    kernels = None if segments is None else _supporting_kernels(layer, parts, segments, (hidden_states, *parameters))
    if segments is None or kernels is None:
        return None
    settings = _layer_settings(layer, parts, segments, kernels, hidden_states.device, drophead=drophead)
    hidden = hidden_states.squeeze(0).contiguous()
    if not has_backward:
        return _infer(layer, parts, hidden, settings).unsqueeze(0)
    with torch.autocast(hidden.device.type, enabled=False):
        out: Tensor = _Layer.apply(hidden, segments.distances, settings, *parameters)
    return out.unsqueeze(0)


def _supporting_kernels(layer: nn.Module, parts: _LayerParts, segments: Segments, tensors: Sequence[Tensor]) -> Kernels | None:
    """Return the kernels that support a layer's input and weights and these sentences on their device, else None."""
    device = tensors[0].device
    dtype = _product_dtype(device)
    if device.type == "cpu":
        return cpp_kernels if cpp_kernels.supports_layer(*tensors, product_dtype=dtype) else None
    if segments.longest > longest_supported(device, dtype, parts.attention(layer).attention_head_size):
        return None
    return load_triton_kernels() if load_triton_kernels().supports_layer(*tensors, product_dtype=dtype) else None


@dataclass(frozen=True, kw_only=True)
class _LayerSettings:
    """What a layer computes with besides its weights. dropout_masks: of attention, of its output, of the layer's output. epsilons: of its
    norms.
    """

    kernels: Kernels
    layout: AttentionLayout
    product_dtype: torch.dtype
    dropout_masks: tuple[DropoutMask | None, ...]
    epsilons: tuple[float, float]


def _layer_settings(
    layer: nn.Module, parts: _LayerParts, segments: Segments, kernels: Kernels, device: torch.device, *, drophead: float
) -> _LayerSettings:
    """Draw dropout masks from the device's default generator: a recomputed pass draws them again."""
    num_heads = segments.num_heads
    probabilities = parts.probabilities(layer) if layer.training else (0.0,) * _NUM_DROPOUTS
    dropout_masks = kernels.draw_dropout_masks(probabilities, device)
    scales = None
    if drophead > 0.0 and layer.training:
        scales = head_scales(segments.num_sentences, num_heads, drophead, device=device)
    attention, (attention_norm, output_norm) = parts.attention(layer), parts.norms(layer)
    return _LayerSettings(
        kernels=kernels,
        layout=AttentionLayout(
            boundaries=segments.boundaries, num_heads=num_heads, head_width=attention.attention_head_size, scale=attention.scaling,
            head_scales=scales, distances=segments.distances, launches=() if kernels is cpp_kernels else segments.launches,
        ),
        product_dtype=_product_dtype(device),
        dropout_masks=dropout_masks,
        epsilons=(attention_norm.eps, output_norm.eps),
    )  # fmt: skip


def _product_dtype(device: torch.device) -> torch.dtype:
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32


def _infer(layer: Any, parts: _LayerParts, hidden: Tensor, settings: _LayerSettings) -> Tensor:
    """Map (T, W) to (T, W) float32 without saving anything for a derivative. Products are the layer's own modules, which may be packed."""
    query, key, value, attention_output, output = parts.products(layer)
    attention_norm, output_norm = parts.norms(layer)
    attention_dropout, middle_dropout, output_dropout = settings.dropout_masks
    inputs = hidden.to(settings.product_dtype)
    context, _ = settings.kernels.attention(
        QueryKeyValue(query(inputs), key(inputs), value(inputs)), settings.layout, attention_dropout, save_for_backward=False
    )  # fmt: skip
    middle = _add_norm(settings.kernels, attention_output(context), attention_norm, middle_dropout, hidden)
    projected = output(layer.intermediate(middle.product_input))
    return _add_norm(settings.kernels, projected, output_norm, output_dropout, middle.out).out


def _add_norm(kernels: Kernels, projected: Tensor, norm: Any, dropout_mask: DropoutMask | None, residual: Tensor) -> AddNormOutput:
    """projected: by a linear layer, which has added its bias."""
    return kernels.add_norm(projected, None, dropout_mask, residual, norm.weight, norm.bias, epsilon=norm.eps, save_for_backward=False)


class _Parameters(NamedTuple):
    """A layer's weights and biases, in the order of _LINEARS and _NORMS."""

    query: Tensor
    query_bias: Tensor
    key: Tensor
    key_bias: Tensor
    value: Tensor
    value_bias: Tensor
    attention_output: Tensor
    attention_output_bias: Tensor
    intermediate: Tensor
    intermediate_bias: Tensor
    output: Tensor
    output_bias: Tensor
    attention_norm: Tensor
    attention_norm_bias: Tensor
    output_norm: Tensor
    output_norm_bias: Tensor


class _Saved(NamedTuple):
    """What the derivative reads: tensors of T rows in the type of the products, except those of the norms, and all matrices in that type.

    GELU's output and the first norm's are recomputed from their inputs.
    """

    inputs: Tensor
    qkv_matrix: Tensor
    attention_output_matrix: Tensor
    intermediate_matrix: Tensor
    output_matrix: Tensor
    qkv: Tensor
    context: Tensor
    statistics: Tensor | None
    attention_normalized: Tensor
    attention_inverse_std: Tensor
    intermediate: Tensor
    output_normalized: Tensor
    output_inverse_std: Tensor


def _compute(hidden: Tensor, settings: _LayerSettings, parameters: _Parameters) -> tuple[Tensor, _Saved]:
    """Map (T, W) float32 to the layer's output, (T, W) float32, and what the derivative reads."""
    kernels, dtype, (attention_dropout, middle_dropout, output_dropout) = settings.kernels, settings.product_dtype, settings.dropout_masks
    inputs = hidden.to(dtype)
    qkv_matrix = torch.cat([parameters.query, parameters.key, parameters.value]).to(dtype)
    matrices = (parameters.attention_output, parameters.intermediate, parameters.output)
    attention_output_matrix, intermediate_matrix, output_matrix = (one.to(dtype) for one in matrices)
    qkv = product(inputs, qkv_matrix.t())
    context, statistics = kernels.attention(_split_qkv(qkv, parameters), settings.layout, attention_dropout, save_for_backward=True)
    middle: AddNormOutput = kernels.add_norm(
        product(context, attention_output_matrix.t()), parameters.attention_output_bias, middle_dropout, hidden, parameters.attention_norm,
        parameters.attention_norm_bias, epsilon=settings.epsilons[0], save_for_backward=True,
    )  # fmt: skip
    intermediate = product(middle.product_input, intermediate_matrix.t())
    activated = kernels.gelu(intermediate, parameters.intermediate_bias)
    last: AddNormOutput = kernels.add_norm(
        product(activated, output_matrix.t()), parameters.output_bias, output_dropout, middle.out, parameters.output_norm,
        parameters.output_norm_bias, epsilon=settings.epsilons[1], save_for_backward=True,
    )  # fmt: skip
    assert middle.saved_for_backward is not None and last.saved_for_backward is not None
    saved = _Saved(
        inputs, qkv_matrix, attention_output_matrix, intermediate_matrix, output_matrix, qkv, context, statistics,
        *middle.saved_for_backward,
        intermediate, *last.saved_for_backward,
    )  # fmt: skip
    return last.out, saved


class _Layer(torch.autograd.Function):
    """`_compute` with its derivative."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, distances: Tensor | None, settings: _LayerSettings, *parameters: Tensor) -> Tensor:
        """distances: the layout's, given once more for their gradient."""
        out, saved = _compute(hidden, settings, _Parameters(*parameters))
        ctx.save_for_backward(*parameters, *saved)
        ctx.settings = settings
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        settings, tensors = ctx.settings, ctx.saved_tensors  # which may be asked for once
        kernels, dtype, (attention_dropout, middle_dropout, output_dropout) = (
            settings.kernels,
            settings.product_dtype,
            settings.dropout_masks,
        )
        parameters, saved = _Parameters(*tensors[: len(_Parameters._fields)]), _Saved(*tensors[len(_Parameters._fields) :])
        needed: Any = _Parameters(*ctx.needs_input_grad[3:])
        last = kernels.add_norm_backward(
            grad.contiguous(), None, (saved.output_normalized, saved.output_inverse_std), parameters.output_norm, output_dropout,
            dtype=dtype
        )  # fmt: skip
        grad_gelu = product(last.product, saved.output_matrix)  # of GELU's output, then of its input
        activated, grad_intermediate_bias = kernels.gelu_backward(saved.intermediate, parameters.intermediate_bias, grad_gelu)
        grad_output = kernels.weight_grad(last.product, activated) if needed.output else None
        del activated
        middle = kernels.add_norm_backward(
            last.residual, product(grad_gelu, saved.intermediate_matrix), (saved.attention_normalized, saved.attention_inverse_std),
            parameters.attention_norm, middle_dropout, dtype=dtype, norm_bias=parameters.attention_norm_bias,
        )  # fmt: skip
        grad_intermediate = kernels.weight_grad(grad_gelu, middle.recomputed) if needed.intermediate else None
        grad_attention_output = kernels.weight_grad(middle.product, saved.context) if needed.attention_output else None
        grad_qkv = torch.empty_like(saved.qkv)
        grad_distances = kernels.attention_backward(
            _split_qkv(saved.qkv, parameters), settings.layout, attention_dropout,
            grad=product(middle.product, saved.attention_output_matrix),
            statistics=saved.statistics, out=_thirds(grad_qkv),
        )  # fmt: skip
        needs_weights = needed.query or needed.key or needed.value
        grad_query, grad_key, grad_value = kernels.weight_grad(grad_qkv, saved.inputs).chunk(3) if needs_weights else (None, None, None)
        grad_query_bias, grad_key_bias, grad_value_bias = kernels.column_sums(grad_qkv).chunk(3)
        grad_hidden = kernels.addmm(middle.residual, grad_qkv, saved.qkv_matrix)
        grad_parameters = (  # in the order of _Parameters
            grad_query, grad_query_bias, grad_key, grad_key_bias, grad_value, grad_value_bias, grad_attention_output, middle.bias,
            grad_intermediate, grad_intermediate_bias, grad_output, last.bias, middle.norm_weight, middle.norm_bias, last.norm_weight,
            last.norm_bias,
        )  # fmt: skip
        return grad_hidden, grad_distances, None, *grad_parameters


def _split_qkv(qkv: Tensor, parameters: _Parameters) -> QueryKeyValue:
    return QueryKeyValue(*_thirds(qkv), (parameters.query_bias, parameters.key_bias, parameters.value_bias))


def _thirds(qkv: Tensor) -> Triple:
    """Return the columns of queries, keys and values."""
    query, key, value = qkv.chunk(3, dim=1)
    return query, key, value
