"""Run as a program beside Triton: compiles kernels for a GPU that need not be there, as their launches ask for them.

Arguments: the GPU (80 is an A100, 86 an A10, 89 an L4, 90 an H100), a number format, a head width, and tiles of attention; 0: the kernels
over rows instead. Prints a line of JSON a kernel: its name, its tile, and the bytes of a multiprocessor's own memory that it takes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from sentdist.kernels import triton_kernels

CPU = torch.device("cpu")
_TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int32: "*i32", torch.int64: "*i64"}
_OPTIONS = ("num_warps", "num_stages")


def _type_of(argument: object) -> str:
    if isinstance(argument, Tensor):
        return _TYPES[argument.dtype]
    return "fp32" if isinstance(argument, float) else "i32"


@contextmanager
def compiled_for(capability: int) -> Iterator[list[dict[str, Any]]]:
    """Kernels that are started within are compiled for that GPU and not run; yields what they take."""
    found: list[dict[str, Any]] = []

    def compile_only(kernel: Any, *arguments: Any, grid: object, warmup: bool, **named: Any) -> None:
        options = {name: named.pop(name) for name in _OPTIONS if name in named}
        given = dict(zip(kernel.arg_names, arguments, strict=False)) | named
        constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
        source = ASTSource(
            fn=kernel,
            signature={name: "constexpr" if name in constants else _type_of(given[name]) for name in kernel.arg_names},
            constexprs={(place,): given[name] for place, name in enumerate(kernel.arg_names) if name in constants},
        )
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        assert made.asm["cubin"]
        found.append({"name": kernel.__name__, "tile": given.get("TILE"), "shared": made.metadata.shared})

    # A CPU has no product of halves that is written in float32; those are torch's.
    with (
        patch.object(JITFunction, "run", compile_only),
        patch.object(triton_kernels, "weight_grad", lambda grad, entered: grad.float().t() @ entered.float()),
        patch.object(triton_kernels, "addmm", lambda sums, left, right: sums + left.float() @ right.float()),
    ):
        yield found


def main() -> None:
    capability, dtype, width, *tiles = sys.argv[1:]
    with compiled_for(int(capability)) as found:
        for tile in map(int, tiles):
            if tile:
                triton_kernels._try_attention(CPU, getattr(torch, dtype), width=int(width), tile=tile)
            else:
                triton_kernels._try_rows(CPU, getattr(torch, dtype))
    for one in found:
        print(json.dumps(one))


if __name__ == "__main__":
    main()
