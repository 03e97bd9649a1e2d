"""The best of so many trials against a count of all draws and orders."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sentdist.errors import DataError
from sentdist.evaluation.search_statistics import BestByCost, best_by_cost, best_quantiles, chance_of_more, expected_best, optimism

SCORES = [70.0, 72.5, 72.5, 71.0, 75.0, 60.0]
OTHERS = [71.0, 73.0, 72.5, 74.0]


def test_the_expected_best_is_the_mean_over_all_draws_without_replacement() -> None:
    by_hand = [np.mean([max(draw) for draw in itertools.combinations(SCORES, num)]) for num in range(1, len(SCORES) + 1)]
    assert expected_best(SCORES) == pytest.approx(by_hand, abs=1e-9)
    assert expected_best([80.0]).tolist() == [80.0]


def test_it_is_unbiased_where_drawing_with_replacement_is_too_low() -> None:
    # Whole searches of 5 trials from a known distribution, the numbers 0 … 9: the truth for the best of 3 is a sum by hand.
    truth = sum(value * (((value + 1) / 10) ** 3 - (value / 10) ** 3) for value in range(10))
    random = np.random.default_rng(0)
    searches = random.integers(0, 10, (4000, 5)).astype(float)
    found = np.array([expected_best(search)[2] for search in searches])
    assert abs(found.mean() - truth) < 4 * found.std() / math.sqrt(len(found))
    with_replacement = np.mean([np.mean([max(draw) for draw in itertools.product(search, repeat=3)]) for search in searches[:300]])
    assert with_replacement < truth - 0.2


def test_the_band_holds_the_quantiles_of_draws_with_replacement() -> None:
    for num in (1, 2, 3):
        draws = np.sort([max(draw) for draw in itertools.product(SCORES, repeat=num)])
        by_hand = [draws[math.ceil(level * len(draws)) - 1] for level in (0.1, 0.5, 0.9)]
        assert best_quantiles(SCORES, (0.1, 0.5, 0.9))[:, num - 1].tolist() == by_hand


@pytest.mark.parametrize("num", [1, 2, 3])
def test_who_wins_at_a_budget_is_counted_over_all_pairs_of_searches(num: int) -> None:
    pairs = itertools.product(itertools.product(SCORES, repeat=num), itertools.product(OTHERS, repeat=num))
    by_hand = np.mean([(max(ours) > max(theirs)) + 0.5 * (max(ours) == max(theirs)) for ours, theirs in pairs])
    assert chance_of_more(SCORES, OTHERS, num) == pytest.approx(by_hand, abs=1e-9)
    assert chance_of_more(SCORES, SCORES, num) == pytest.approx(0.5)


@pytest.mark.parametrize("num", [1, 2, 4, 5, 8])
def test_trials_that_are_all_that_there_can_be_are_each_drawn_once(num: int) -> None:
    """More draws than trials find the best of them for sure."""
    ours = [max(draw) for draw in itertools.combinations(SCORES, min(num, len(SCORES)))]
    theirs = [max(draw) for draw in itertools.combinations(OTHERS, min(num, len(OTHERS)))]
    by_hand = np.mean([(one > other) + (one == other) / 2 for one, other in itertools.product(ours, theirs)])
    assert chance_of_more(SCORES, OTHERS, num, are_all=(True, True)) == pytest.approx(by_hand, abs=1e-9)
    if num <= 4:  # a grid, which is drawn once, beside a search that may have had another luck
        theirs = [max(draw) for draw in itertools.product(OTHERS, repeat=num)]
        by_hand = np.mean([(one > other) + (one == other) / 2 for one, other in itertools.product(ours, theirs)])
        assert chance_of_more(SCORES, OTHERS, num, are_all=(True, False)) == pytest.approx(by_hand, abs=1e-9)
        assert chance_of_more(OTHERS, SCORES, num, are_all=(False, True)) == pytest.approx(1 - by_hand, abs=1e-9)
    if num <= len(SCORES):
        quantiles = np.quantile(ours, (0.1, 0.9), method="inverted_cdf")
        assert best_quantiles(SCORES, are_all=True)[:, num - 1].tolist() == quantiles.tolist()


def _place(found: BestByCost, cost: float) -> int:
    """The first that is not below a cost. Costs of trials here are whole numbers: what is known at it is known just above it."""
    return int(np.searchsorted(found.costs, cost - 1e-9))


def test_the_best_so_far_over_orders_is_that_of_all_orders() -> None:
    scores, costs = [70.0, -math.inf, 75.0, 72.0], [1.0, 2.0, 4.0, 3.0]
    found = best_by_cost(scores, costs)
    at = {cost: _place(found, cost) for cost in range(11)}
    for cost in (0, 1, 3, 4, 6, 10):
        best = []
        for order in itertools.permutations(range(4)):
            paid = np.cumsum([costs[place] for place in order])
            best.append(max((scores[place] for place, sum_ in zip(order, paid, strict=True) if sum_ <= cost), default=-math.inf))
        share_of_none = np.mean(np.isinf(best))
        if abs(share_of_none - 0.5) > 0.05:
            assert math.isinf(found.middle[at[cost]]) == (share_of_none > 0.5)
        assert min(best) <= found.low[at[cost]] <= found.middle[at[cost]] <= found.high[at[cost]] <= max(best)
    assert (found.low[-1], found.middle[-1], found.high[-1]) == (75.0, 75.0, 75.0)
    assert found.costs[-1] == 10.0


def test_the_band_over_orders_holds_eight_of_ten() -> None:
    found = best_by_cost(np.arange(1.0, 17.0), [1.0] * 16)
    one = _place(found, 1)
    assert (found.low[one], found.middle[one], found.high[one]) == (2.0, pytest.approx(8.5, abs=0.5), 15.0)  # 1.6th and 14.4th of sixteen


def test_the_median_over_orders_rises_with_cost() -> None:
    found = best_by_cost([70.0, 71.0, 72.0, 73.0, 74.0], [1.0] * 5)
    assert [found.middle[_place(found, cost)] for cost in range(1, 6)] == [
        72.0,
        73.0,
        74.0,
        74.0,
        74.0,
    ]  # medians of the best of 1 … 5 of five


def test_at_the_last_cost_all_trials_are_made_in_whatever_order_their_costs_are_added() -> None:
    assert 0.1 + 0.2 + 0.3 > 0.3 + 0.2 + 0.1, "by rounding"
    found = best_by_cost([73.0, 72.0, 71.0], [0.3, 0.2, 0.1])
    assert found.low[-1] == found.high[-1] == 73.0


@pytest.mark.parametrize(("scores", "costs"), [([], []), ([70.0], [-1.0]), ([70.0], [1.0, 2.0]), ([math.nan], [1.0])])
def test_what_cannot_be_ordered_is_refused(scores: list[float], costs: list[float]) -> None:
    with pytest.raises(DataError, match="trials"):
        best_by_cost(scores, costs)


def test_scores_that_are_none_are_refused() -> None:
    for scores in ([], [math.inf]):
        with pytest.raises(DataError, match="Leave out trials"):
            expected_best(scores)


def test_optimism_is_what_chose_minus_what_fresh_seeds_give() -> None:
    found = optimism(80.0, [78.0, 79.0, 80.0])
    # t(0.975, 2) = 4.303 from any table; 4.303 · 1 / √3 = 2.484.
    assert (found.points, found.num_fresh) == (1.0, 3)
    assert (found.low, found.high) == pytest.approx((1 - 2.484, 1 + 2.484), abs=1e-3)
    assert not found.is_significant
    assert optimism(80.0, [77.0, 77.1, 76.9]).is_significant and optimism(70.0, [77.0, 77.1, 76.9]).is_significant, "above or below"
    alone = optimism(80.0, [79.0])
    assert (alone.points, alone.low, alone.is_significant) == (1.0, None, False)


def test_the_best_of_many_by_luck_is_flattered_by_as_much_as_it_was_lucky() -> None:
    # 16 settings that are equally good; seeds differ by 1 point. The greatest of 16 is 1.77 points above their mean by luck.
    random = np.random.default_rng(0)
    points = [optimism(random.normal(80, 1, 16).max(), random.normal(80, 1, 4)).points for _ in range(2000)]
    assert np.mean(points) == pytest.approx(1.77, abs=0.06)
