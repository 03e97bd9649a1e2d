"""Files are whole or absent; processors and thresholds of the garbage collector are what was said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sentdist import machine
from sentdist.files import whole_file
from sentdist.kernels.tensors import has_bfloat16
from sentdist.run.health import cpu
from sentdist.stages.context import environment


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    for synced in [False, True]:
        path = tmp_path / "notes.json"
        path.write_text("old")
        with whole_file(path, synced=synced) as part, whole_file(path, synced=synced) as other:
            other.write_text("of another writer")
            part.write_text("new")
            assert path.read_text() == "old"
        assert path.read_text() == "new" and os.listdir(tmp_path) == ["notes.json"]


def test_a_file_that_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "notes.json") as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert not os.listdir(tmp_path)


def test_a_synced_file_waits_for_the_disk_and_another_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix))
    with whole_file(tmp_path / "notes.json") as part:
        part.write_text("{}")
    assert synced == []
    with whole_file(tmp_path / "notes.json", synced=True) as part:
        part.write_text("{}")
    assert synced == [".part", ""], "the file under its first name, then the name"


def test_processors_of_one_name_are_distinguished_by_their_instructions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for cpuinfo, said in [
        ("model name\t: AMD EPYC\nflags\t\t: fma avx avx2\n", "AMD EPYC (AVX2)"),
        ("model name\t: AMD EPYC\nflags\t\t: avx2 avx512f avx512_bf16\n\nmodel name\t: AMD EPYC\n", "AMD EPYC (AVX-512 with bfloat16)"),
        ("model name\t: Xeon\nflags\t\t: avx2 avx512f avx512_bf16 amx_tile\n", "Xeon (AMX)"),
        ("model name\t: Older\nflags\t\t: sse2\n", "Older"),
    ]:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
        environment.cache_clear()
        try:
            assert environment()["processor"] == said
        finally:
            environment.cache_clear()
        found = cpu()
        assert found.text.startswith(said) and (found.state, "bf16 is no faster" in found.text) == (
            ("note", True) if "AVX2" in said else ("good", False)
        )


@pytest.mark.skipif(machine.instructions() is None, reason="no processor whose instructions are known")
def test_torch_multiplies_bfloat16_where_it_is_said() -> None:
    assert has_bfloat16() is (machine.instructions() != machine.WITHOUT_BFLOAT16)
