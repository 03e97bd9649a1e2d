"""Batches that are made ahead: the same ones in the same order, never too many, and no thread is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sentdist.errors import DataError
from sentdist.learning.prefetch import made_ahead


def _threads() -> int:
    return sum(thread.name == "batches" for thread in threading.enumerate())


def test_items_come_in_order_and_no_more_than_two_are_made_before_they_are_drawn() -> None:
    made: list[int] = []
    drawn = 0
    too_many: list[tuple[int, int]] = []

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            if len(made) > drawn + 3:  # two that wait, and the one that is asked for
                too_many.append((len(made), drawn))
            yield number

    with made_ahead(items) as found:
        for number, item in enumerate(found):
            assert item == number
            drawn += 1
    assert made == list(range(20)) and not too_many
    assert not _threads()


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise DataError(where="corpus", found="nothing", expected="a sentence", remedy="Look.")

    with made_ahead(items) as found:
        assert next(found) == 1 and next(found) == 2
        with pytest.raises(DataError, match="corpus: found nothing"):
            next(found)
    assert not _threads()


@pytest.mark.parametrize("num_drawn", [0, 3])
def test_whoever_stops_early_leaves_no_thread(num_drawn: int) -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    def some() -> Iterator[int]:
        with made_ahead(endless) as found:
            for _ in range(num_drawn):
                yield next(found)

    assert list(some()) == list(range(1, num_drawn + 1))
    assert not _threads()
    broken = some()
    next(broken, None)
    broken.close()
    assert not _threads()


def test_an_error_of_the_reader_leaves_no_thread() -> None:
    with pytest.raises(KeyError), made_ahead(lambda: iter(range(100))) as found:
        raise KeyError(next(found))
    assert not _threads()
