"""How the kernels come to be on a machine: built once, by one process, where others cannot write; or a reason why they are not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sentdist.kernels import cpp_library

ASK = "from sentdist.kernels import cpp_library; print(cpp_library.find_or_build())"
FLAGS = cpp_library.FLAGS


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cpp_library, "FLAGS", (*cpp_library.FLAGS, "-O0"))  # a third of the time
    cpp_library.load_library.cache_clear()
    yield tmp_path / "cache/kernels"
    cpp_library.load_library.cache_clear()


def compiler(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    file = folder / "c++"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def test_processes_that_ask_at_once_build_it_once(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a third one, this one, loads what they built."""
    from sentdist.kernels import cpp_kernels  # torch comes with it, whose OpenMP is looked for

    counted = compiler(tmp_path / "bin", f'echo built >> {tmp_path}/log\nexec c++ "$@" -O0')
    monkeypatch.setenv("CXX", counted)
    monkeypatch.setattr(cpp_library, "FLAGS", FLAGS)  # as the others have them

    def ask(_: int) -> str:
        return subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True).stdout.strip()

    with ThreadPoolExecutor(2) as pool:
        reported = set(pool.map(ask, range(2)))
    assert (tmp_path / "log").read_text().count("built") == len(cpp_library.SOURCES) + 1
    assert reported == {str(file) for file in own_cache.glob("*.so")} and len(reported) == 1 and own_cache.stat().st_mode & 0o777 == 0o700
    assert cpp_kernels.why_unavailable() is None and (tmp_path / "log").read_text().count("built") == len(cpp_library.SOURCES) + 1
    assert cpp_library.used_kernels() in reported.pop()
    cpp_library.load_library.cache_clear()
    Path(counted).write_text(Path(counted).read_text() + "# another compiler\n")
    assert cpp_kernels.why_unavailable() is None and len(list(own_cache.glob("*.so"))) == 2


def test_a_compiler_that_fails_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path / "bin", "echo 'rows.cpp:1: error: no such thing' >&2; exit 1"))
    with pytest.raises(cpp_library.NoKernelsError, match="no such thing"):
        cpp_library.find_or_build()
    assert isinstance(cpp_library.load_library(), str)


def test_no_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "clang++")  # whose OpenMP is not the one that torch brings
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(cpp_library.NoKernelsError, match="compiler"):
        cpp_library.find_or_build()


def test_a_folder_into_which_others_may_write_is_not_used(own_cache: Path) -> None:
    own_cache.mkdir(parents=True)
    own_cache.chmod(0o777)
    with pytest.raises(cpp_library.NoKernelsError, match="others may write"):
        cpp_library.find_or_build()
