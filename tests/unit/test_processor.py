"""Which processor a machine has, as records and `sentdist doctor` say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist import machine as processor
from sentdist.execution.health import cpu
from sentdist.learning.encoder.private_torch import has_bfloat16
from sentdist.stages.context import environment


@pytest.mark.parametrize(
    ("cpuinfo", "said"),
    [
        ("model name\t: AMD EPYC\nflags\t\t: fma avx avx2\n", "AMD EPYC (AVX2)"),
        ("model name\t: AMD EPYC\nflags\t\t: avx2 avx512f avx512_bf16\n\nmodel name\t: AMD EPYC\n", "AMD EPYC (AVX-512 with bfloat16)"),
        ("model name\t: Xeon\nflags\t\t: avx2 avx512f avx512_bf16 amx_tile\n", "Xeon (AMX)"),
        ("model name\t: Older\nflags\t\t: sse2\n", "Older"),
    ],
)
def test_processors_of_one_name_are_distinguished_by_their_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str, said: str
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    environment.cache_clear()
    try:
        assert environment()["processor"] == said
    finally:
        environment.cache_clear()
    found = cpu()
    assert found.text.startswith(said) and (found.state, "bf16 is no faster" in found.text) == (
        ("note", True) if "AVX2" in said else ("good", False)
    )


@pytest.mark.skipif(processor.instructions() is None, reason="no processor whose instructions are known")
def test_torch_multiplies_bfloat16_where_it_is_said() -> None:
    assert has_bfloat16() is (processor.instructions() != processor.WITHOUT_BFLOAT16)
