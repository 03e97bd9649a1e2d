"""The kernels on processors that this machine is not: with registers of four, eight and sixteen floats."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from sentdist.learning.kernels import cpp_library

ROOT = Path(__file__).parents[3]
KERNELS = Path(cpp_library.__file__).parent
LANES = {"x86-64": 4, "x86-64-v3": 8, "x86-64-v4": 16}  # levels of the x86-64 ABI: SSE2, AVX2, AVX-512
# Runs the tests of the kernels with those of another level, whatever this processor has beyond it.
AS_ON = """
import sys, pytest
from sentdist.learning.kernels import cpp_library
cpp_library._architecture = lambda: "-march=" + sys.argv[1]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")


@pytest.mark.in_turns
@pytest.mark.parametrize("level", LANES)
def test_no_vector_is_wider_than_a_register(level: str, tmp_path: Path) -> None:
    """A wider one lies in memory, so that attention took four to seven times as long. GCC warns of it (-Wpsabi), which is an error here."""
    (tmp_path / "lanes.cpp").write_text(f'#include "lanes.h"\nstatic_assert(LANES == {LANES[level]});\n')
    for source in (*(KERNELS / name for name in cpp_library.SOURCES), tmp_path / "lanes.cpp"):
        command = [
            "g++",
            *cpp_library.FLAGS,
            "-O0",
            "-Werror",
            f"-march={level}",
            f"-I{KERNELS}",
            "-fopenmp",
            "-c",
            source,
            "-o",
            tmp_path / "o",
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
def test_a_processor_with_narrower_registers_computes_the_same(level: str, tmp_path: Path) -> None:
    if level == "x86-64-v3" and "avx2" not in cpp_library._processor():
        pytest.skip("this processor has no AVX2")
    ran = subprocess.run(
        [sys.executable, "-c", AS_ON, level, "tests/unit/learning/test_cpp_kernels.py"],
        cwd=ROOT, env=os.environ | {"SENTDIST_CACHE": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and " passed" in ran.stdout, ran.stdout + ran.stderr
