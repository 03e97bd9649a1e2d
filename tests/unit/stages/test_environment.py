"""What a record says of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.stages import commit


@pytest.mark.parametrize(
    ("cpuinfo", "said"),
    [
        ("model name\t: AMD EPYC\nflags\t\t: fma avx avx2\n", "AMD EPYC (AVX2)"),
        ("model name\t: AMD EPYC\nflags\t\t: avx2 avx512f avx512_bf16\n\nmodel name\t: AMD EPYC\n", "AMD EPYC (AVX-512 with bfloat16)"),
        ("model name\t: Xeon\nflags\t\t: avx2 avx512f avx512_bf16 amx_tile\n", "Xeon (AMX)"),
        ("model name\t: Older\nflags\t\t: sse2\n", "Older"),
    ],
)
def test_processors_of_one_name_are_told_apart_by_their_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str, said: str
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(commit, "CPUINFO", tmp_path / "cpuinfo")
    commit.environment.cache_clear()
    try:
        assert commit.environment()["processor"] == said
    finally:
        commit.environment.cache_clear()
