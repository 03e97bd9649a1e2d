"""Run as a program where Triton interprets its kernels (TRITON_INTERPRET=1): those of a GPU beside what a CPU computes.

Prints a line of JSON: how far values and gradients are off, how far the masks of both passes differ, what the masks do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from sentdist.kernels import cpp_kernels, flat_attention, longest_tile, tensors, triton_attention, triton_kernels
from sentdist.kernels.flat_attention import compiled_attention
from sentdist.kernels.interface import AttentionLayout, QueryKeyValue
from tests.support.attended import BANDS, MASKED, Attended, attended, off_by_masks

LENGTHS = (1, 16, 7, 64, 3, 128, 20, 17, 33)
CPU = torch.device("cpu")


def in_triton(lengths: tuple[int, ...], **shape: Any) -> Attended:
    """By the kernels for short sentences, on the way of a layer in training."""
    with _triton_first():
        torch.manual_seed(3)
        return attended(lengths, **shape, device=CPU)


@contextmanager
def _triton_first() -> Iterator[None]:
    """They are asked first, and no other way is taken."""
    with (
        patch.object(flat_attention, "longest_supported", lambda device, dtype, width: longest_tile(width, dtype.itemsize)),
        patch.object(flat_attention, "is_faster_than_torch", lambda query, num_sentences: True),
        patch.object(flat_attention, "grouped_attention", None),
    ):
        yield


def beside_a_cpu(dtype: torch.dtype, width: int, lengths: tuple[int, ...] = LENGTHS, **layer: Any) -> dict[str, Any]:
    lengths = tuple(length for length in lengths if length <= longest_tile(width, dtype.itemsize))
    shape: dict[str, Any] = {"num_heads": 2, "width": width, "p": 0.0, "rounded_to": dtype, **layer}
    there, here = in_triton(lengths, **shape, dtype=dtype), attended(lengths, **shape, dtype=torch.float32, device=CPU)
    pairs = zip((there.context, *there.gradients), (here.context, *here.gradients), strict=True)
    dropped = in_triton(lengths, **shape | {"p": 0.25}, dtype=dtype)
    return {
        "dtype": str(dtype),
        "width": width,
        "off": max(float((found - expected).norm() / expected.norm()) for found, expected in pairs),
        "masks": float(dropped.disagreement().max()),
    }


def beside_a_cpu_and_masks(dtype: torch.dtype, width: int) -> dict[str, Any]:
    return beside_a_cpu(dtype, width) | {"gradients": drawing(dtype, width, CPU)}


def bands() -> list[dict[str, Any]]:
    """Of what a layer may see and add to its scores, with keys that heads share."""
    cases = [(torch.float32, has_distances, name) for has_distances in (False, True) for name in BANDS]
    return [
        beside_a_cpu(dtype, 16, (7, 64, 1, 20), num_key_heads=1, has_distances=has_distances, **BANDS[name])
        | {"name": name, "has_distances": has_distances}
        for dtype, has_distances, name in [*cases, (torch.float16, True, "causal-window")]
    ]


def long_ones_in_groups() -> dict[str, Any]:
    """Where torch has no kernel: sentences beyond the largest tile are attended to in groups, the others are not."""
    return _in_groups((3, 70, 20, 128, 64, 70), width=64)


def _in_groups(lengths: tuple[int, ...], *, width: int) -> dict[str, Any]:
    """How far numbers are off, and lengths of the sentences that were grouped."""
    shape: dict[str, Any] = {"num_heads": 2, "width": width, "dtype": torch.float32, "has_distances": True, "p": 0.0}
    grouped = []
    groups, attend = flat_attention.length_groups, flat_attention.grouped_attention

    def counted(lengths: tuple[int, ...], *args: Any, **named: Any) -> Any:
        grouped.append(list(lengths))
        return groups(lengths, *args, **named)

    here = attended(lengths, **shape, device=CPU)
    with (
        _triton_first(),
        patch.object(flat_attention, "grouped_attention", attend),
        patch.object(flat_attention, "length_groups", counted),
    ):
        there = attended(lengths, **shape, device=CPU)
    pairs = zip((there.context, *there.gradients), (here.context, *here.gradients), strict=True)
    return {"off": max(float((found - expected).norm() / expected.norm()) for found, expected in pairs), "grouped": grouped}


def drawing(dtype: torch.dtype, width: int, device: torch.device) -> float:
    """How far gradients are from those of attention with the masks that are drawn."""
    lengths = [length for length in MASKED if length <= width]
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)
    launches = tensors.tile_launches(lengths, device, num_heads=2)

    def attend(*states: Tensor) -> Tensor:
        torch.manual_seed(3)
        return compiled_attention(triton_kernels, *states, boundaries=bounds, scale=1.0, p=0.25, launches=launches)

    return off_by_masks(attend, width=width, dtype=dtype, device=device)


def masks() -> dict[str, Any]:
    """Of equal weights, each kept with 0.75: their mean, and their variance against that of 20 independent ones; likeness of apart ones."""
    count, length = 36, 20
    ones = torch.ones(count * length, 2, 16)
    bounds = torch.arange(0, len(ones) + 1, length, dtype=torch.int32)
    launches = tensors.tile_launches([length] * count, CPU, num_heads=2)
    torch.manual_seed(3)
    attend = partial(compiled_attention, triton_kernels, boundaries=bounds, scale=1.0, p=0.25, launches=launches)
    drawn = [attend(ones, ones, ones) for _ in range(2)]
    off = drawn[0][..., 0].view(count, length, 2) - 1.0
    parts = ((off[:18], off[18:]), (off[:, :10], off[:, 10:]), (off[..., :1], off[..., 1:]))
    return {
        "mean": float(drawn[0].mean()),
        "variance": float(off.var()) * length * 3.0,
        "likeness": [float((one * other).mean() / off.var()) for one, other in parts],
        "again": torch.equal(*drawn),
    }


def _why_unavailable() -> list[str | None]:
    """As it is here; where what compiles them fails; on a full GPU, and when it is not full any more; where tensors are fake."""
    triton_kernels._failure.cache_clear()
    with FakeTensorMode():
        found = [triton_kernels.why_unavailable(CPU)]
    found += [triton_kernels.why_unavailable(CPU), _in_vain(RuntimeError("Failed to find C compiler.\nPlease specify"))]
    try:
        _in_vain(RuntimeError("Triton Error [CUDA]: out of memory"))
    except RuntimeError as full:
        found.append(f"raised: {full}")
    return [*found, triton_kernels.why_unavailable(CPU)]


def _in_vain(error: Exception) -> str | None:
    """What is said where kernels are tried for the first time and cannot start."""
    triton_kernels._failure.cache_clear()
    with patch.object(triton_attention, "_launch", side_effect=error):
        found = triton_kernels.why_unavailable(CPU)
    triton_kernels._failure.cache_clear()
    return found


def _strided() -> bool:
    """Whether queries, keys and values of different strides are refused."""
    rows, bounds = torch.zeros(3, 16), torch.tensor([0, 3], dtype=torch.int32)
    layout = AttentionLayout(boundaries=bounds, num_heads=1, head_width=16, scale=1.0, launches=((16, torch.zeros(1, dtype=torch.int32)),))
    try:
        triton_kernels.attention(QueryKeyValue(rows, rows, torch.zeros(3, 32)[:, :16]), layout, None, save_for_backward=False)
    except AssertionError:
        return True
    return False


def recomputed() -> dict[str, Any]:
    """Of a layer that is computed again, with dropout: its gradients and what is drawn next; and of one that encodes."""
    states = torch.randn(1, 2, sum(LENGTHS), 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    bounds = torch.tensor([0, *accumulate(LENGTHS)], dtype=torch.int32)
    segments = flat_attention.Segments(lengths=LENGTHS, boundaries=bounds, num_heads=2, head_width=16)

    def attend(states: Tensor) -> Tensor:
        return flat_attention.flat_attention(nn.Identity().train(), states, states, states, None, segments=segments, dropout=0.3)[0]

    def gradient(run: Callable[[Tensor], Tensor]) -> tuple[Tensor, float]:
        torch.manual_seed(5)
        return torch.autograd.grad(run(states).square().sum(), states)[0], float(torch.rand(()))

    with _triton_first():
        (kept, next_one), (again, also_next) = gradient(attend), gradient(partial(checkpoint, attend, use_reentrant=False))
        with torch.inference_mode():
            encoded = flat_attention.flat_attention(nn.Identity().eval(), *[states.detach()] * 3, None, segments=segments, dropout=0.3)[0]
    whole = flat_attention.flat_attention(nn.Identity().eval(), states, states, states, None, segments=segments, dropout=0.3)[0]
    off = float((encoded - whole).detach().norm() / whole.detach().norm())
    return {"same": torch.equal(kept, again) and next_one == also_next, "encoded": off}


def tiles() -> dict[str, Any]:
    largest = {
        f"{dtype} {width}": longest_tile(width, dtype.itemsize)
        for dtype in (torch.float32, torch.bfloat16)
        for width in (8, 16, 32, 64, 128)
    }
    # A CPU has no product of halves that is written in float32.
    patch.object(triton_kernels, "weight_grad", lambda grad, entered: grad.float().t() @ entered.float()).start()
    patch.object(triton_kernels, "addmm", lambda sums, left, right: sums + left.float() @ right.float()).start()
    used, why = triton_kernels.used_names(), _why_unavailable()
    return {"largest": largest, "used": used, "unavailable": why, "tried": triton_kernels.used_names(), "strided": _strided()}


def launches() -> dict[str, list[int]]:
    lengths = [3] * 300 + [17] * 100 + [40] * 100 + [128]
    prepared = tensors.tile_launches(lengths, CPU, num_heads=12)
    places = [place for _, places in prepared for place in places.tolist()]
    return {"tiles": [tile for tile, _ in prepared], "counts": [len(places) for _, places in prepared], "places": places}


def quicker() -> list[bool]:
    few, many = (torch.empty(20 * count, 12, 32, dtype=torch.bfloat16) for count in (100, 1000))
    long = torch.empty(100 * 1000, 12, 32, dtype=torch.bfloat16)
    asked = ((few, 100), (many, 1000), (long, 1000), (few.float(), 100))
    return [tensors.is_faster_than_torch(query, num_sentences=count) for query, count in asked]


def main() -> None:
    cpp_kernels.why_unavailable = lambda: "compiled kernels of a CPU would come first"
    with patch.object(tensors, "FEWEST_PROGRAMS", 1):  # each tile by itself
        cases = [beside_a_cpu_and_masks(*case) for case in ((torch.float32, 16), (torch.float32, 64), (torch.float16, 32))]
        found = {"cases": cases, "bands": bands()}
        found |= {one.__name__: one() for one in (recomputed, long_ones_in_groups, masks)}
    found |= {one.__name__: one() for one in (launches, tiles, quicker)}  # the tiles that were used are known by now
    print(json.dumps(found))


if __name__ == "__main__":
    main()
