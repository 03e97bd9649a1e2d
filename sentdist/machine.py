"""Which processor this machine has: its name, and the instructions that decide how fast it multiplies."""

from __future__ import annotations

import atexit
import gc
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

CPUINFO = Path("/proc/cpuinfo")
# Its flags, the widest first; AVX-512 multiplies bfloat16 values, too.
INSTRUCTIONS = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 with bfloat16", "avx512f": "AVX-512", "avx2": "AVX2"}
WITHOUT_BFLOAT16 = "AVX2"


def name() -> str:
    """Clouds give processors of several generations one name, so the widest instructions stand behind it: "AMD EPYC (AVX2)"."""
    said = _values().get("model name") or platform.processor() or platform.machine()
    widest = instructions()
    return f"{said} ({widest})" if widest else said


def instructions() -> str | None:
    """The widest that are known; None where none is, as on processors of another make."""
    flags = _values().get("flags", "").split()
    return next((said for flag, said in INSTRUCTIONS.items() if flag in flags), None)


def _values() -> dict[str, str]:
    lines = CPUINFO.read_text(errors="replace").splitlines() if CPUINFO.exists() else []
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


# Compute capability of A100 and RTX 30: the first with products in TensorFloat-32 and in bfloat16, and with FlashAttention 2.
AMPERE = (8, 0)

SHARES = "a part up to 1, or a whole number, as Ray shares GPUs out"  # GPUs of one worker


def is_share(gpus: float) -> bool:
    """Whether Ray can give a worker so many; see SHARES."""
    return gpus <= 1 or not gpus % 1


@dataclass(frozen=True, kw_only=True)
class GpuKind:
    """A kind of GPU; None: not known here.

    gib: its memory in GiB, of a kind that is sold in several sizes the smallest. peak: dense TFLOP/s of its tensor cores in bf16 (of V100
    and T4 in fp16), as its maker prints them. is_old: made before Ampere.
    """

    gib: float | None = None
    peak: float | None = None
    is_old: bool = False


GPUS = {
    "B200": GpuKind(gib=178, peak=2250),
    "H200": GpuKind(gib=140, peak=989),
    "H100": GpuKind(gib=79, peak=989),
    "H20": GpuKind(gib=95),
    "A100": GpuKind(gib=39.5, peak=312),
    "A100-40G": GpuKind(gib=39.5),
    "A100-80G": GpuKind(gib=79),
    "L40S": GpuKind(gib=44, peak=362),
    "RTX4090": GpuKind(peak=165),
    "L4": GpuKind(gib=22, peak=121),
    "A10G": GpuKind(gib=22, peak=70),
    "V100": GpuKind(gib=16, peak=125, is_old=True),
    "T4": GpuKind(gib=14.5, peak=65, is_old=True),
    "P100": GpuKind(gib=12, is_old=True),
    "P4": GpuKind(gib=7.5, is_old=True),
    "K80": GpuKind(gib=11, is_old=True),
}


@contextmanager
def environment_with(values: Mapping[str, str]) -> Iterator[None]:
    """Within the context these variables have these values; behind it what they had before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


YOUNG, MIDDLE, FULL = 50_000, 20, 100  # new objects, and how many of the smaller collections, until the next


def collect_rarely() -> None:
    """Have Python collect garbage less often in this process, unless it does so already.

    Libraries make a million objects while they are imported, and Python walks through all of them again and again:
    1.5 to 1.9 of the 8 seconds that a worker imports for. Training leaves nothing that only a cycle holds
    (none after 25 steps), so nothing waits for it. When the process ends, what is left goes with it: looking for it took most of a second.
    Commands and workers call this first; a person's own Python is left as it is.
    """
    if 0 < gc.get_threshold()[0] < YOUNG:
        gc.set_threshold(YOUNG, MIDDLE, FULL)
        atexit.register(gc.freeze)


def pass_over_libraries(known: int) -> int:
    """Take what lives in this process now out of the collector's sight if libraries came since it had `known` modules; how many it has now.

    For between two pieces of work, when nothing of the last one is held: what is left are libraries, half a million objects (MiniLM's
    training by plain torch; DeepSpeed brings 120,000 more), of which none ever goes. Each collection walks through all that it sees.
    """
    if len(sys.modules) > known:
        gc.freeze()
    return len(sys.modules)


_received: int | None = None


def end_on_sigterm() -> None:
    """From now on SIGTERM raises SystemExit. `ray job stop` sends it and kills 3 s later: leave the board in that time, so that work
    nobody waits for ends, too."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)


def with_signal_code(ending: SystemExit) -> SystemExit:
    """How this process ends: where a signal has ended it, with the signal's exit code. Ray raises its own SystemExit, a sentence, in place
    of one that reaches its waiting calls."""
    return ending if _received is None else SystemExit(128 + _received)


def _stop(number: int, frame: FrameType | None) -> None:
    global _received
    _received = number
    raise SystemExit(128 + number)
