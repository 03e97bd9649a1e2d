"""Bytes as people read them: of files and disks in powers of 1000, as disks are sold; of memory in powers of 1024, as it is built."""

from __future__ import annotations

from collections.abc import Sequence

DECIMAL = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
BINARY = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def disk_size(num_bytes: float) -> str:
    """Three digits: '125 MB', '1.25 GB'."""
    return _in_unit(num_bytes, DECIMAL, base=1000, digits=".3g")


def memory_size(num_bytes: float) -> str:
    """One digit behind the point: '15.9 GiB'."""
    return _in_unit(num_bytes / 1024, BINARY, base=1024, digits=".1f")


def _in_unit(size: float, units: Sequence[str], *, base: int, digits: str) -> str:
    """In the first unit whose number, as it is written, lies below the base: 999,600 bytes are '1 MB', not '1e+03 kB'."""
    power = 0
    while power < len(units) - 1 and float(f"{size / base**power:{digits}}") >= base:
        power += 1
    return f"{size / base**power:{digits}} {units[power]}"
