"""A GPU that is only pretended: its tensors say `cuda`, are computed on the CPU, and refuse to be mixed with others, as those of CUDA do.

So a test on a machine without a GPU finds every tensor that was left on the host, and the values and gradients are still real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sentdist.kernels import flat_attention
from sentdist.learning import grad_cache
from tests.support.pretend_kernels import KERNELS

aten: Any = torch.ops.aten
CUDA = torch.device("cuda", 0)
# What CUDA itself takes from the host beside its own: copies, and indices.
SAID = {Tensor.device.__get__: CUDA, Tensor.is_cuda.__get__: True, Tensor.is_cpu.__get__: False}  # type: ignore[attr-defined]
MIXING = {aten.copy_, aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}


# Asked for on the device of a tensor; torch's own binding fills in the one that it takes that tensor to be on.
LIKE = {aten.new_empty, aten.new_empty_strided, aten.new_full, aten.new_ones, aten.new_zeros}


# What makes the host wait until a GPU has computed all that came before: it reads a number, or learns a shape.
READING = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.is_nonzero, aten._unique2}
_waiting = {"is_refused": False}


class OnGpu(Tensor):
    """A tensor on the pretended GPU. host: where its numbers really lie."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> OnGpu:
        made = Tensor._make_subclass(cls, host.detach(), host.requires_grad)
        made.host = host.detach()
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in SAID:
            return SAID[function]
        if function is Tensor.numpy:
            raise TypeError("can't convert a tensor on cuda to numpy; use Tensor.cpu() to copy it to the host first")
        if function is Tensor.new_tensor:  # a copy out of memory that is not pinned, like torch.tensor's
            _check_free(True, "new_tensor")
        if function is Tensor.tolist:
            _check_free(True, "tolist")
            return args[0].host.tolist()
        if function in (Tensor.to, Tensor.cpu):
            return _copied(*args, **(kwargs or {})) if function is Tensor.to else aten._to_copy(args[0], device=torch.device("cpu"))
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatch(function, args, kwargs or {})


def _copied(tensor: Tensor, *wanted: Any, non_blocking: bool = False, copy: bool = False, **named: Any) -> Tensor:
    """`Tensor.to`, as it is used: a device, a type, or both."""
    device = next((torch.device(one) for one in (*wanted, named.get("device")) if isinstance(one, str | torch.device)), tensor.device)
    like = next((one for one in wanted if isinstance(one, Tensor)), None)
    dtype = next(
        (one for one in (*wanted, named.get("dtype")) if isinstance(one, torch.dtype)), tensor.dtype if like is None else like.dtype
    )
    device = device if like is None else like.device
    if not copy and device.type == tensor.device.type and dtype == tensor.dtype:
        return tensor
    copied: Tensor = aten._to_copy(tensor, device=device, dtype=dtype, non_blocking=non_blocking)
    return copied


def _check_free(waits: bool, what: object) -> None:
    if waits and _waiting["is_refused"]:
        raise RuntimeError(f"{what}: the host waits for the GPU within a step")


def _check_copy(source: Tensor, *, to_gpu: bool, non_blocking: bool, on_host: Tensor | None = None) -> None:
    """Copies between host and GPU wait, but for those that are said not to, out of pinned memory or into it. on_host: that end."""
    if isinstance(source, OnGpu) != to_gpu:
        is_pinned = getattr(source if on_host is None else on_host, "is_pretended_pinned", False)
        _check_free(not (non_blocking and is_pinned), f"a copy of shape {tuple(source.shape)}")


@contextmanager
def nobody_waits() -> Iterator[None]:
    """On the pretended GPU, refuse what would make the host wait for a real one."""
    _waiting["is_refused"] = True
    try:
        yield
    finally:
        _waiting["is_refused"] = False


def _pinned(tensor: Tensor) -> Tensor:
    found = tensor.clone()
    found.is_pretended_pinned = True  # type: ignore[attr-defined]
    return found


def _recomputed_there(checkpoint: Any) -> Any:
    """torch's backward pass switches off what tells a tensor's device here; what is recomputed in it asks for that."""

    def checkpointed(function: Any, *arguments: Any, **options: Any) -> Any:
        def reported(*arguments: Any) -> Any:
            with torch._C._EnableTorchFunction():  # type: ignore[attr-defined]
                return function(*arguments)

        return checkpoint(reported, *arguments, determinism_check="none", **options)

    return checkpointed


class _PretendGpu(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatch(function, args, kwargs or {})


def _mapped(change: Callable[[Tensor], Any], values: Any) -> Any:
    """What an operation is given or gives, with its tensors changed. torch's own walk through any structure took half of a test's time."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, dict):
        return {name: _mapped(change, value) for name, value in values.items()}
    if isinstance(values, tuple | list):
        changed = [_mapped(change, value) for value in values]
        return changed if isinstance(values, list) else tuple(changed)
    return values


def _dispatch(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors: list[Tensor] = []
    _mapped(tensors.append, (args, kwargs))
    on_gpu = [one for one in tensors if isinstance(one, OnGpu)]
    packet, device = function.overloadpacket, kwargs.get("device")
    if packet is aten.copy_:
        is_on_gpu = isinstance(args[0], OnGpu)
    elif packet is aten._to_copy and kwargs.get("layout") is not None and on_gpu:
        is_on_gpu = True  # the gradient of a cast: autograd has noted where it takes the tensor to be
    elif device is not None and packet not in LIKE:
        is_on_gpu = torch.device(device).type == "cuda"
    else:
        is_on_gpu = bool(on_gpu)
    if function.namespace == "c10d" and len(on_gpu) < len(tensors) and (on_gpu or any(one.dtype != torch.uint8 for one in tensors)):
        raise RuntimeError(f"{function}: what was computed crosses ranks on the GPU, by NCCL; by gloo go only flags that the host has set")
    if on_gpu and packet not in MIXING and packet is not aten._to_copy:
        left = [one for one in tensors if not isinstance(one, OnGpu) and one.dim() > 0]
        if left:
            raise RuntimeError(f"{function}: expected all tensors on cuda, found one on the host of shape {tuple(left[0].shape)}")
    _check_free(packet in READING and bool(on_gpu), function)
    if packet is aten._to_copy:
        _check_copy(args[0], to_gpu=is_on_gpu, non_blocking=bool(kwargs.get("non_blocking")))
    elif packet is aten.copy_:
        _check_copy(args[1], to_gpu=is_on_gpu, non_blocking=any(args[2:]), on_host=args[1] if is_on_gpu else args[0])
    elif packet in MIXING and on_gpu:
        indices = [one for one in tensors if one.dtype in (torch.int64, torch.bool) and one.dim() > 0]
        _check_free(any(one.dtype == torch.bool or not isinstance(one, OnGpu) for one in indices), function)
    known = {id(one.host): one for one in on_gpu}
    if device is not None and is_on_gpu:
        kwargs = kwargs | {"device": torch.device("cpu"), "pin_memory": False}
    args, kwargs = _mapped(lambda one: one.host if isinstance(one, OnGpu) else one, (args, kwargs))
    is_pinned = not is_on_gpu and bool(kwargs.get("pin_memory"))
    if is_pinned:
        kwargs = kwargs | {"pin_memory": False}
    found = KERNELS.get(function, KERNELS.get(packet, function))(*args, **kwargs)
    if is_pinned:
        found.is_pretended_pinned = True
    if not is_on_gpu:
        return found
    return _mapped(lambda one: known[id(one)] if id(one) in known else OnGpu(one), found)


class PretendEvent:
    """What a stream has come to: here everything is done as soon as it is asked for."""

    def record(self, stream: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


@contextmanager
def pretended_gpu() -> Iterator[torch.device]:
    """Pretend that there is a GPU while the context is open; gives its device."""

    def made_there(make: Any) -> Any:
        def made(values: Any, *, device: Any = None, **options: Any) -> Tensor:
            found, is_there = make(values, **options), device is not None and torch.device(device).type == "cuda"
            _check_free(is_there, make)
            return OnGpu(found) if is_there else found

        return made

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.cuda, "_lazy_init", lambda: None))
        stack.enter_context(patch.object(torch.cuda, "get_device_capability", lambda device: (9, 0)))
        stack.enter_context(patch.object(flat_attention, "_has_triton", lambda: False))  # nobody compiles for it
        stack.enter_context(patch.object(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**30)))
        stack.enter_context(patch.object(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0))
        stack.enter_context(patch.object(torch.cuda, "device", lambda device: nullcontext()))
        stack.enter_context(patch.object(torch.cuda, "current_stream", lambda device: None))
        stack.enter_context(patch.object(torch.cuda, "Event", PretendEvent))
        for name in ("tensor", "as_tensor"):  # which ask for CUDA before anything is dispatched
            stack.enter_context(patch.object(torch, name, made_there(getattr(torch, name))))
        stack.enter_context(patch.object(Tensor, "pin_memory", _pinned))
        stack.enter_context(patch.object(grad_cache, "checkpoint", _recomputed_there(grad_cache.checkpoint)))
        torch.__future__.set_swap_module_params_on_conversion(True)  # parameters stay themselves, as on their way to a real GPU
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, False)
        stack.enter_context(_PretendGpu())
        yield CUDA
