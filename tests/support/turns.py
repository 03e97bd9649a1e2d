"""Tests marked `in_turns` share the days: on each day a third of them runs, and within three days each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from zlib import crc32

import pytest

NUM_TURNS = 3


def others(items: Iterable[pytest.Item], day: int) -> list[pytest.Item]:
    """The tests that have their turn on another day.

    Of the cases of one test every third is left, so that each day has some of them. Tests of one file without cases have one turn,
    since they often share what takes long: by the file's name, or the one that the mark names, so that no day has all that is long.

    Args:
        items: in the order in which they were collected, which is the same in each process.
        day: since any day.
    """
    seen: Counter[str] = Counter()
    found = []
    for item in items:
        mark = item.get_closest_marker("in_turns")
        if mark is None:
            continue
        family, _, case = item.nodeid.partition("[")
        (first,) = mark.args or (crc32(item.nodeid.partition("::")[0].encode()),)
        if (first + seen[family] - day) % NUM_TURNS:
            found.append(item)
        seen[family] += bool(case)
    return found
