"""What the C library does with freed memory while encoders are trained, and afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

PIECE, TIMES = 8 * 2**20, 16

PROGRAM = f"""
import ctypes, resource, sys
from sentdist.learning.freed_memory import keep_freed_memory, let_freed_memory_go

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]


def faults(size, times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        piece = libc.malloc(size)
        ctypes.memset(piece, 1, size)
        libc.free(piece)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


keep_freed_memory()
while_kept = faults({PIECE}, {TIMES})
let_freed_memory_go()
print(while_kept, faults({PIECE}, {TIMES}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_pages_are_asked_for_once_while_memory_is_kept_and_where_it_was() -> None:
    """A worker that stays embeds after a training: where each tensor above 128 KB is given back at once, as glibc does once it was set
    anything, this took a seventh longer."""
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    while_kept, afterwards = (int(number) for number in answer.stdout.split())
    pages = PIECE // 4096
    assert while_kept < 2 * pages and afterwards < 2 * pages, f"{answer.stdout.strip()} of {pages} pages a piece"
