"""Build, cache and load the C++ kernel library, once per user and machine; name the kernels in use. Does not import torch."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from sentdist.errors import brief, first_line
from sentdist.files import cache_folder, whole_file

SOURCES = ("rows.cpp", "attention.cpp")
HEADERS = ("lanes.h",)
# Sums keep their order and NaN stays NaN: nothing of -ffast-math.
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fno-math-errno", "-Wall")
_COMPILERS = ("g++", "c++")  # no Clang: torch's libraries lack its function for parallel loops
_PARALLEL_LOOP = "GOMP_parallel"  # GCC's function for parallel loops; LLVM's library has it, too
_BUILD_TIMEOUT_S = 300.0


class NoKernelsError(Exception):
    """Why this machine has no C++ kernels."""


@cache
def load_library() -> ctypes.CDLL | str:
    """Load the library into this process, which has loaded torch; or return the reason why it is not available."""
    try:
        return _load(find_or_build())
    except NoKernelsError as reason:
        return str(reason)
    except (OSError, RuntimeError) as error:  # e.g. a folder that is not writable, a user without a home
        return f"they could not be built ({first_line(error)})"


def loaded_name() -> str | None:
    """Return the name of the loaded library, which changes with sources, compiler and processor; None if it is not loaded."""
    library = load_library() if load_library.cache_info().currsize else None
    return Path(library._name).stem if isinstance(library, ctypes.CDLL) else None


def find_or_build() -> Path:
    """Return the library file that a process of this user built before, or build it in about 3 seconds.

    Raises:
        NoKernelsError: it cannot be built.
    """
    if platform.system() != "Linux":
        raise NoKernelsError(f"they are built on Linux only, not on {platform.system()}")
    named = [name for name in (os.environ.get("CXX"), *_COMPILERS) if name and "clang" not in name]
    compiler = next(filter(None, map(shutil.which, named)), None)
    if compiler is None:
        raise NoKernelsError("GCC's C++ compiler was not found (Debian: apt-get install g++)")
    folder = _private_folder()
    file = folder / f"{_digest(compiler)}.so"
    if not file.exists():
        with _locked(folder):
            if not file.exists():
                _build(compiler, file)
    return file


def _private_folder() -> Path:
    """Return the user's folder for code, which others cannot replace."""
    folder = cache_folder("kernels")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_at = folder.lstat()
    except OSError as error:
        raise NoKernelsError(f"{folder} cannot be made ({error.strerror})") from None
    if is_at.st_uid != os.getuid():
        raise NoKernelsError(f"{folder} belongs to another user: set SENTDIST_CACHE to your own folder")
    if not stat.S_ISDIR(is_at.st_mode) or is_at.st_mode & 0o022:
        raise NoKernelsError(f"others may write into {folder}: chmod 700 it, or remove it")
    return folder


def _digest(compiler: str) -> str:
    """Digest what the library depends on: sources, compiler and flags, processor."""
    found = hashlib.sha256()
    for name in (*HEADERS, *SOURCES):
        found.update((Path(__file__).parent / name).read_bytes())
    is_at = os.stat(compiler)
    found.update(repr((compiler, is_at.st_size, is_at.st_mtime_ns, FLAGS, _architecture(), _processor())).encode())
    return found.hexdigest()[:24]


def _architecture() -> str:
    return "-march=native" if platform.machine() in ("x86_64", "AMD64", "i686") else "-mcpu=native"


def _processor() -> str:
    """Return the lines of /proc/cpuinfo that affect the compiler; machines of several kinds may share a home folder."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in ("flags", "Features", "model name", "CPU part")}))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time build; the others find its result."""
    with (folder / "lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks: built twice at worst
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(compiler: str, file: Path) -> None:
    sources = [str(Path(__file__).parent / name) for name in SOURCES]
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch, whole_file(file, synced=True) as made:
        objects = [f"{scratch}/{number}.o" for number in range(len(sources))]
        for source, compiled in zip(sources, objects, strict=True):
            _run([compiler, *FLAGS, _architecture(), "-fopenmp", "-c", source, "-o", compiled])
        # Linked without OpenMP: its functions come from the library that torch has loaded, so both share its threads.
        _run([compiler, "-shared", *objects, "-o", str(made)])


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_BUILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoKernelsError(f"{command[0]} did not run ({first_line(error)})") from None
    if ran.returncode != 0:
        reason = next((line for line in ran.stderr.splitlines() if "error" in line), f"exit code {ran.returncode}")
        raise NoKernelsError(f"{command[0]} could not compile them ({brief(reason)})")


def _load(file: Path) -> ctypes.CDLL:
    if not hasattr(ctypes.CDLL(None), _PARALLEL_LOOP):
        _make_openmp_visible()
    try:
        return ctypes.CDLL(str(file), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise NoKernelsError(f"{file} could not be loaded ({first_line(error)}); remove it to build it again") from None


def _make_openmp_visible() -> None:
    """Make the OpenMP library that torch has loaded visible to libraries loaded after it."""
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "omp" in line.rsplit("/", 1)[-1]}
    for path in sorted(mapped):
        if hasattr(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), _PARALLEL_LOOP):
            return
    raise NoKernelsError("this build of torch has no OpenMP library to share")


_TRITON_KERNELS = "sentdist.kernels.triton_kernels"


def used_kernels() -> str | None:
    """Return the names of the loaded C++ library and of the Triton kernels that have run; None if there are none."""
    in_triton = sys.modules.get(_TRITON_KERNELS)
    names = [loaded_name(), in_triton.used_names() if in_triton is not None else None]
    return "; ".join(name for name in names if name) or None
