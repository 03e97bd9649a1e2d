"""Facts and settings of this process and machine: processor, known GPUs, environment, garbage collection, SIGTERM."""

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
from pathlib import Path
from types import FrameType

CPUINFO = Path("/proc/cpuinfo")
# Its flags, the widest first; AVX-512 multiplies bfloat16 values, too.
INSTRUCTIONS = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 with bfloat16", "avx512f": "AVX-512", "avx2": "AVX2"}
WITHOUT_BFLOAT16 = "AVX2"


def name() -> str:
    """Return the processor's name with its widest instructions, since clouds give several generations one name: "AMD EPYC (AVX2)"."""
    model = _values().get("model name") or platform.processor() or platform.machine()
    widest = instructions()
    return f"{model} ({widest})" if widest else model


def instructions() -> str | None:
    """Return the widest known vector instructions of the processor, or None (as on ARM)."""
    flags = _values().get("flags", "").split()
    return next((title for flag, title in INSTRUCTIONS.items() if flag in flags), None)


def _values() -> dict[str, str]:
    lines = CPUINFO.read_text(errors="replace").splitlines() if CPUINFO.exists() else []
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


# Compute capability of A100 and RTX 30: the first with products in TensorFloat-32 and in bfloat16, and with FlashAttention 2.
AMPERE = (8, 0)

SHARES = "a fraction up to 1 or a whole number, as Ray assigns GPUs"  # GPUs of one worker


def is_share(gpus: float) -> bool:
    """Return whether Ray can assign this number of GPUs to a worker; see SHARES."""
    return gpus <= 1 or not gpus % 1


OLD_GPUS = ("V100", "T4", "P100", "P4", "K80")  # types made before Ampere, by Ray's names


@contextmanager
def environment_with(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the context and restore them afterwards."""
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


YOUNG, MIDDLE, FULL = 50_000, 20, 100  # thresholds of the three generations


def collect_rarely() -> None:
    """Raise the garbage collector's thresholds in this process, unless they are as high or it is off.

    Imports create a million objects, and collecting among them took 1.5 to 1.9 of the 8 seconds in which a worker imports. Training leaves
    no reference cycles (none after 25 steps). The collection at exit, most of a second, is skipped. Commands and workers call this first;
    importing sentdist does not.
    """
    if 0 < gc.get_threshold()[0] < YOUNG:
        gc.set_threshold(YOUNG, MIDDLE, FULL)
        atexit.register(gc.freeze)


def pass_over_libraries(known: int) -> int:
    """Exclude all living objects from garbage collection if modules were imported since there were `known`; return their number now.

    Call it between two pieces of work, when only libraries are left: half a million objects (MiniLM's training with plain torch; DeepSpeed
    adds 120,000) that are never freed and that each collection would visit.
    """
    if len(sys.modules) > known:
        gc.freeze()
    return len(sys.modules)


_received: int | None = None


def end_on_sigterm() -> None:
    """Have SIGTERM raise SystemExit, so that work that only this process waits for ends: `ray job stop` sends it and kills 3 s later."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)


def with_signal_code(ending: SystemExit) -> SystemExit:
    """Return the SystemExit with the exit code of the signal received, if any: Ray's waiting calls replace it by one with a sentence."""
    return ending if _received is None else SystemExit(128 + _received)


def _stop(number: int, frame: FrameType | None) -> None:
    global _received
    _received = number
    raise SystemExit(128 + number)
