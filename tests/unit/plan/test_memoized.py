from __future__ import annotations

from collections import Counter

import pytest

from sentdist.plan.stage import memoized
from sentdist.plan.unroll import unroll
from tests.support.planning import FixedResolver, small_recipe


class Adder:
    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.asked: list[tuple[int, int]] = []

    @memoized
    def add(self, one: int, *, other: int = 0) -> int:
        """The sum."""
        self.asked.append((one, other))
        if one < 0:
            raise ValueError(one)
        return self.offset + one + other


def test_an_answer_is_worked_out_once_for_each_object() -> None:
    first, second = Adder(1), Adder(2)
    assert [first.add(1), first.add(1), first.add(1, other=3), first.add(1, other=3)] == [2, 2, 5, 5]
    assert (second.add(1), second.asked) == (3, [(1, 0)])
    assert first.asked == [(1, 0), (1, 3)]
    assert Adder.add.__doc__ == "The sum."


def test_what_raises_is_asked_again() -> None:
    adder = Adder(0)
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            adder.add(-1)
    assert adder.asked == [(-1, 0), (-1, 0)]


@pytest.mark.parametrize("num_seeds", [1, 5])
def test_a_plan_asks_for_data_as_often_whatever_the_number_of_seeds(num_seeds: int) -> None:
    resolver = FixedResolver()
    unroll(small_recipe(seeds=list(range(num_seeds))), resolver)
    assert Counter(resolver.asked) == {"nli/triplets": 1, "sts/stsb": 2}  # STS-B to choose and to score
