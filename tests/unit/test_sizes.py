"""Sizes in bytes, for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentdist.files import BINARY, DECIMAL, disk_size, memory_size


@pytest.mark.parametrize(
    ("num_bytes", "reported"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (999_499, "999 kB"), (999_600, "1 MB"), (999_600_000, "1 GB"), (125_400_000, "125 MB"),
        (1_254_000_000, "1.25 GB"), (10**18, "1 EB"),
    ],
)  # fmt: skip
def test_disks_have_three_digits(num_bytes: int, reported: str) -> None:
    assert disk_size(num_bytes) == reported


@pytest.mark.parametrize(
    ("num_bytes", "reported"),
    [
        (0, "0.0 KiB"),
        (1024, "1.0 KiB"),
        (2**30 - 1, "1.0 GiB"),
        (209 * 2**20, "209.0 MiB"),
        (15.94 * 2**30, "15.9 GiB"),
        (3 * 2**40, "3.0 TiB"),
    ],
)
def test_memory_has_one_digit_behind_the_point(num_bytes: float, reported: str) -> None:
    assert memory_size(num_bytes) == reported


@given(st.integers(1024, 10**17))
def test_what_is_read_is_the_size(num_bytes: int) -> None:
    for reported, base, units, error in (
        (disk_size(num_bytes), 1000, DECIMAL, 0.005),
        (memory_size(num_bytes), 1024, ("bytes", *BINARY), 0.05),
    ):
        number, unit = reported.split()
        assert "e" not in number and float(number) < base
        assert math.isclose(float(number) * base ** units.index(unit), num_bytes, rel_tol=error * 1.01)
