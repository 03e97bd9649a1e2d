"""Where a training step on a GPU goes, and what attention of short sentences takes by kernels of our own beside torch's."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, product
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.profiler import DeviceType, ProfilerActivity, profile

from rayjobs.benchmarks.peers import Work, sentdist_training
from sentdist.kernels import flat_attention
from sentdist.learning.precision import apply_matmul_precision

PROFILED = 5  # steps
LARGEST = 12  # kernels that are named
DROPOUT = 0.1
WINDOW = 8  # tokens, as transformers counts them
# What a token sees of its sentence; "distances": all, and a number for the distance is added to each score, which no kernel of torch does.
SEEN = ("all", "causal", "window", "distances")


@dataclass(frozen=True, kw_only=True)
class Attended:
    """One layer's attention, forward and derivative. milliseconds: end to end; host: of which the host needed so many to start it."""

    side: str
    precision: str
    num_sentences: int
    seen: str
    dropout: float
    milliseconds: float
    host_milliseconds: float


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """A training step of ours. milliseconds: without the profiler; device: of which kernels ran. largest: (name, calls, milliseconds)."""

    precision: str
    batch_size: int
    milliseconds: float
    device_milliseconds: float
    kernels: int
    operations: int
    largest: tuple[tuple[str, float, float], ...]


def attention(
    lengths: Sequence[int], device: torch.device, *, num_heads: int, width: int, counts: Sequence[int], precisions: Sequence[str]
) -> Iterator[Attended]:
    """By torch's kernels ("torch") and as sentences are attended to ("sentdist"), in turn. lengths: of these the first `counts`."""
    for precision in precisions:
        apply_matmul_precision(device, "fp32" if precision == "bf16" else precision)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        for count, seen, dropout, side in product(counts, SEEN, (0.0, DROPOUT), ("torch", "sentdist")):
            run = _layer(lengths[:count], device, num_heads=num_heads, width=width, dtype=dtype, seen=seen, dropout=dropout)
            with patch.object(flat_attention, "longest_supported", (lambda *_: 0) if side == "torch" else flat_attention.longest_supported):
                whole, host = _timed(run, device)
            yield Attended(
                side=side, precision=precision, num_sentences=min(count, len(lengths)), seen=seen, dropout=dropout,
                milliseconds=round(1e3 * whole, 3), host_milliseconds=round(1e3 * host, 3),
            )  # fmt: skip


def _layer(
    lengths: Sequence[int], device: torch.device, *, num_heads: int, width: int, dtype: torch.dtype, seen: str, dropout: float
) -> Callable[[], object]:
    query, key, value = (
        torch.randn(1, sum(lengths), num_heads, width, device=device, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3)
    )
    grad = torch.randn(1, sum(lengths), num_heads, width, device=device, dtype=dtype)
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device)
    distances = torch.randn(num_heads, 2 * max(lengths) - 1, device=device).requires_grad_() if seen == "distances" else None
    segments = flat_attention.Segments(
        lengths=lengths, boundaries=bounds, num_heads=num_heads, head_width=width, is_causal=seen == "causal", distances=distances
    )  # fmt: skip
    module, window = nn.Identity().train(), WINDOW if seen == "window" else None
    leaves = (query, key, value) if distances is None else (query, key, value, distances)

    def run() -> tuple[Tensor, ...]:
        context, _ = flat_attention.flat_attention(
            module, query, key, value, None, segments=segments, dropout=dropout, sliding_window=window
        )
        return torch.autograd.grad(context, leaves, grad)

    return run


def _timed(run: Callable[[], object], device: torch.device, *, repeats: int = 20) -> tuple[float, float]:
    """Seconds a call, and those after which the host was done with it; the first calls warm up."""
    for times in (3, repeats):
        _wait(device)
        started = time.perf_counter()
        for _ in range(times):
            run()
        host = time.perf_counter() - started
        _wait(device)
        whole = time.perf_counter() - started
    return whole / repeats, host / repeats


def profiled_steps(work: Work, *, batches: Sequence[int], precisions: Sequence[str], steps: int) -> Iterator[Profiled]:
    """Of each batch size and precision, what `steps` steps take, and what a few more consist of."""
    device = torch.device(work.device)
    for precision in precisions:
        for batch_size in batches:
            samples = sentdist_training(replace(work, batch_size=batch_size, precision=precision))
            try:
                list(islice(samples, steps))
                _wait(device)
                started = time.perf_counter()
                list(islice(samples, steps))
                _wait(device)
                seconds = (time.perf_counter() - started) / steps
                with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]) as profiler:
                    list(islice(samples, PROFILED))
                    _wait(device)
            finally:
                samples.close()  # type: ignore[attr-defined]  # a generator, which holds its model
            yield _counted(profiler, precision=precision, batch_size=batch_size, seconds=seconds)


def _counted(profiler: profile, *, precision: str, batch_size: int, seconds: float) -> Profiled:
    calls, micros, operations = defaultdict[str, int](int), defaultdict[str, float](float), 0
    for event in profiler.events() or ():
        if event.device_type == DeviceType.CUDA:
            calls[event.name] += 1
            micros[event.name] += event.self_device_time_total
        else:
            operations += event.name.startswith("aten::")
    longest = sorted(micros, key=lambda name: -micros[name])[:LARGEST]
    return Profiled(
        precision=precision, batch_size=batch_size, milliseconds=round(1e3 * seconds, 2),
        device_milliseconds=round(sum(micros.values()) / 1e3 / PROFILED, 2), kernels=round(sum(calls.values()) / PROFILED),
        operations=round(operations / PROFILED),
        largest=tuple((name[:120], calls[name] / PROFILED, round(micros[name] / 1e3 / PROFILED, 3)) for name in longest),
    )  # fmt: skip


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
