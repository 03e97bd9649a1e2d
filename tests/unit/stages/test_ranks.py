"""What one rank meets, all ranks learn of: none waits for another that has failed."""

from __future__ import annotations

import pytest

from sentdist.errors import DataError, SentdistError
from sentdist.stages.train_setup import ALONE, Ranks
from tests.support.rank_threads import on_ranks


def _error(rank: int) -> DataError:
    return DataError(where=f"rank {rank}", found="nothing", expected="a row", remedy="Look there.")


@pytest.mark.parametrize("failing", [(0,), (2,), (1, 2)])
def test_the_first_error_of_a_rank_is_raised_on_all_and_what_follows_is_not_done(failing: tuple[int, ...]) -> None:
    done: list[int] = []

    def act(ranks: Ranks) -> None:
        with ranks.errors_on_all():
            if ranks.rank in failing:
                raise _error(ranks.rank)
        done.append(ranks.rank)

    errors = on_ranks(3, act)
    assert [error.where for error in errors if isinstance(error, SentdistError)] == [f"rank {failing[0]}"] * 3
    assert not done
    assert on_ranks(3, lambda ranks: ranks.from_first(lambda: f"made by {ranks.rank}")) == ["made by 0"] * 3


def test_what_the_first_rank_cannot_make_none_gets() -> None:
    def make() -> str:
        raise _error(0)

    assert [str(error) for error in on_ranks(2, lambda ranks: ranks.from_first(make))] == [str(_error(0))] * 2
    with pytest.raises(DataError, match="rank 0"):
        ALONE.from_first(make)


def test_the_first_rank_that_says_something_is_heard_by_all() -> None:
    assert on_ranks(3, lambda ranks: ranks.first_said(f"{ranks.rank}" if ranks.rank else None)) == ["1"] * 3
    assert on_ranks(2, lambda ranks: ranks.first_said(None)) == [None, None]
