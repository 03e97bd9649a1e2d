"""Bytes as people read them: of files and disks in powers of 1000, as disks are sold; of memory in powers of 1024, as it is built."""

from __future__ import annotations

DECIMAL = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def disk_size(num_bytes: float) -> str:
    """Three digits: '125 MB', '1.25 GB'."""
    power = 0
    while power < len(DECIMAL) - 1 and float(f"{num_bytes / 1000**power:.3g}") >= 1000:  # 999,999 bytes are 1 MB, not 1e+03 kB
        power += 1
    return f"{num_bytes / 1000**power:.3g} {DECIMAL[power]}"


def memory_size(num_bytes: float) -> str:
    """One digit behind the point: '15.9 GiB'; a whole number of bytes."""
    power = 0
    while power < len(BINARY) - 1 and num_bytes >= 1024 ** (power + 1):
        power += 1
    return f"{num_bytes / 1024**power:.{min(power, 1)}f} {BINARY[power]}"
