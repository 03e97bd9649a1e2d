"""Which processor this machine has: its name, and the instructions that decide how fast it multiplies."""

from __future__ import annotations

import platform
from pathlib import Path

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
