"""What a column's scores vary by: each part of the variance where it can be computed by hand."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import polygamma
from scipy.stats import norm, t

from rayjobs.benchmarks.null_tasks import false_positives_of_means
from sentdist.evaluation.significance import Difference, against, may_be_best, over_tasks
from sentdist.evaluation.variation import Column, Entry, moderated


def _entry(
    label: str, scores: Sequence[float] | NDArray[np.float64], seeds: Sequence[int], items: NDArray[np.float64] | None = None
) -> Entry:
    return Entry(label=label, scores=np.asarray(scores, dtype=np.float64), seeds=tuple(seeds), contributions=items)


def _half(column: Column, label: str) -> float:
    found = column.interval(label)
    assert found is not None
    return (found.high - found.low) / 2


def _one(column: Column, ours: str = "ours", other: str = "base") -> Difference:
    return against([column], [[(ours, other)]])[0][0]


def test_paired_rows_share_out_what_each_varies_by() -> None:
    """A row's own luck and what a seed gives all rows make up, over the rows, what Student's intervals have."""
    draw, seeds = np.random.default_rng(0), range(6)
    shared = draw.normal(0, 1, 6)
    scores = [shared + draw.normal(0, spread, 6) for spread in (0.4, 0.6)]
    column = Column([_entry(label, one, seeds) for label, one in zip("ab", scores, strict=True)])
    squares = [(_half(column, label) / t.isf(0.025, 5)) ** 2 for label in "ab"]
    assert sum(squares) == pytest.approx(sum(one.var(ddof=1) / 6 for one in scores))
    assert squares[0] != pytest.approx(scores[0].var(ddof=1) / 6)


@pytest.mark.parametrize("moved", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("is_paired", [True, False])
def test_what_seeds_give_items_is_counted_once(moved: float, is_paired: bool) -> None:
    """Two seeds, which move the items against each other; `given` is the variance of the mean of these encoders over items."""
    mean, apart = np.array([1.0, -0.5, -0.5, 0.0]), moved * np.array([0.5, 0.5, -0.5, -0.5])
    ours = _entry("ours", [80.0, 81.0], (0, 1), np.stack([mean + apart, mean - apart]))
    others = [_entry(f"other {row}", [80.0 + row, 80.5], (5, 6) if not is_paired else (0, 1), np.zeros((2, 4))) for row in (0, 1)]
    alone = Column([ours] if is_paired else [ours, *others], [0.25] * 4)
    of_items = max(0.0, 4 / 3 * (float(mean @ mean) - float(apart @ apart)))
    of_seeds = 0.5 / 2
    variance = of_items + of_seeds
    multiple = (of_items * t.isf(0.025, 3) + of_seeds * t.isf(0.025, 1)) / variance
    assert _half(alone, "ours") == pytest.approx(multiple * np.sqrt(variance))


def test_luck_that_is_drawn_spreads_as_far_as_differences_are_said_to() -> None:
    """What seeds give items is in the spread over seeds already, in draws as in standard errors."""
    draw, rows = np.random.default_rng(0), range(4)
    items = 0.1 * (draw.normal(size=(4, 1, 40)) + 2 * draw.normal(size=(4, 3, 40)))
    items -= items.mean(axis=2, keepdims=True)
    column = Column([_entry(str(row), draw.normal(80, 0.3, 3), (0, 1, 2), items[row]) for row in rows], [1 / 40] * 40)
    first, second = np.triu_indices(4, 1)
    drawn = (column.draws[:, first] - column.draws[:, second]).std(axis=0)
    np.testing.assert_allclose(drawn, column.pairs(first, second).errors, rtol=0.05)  # 4000 draws know it to 0.011


def test_runs_of_one_score_are_copies_only_if_their_items_agree_too() -> None:
    items = np.array([[1.0, -1.0], [1.0, -1.0]])
    assert _entry("same", [70.0, 70.0], (0, 1)).is_copies and _entry("same", [70.0, 70.0], (0, 1), items).is_copies
    assert not _entry("by chance", [70.0, 70.0], (0, 1), items * [[1.0], [-1.0]]).is_copies


def test_the_degrees_of_items_are_those_of_their_shares() -> None:
    weights = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    ours, base = np.array([0.6, -0.2, -0.2, 0.1, -0.3]), np.array([-0.1, 0.3, 0.1, -0.2, -0.1])
    found = _one(Column([_entry("ours", [80.0], (), ours[None]), _entry("base", [79.5], (), base[None])], weights))
    assert found.low is not None and found.high is not None
    margin = t.isf(0.025, 1 / 0.28 - 1) * np.sqrt(5 / 4 * np.sum((ours - base) ** 2))
    assert (found.high - found.low) / 2 == pytest.approx(margin, rel=5e-3)  # between two points of the grid


def test_which_of_two_is_named_first_does_not_matter() -> None:
    """Two rows are paired, the third ran with seeds of its own: what a seed gives is in its differences, whoever comes first."""
    draw = np.random.default_rng(1)
    shared = draw.normal(0, 2, 5)
    rows = [_entry(label, gain + shared + draw.normal(0, 0.3, 5), range(5)) for label, gain in (("a", 0.0), ("b", 0.5))]
    column = Column([*rows, _entry("c", draw.normal(1, 1, 4), range(10, 14))])
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        there, back = _one(column, one, other), _one(column, other, one)
        assert there.p is not None and back.p == pytest.approx(there.p) and back.difference == -there.difference
        assert (back.low, back.high) == pytest.approx((-(there.high or 0.0), -(there.low or 0.0)))
    paired, apart = _one(column, "a", "b"), _one(column, "a", "c")
    assert (paired.high or 0) - (paired.low or 0) < 0.5 * ((apart.high or 0) - (apart.low or 0))
    assert (paired.num_seeds, apart.num_seeds) == (5, 4), "of the side that has fewer"


def test_a_checkpoint_has_no_seeds_to_count() -> None:
    column = Column([_entry("ours", [81.0, 81.2, 81.1], range(3)), _entry("base", [80.0], ())])
    assert _one(column).num_seeds == 3
    assert _one(Column([_entry("ours", [81.0], ()), _entry("base", [80.0], ())])).num_seeds is None


@pytest.mark.parametrize(("seeds", "by_signs"), [(3, True), (5, True), (6, False)])
def test_few_seeds_beside_a_checkpoint_tell_by_their_signs(seeds: int, by_signs: bool) -> None:
    scores = 90 + np.arange(seeds) / 1000
    found = _one(Column([_entry("ours", scores, range(seeds)), _entry("base", [80.0], ())]))
    assert found.p == 2.0 ** (1 - seeds) and found.by_signs == by_signs and found.is_significant != by_signs
    others = [_entry(str(row), scores + row, range(seeds)) for row in range(4)]  # five rows know how trainings are spread
    assert (_one(Column([_entry("ours", scores, range(seeds)), *others, _entry("base", [80.0], ())])).p or 1.0) < 0.001


def test_columns_are_independent_tests() -> None:
    """Of 500 seeds a normal test: p over the table is that one of its columns stands so far out."""
    draw, seeds = np.random.default_rng(2), range(500)
    base, luck = draw.normal(0, 1, 500), [draw.normal(0, 1, 500) for _ in range(3)]
    columns = [
        Column([_entry("ours", base + gain + one - one.mean(), seeds), _entry("base", base, seeds)])
        for gain, one in zip((0.09, 0.1, 0.11), luck, strict=True)
    ]
    found = [one for (one,) in against(columns, [[("ours", "base")]] * 3)]
    for one in found:
        assert one.p is not None and one.table_p == pytest.approx(1 - (1 - one.p) ** 3, abs=0.015)
    limit = norm.isf((1 - 0.95 ** (1 / 3)) / 2)
    assert ((found[0].high or 0.0) - (found[0].low or 0.0)) / 2 == pytest.approx(found[0].error * limit, rel=0.03), "corrected, as p is"
    assert found[0].detectable == pytest.approx(found[0].error * (limit + norm.ppf(0.8)), rel=0.03)


def test_what_all_rows_share_makes_their_tests_one() -> None:
    """Ten rows that are all but one by their seeds' luck, against a checkpoint: p over the table is p. Rows with luck of their own pay."""
    draw, seeds = np.random.default_rng(6), range(40)
    shared, own = draw.normal(0, 1, 40), draw.normal(0, 1, (10, 40))
    gain = 0.35 - shared.mean()
    found = {}
    for name, rows in (("shared", shared + 1e-3 * own), ("own", own - own.mean(axis=1, keepdims=True) + shared.mean())):
        column = Column([*(_entry(str(row), gain + one, seeds) for row, one in enumerate(rows)), _entry("base", [0.0], ())])
        (found[name], *_) = against([column], [[(str(row), "base") for row in range(10)]])[0]
    one, several = found["shared"], found["own"]
    assert one.p is not None and one.table_p == pytest.approx(one.p, abs=0.006)
    assert several.p is not None and several.table_p == pytest.approx(1 - (1 - several.p) ** 10, abs=0.05)


def test_what_no_draw_reaches_has_bonferronis_p() -> None:
    draw, seeds = np.random.default_rng(7), range(60)
    rows = [_entry(str(row), draw.normal(4.0 if row == 0 else 0.0, 1, 60), range(100 * row, 100 * row + 60)) for row in range(9)]
    (first, *_) = against([Column([*rows, _entry("base", draw.normal(0, 1, 60), seeds)])], [[(str(row), "base") for row in range(9)]])[0]
    assert first.p is not None and first.table_p is not None and first.p < 1e-6 and first.table_p / first.p == pytest.approx(9)


def test_who_may_be_best_is_decided_over_all_columns() -> None:
    scores = np.random.default_rng(3).normal(0, 1, 200)
    scores = (scores - scores.mean()) / scores.std(ddof=1)
    seeds = range(200)
    column = Column([_entry("a", -scores / 2, seeds), _entry("b", scores / 2 + 2.2 / np.sqrt(200), seeds)])  # p 0.028
    assert may_be_best(column)[1] == {"b"}
    assert may_be_best(column, num_columns=4)[1] == {"a", "b"}


def test_other_tasks_and_seeds_are_a_layout_of_both() -> None:
    """Gains by seed and task: the mean squares of the two-way table say how much tasks, seeds and their interaction bring."""
    draw = np.random.default_rng(4)
    gains = 1.0 + draw.normal(0, 1.5, (1, 5)) + draw.normal(0, 0.4, (4, 1)) + draw.normal(0, 0.3, (4, 5))
    (seeds, tasks), found = gains.shape, over_tasks(gains)
    of_task, of_seed = gains.mean(axis=0), gains.mean(axis=1)
    squares_tasks = seeds * np.sum((of_task - gains.mean()) ** 2) / (tasks - 1)
    squares_seeds = tasks * np.sum((of_seed - gains.mean()) ** 2) / (seeds - 1)
    squares_both = np.sum((gains - of_task - of_seed[:, None] + gains.mean()) ** 2) / ((seeds - 1) * (tasks - 1))
    by_task, by_seed = (squares_tasks - squares_both) / (seeds * tasks), squares_seeds / (seeds * tasks)
    margin = (by_task * t.isf(0.025, tasks - 1) + by_seed * t.isf(0.025, seeds - 1)) / np.sqrt(by_task + by_seed)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((gains.mean() - margin, gains.mean() + margin), rel=2e-3)


def test_variances_are_drawn_towards_each_other_by_as_much_as_they_agree() -> None:
    """Rows whose true variances scatter as those of a prior with 8 degrees: it is found again (Smyth 2004)."""
    draw = np.random.default_rng(5)
    true = 4.0 * 8 / draw.chisquare(8, 3000)
    given = np.full(3000, 3.0)
    found, degrees = moderated(true * draw.chisquare(3, 3000) / 3, given)
    prior = float(degrees[0]) - 3
    assert prior == pytest.approx(8, rel=0.2) and np.all(degrees == degrees[0])
    own = found * degrees[0] / 3
    assert np.min(own) * 3 / prior == pytest.approx(4.0, rel=0.1), "of a row without spread of its own, the common value is left"


def test_six_variances_weigh_as_far_as_they_scatter_beyond_chance() -> None:
    """trigamma(prior / 2) is the variance of their logarithms, six drawn from many, less that of ten degrees of freedom (Smyth 2004)."""
    variances = np.array([0.1, 0.5, 1.0, 2.0, 4.0, 9.0])
    beyond = statistics.variance(np.log(variances).tolist()) - polygamma(1, 5.0)
    prior = 2 * brentq(lambda half: polygamma(1, half) - beyond, 0.01, 1000.0)
    np.testing.assert_allclose(moderated(variances, np.full(6, 10.0))[1], 10 + prior)


def test_rows_are_paired_by_the_seeds_that_most_of_them_have() -> None:
    draw = np.random.default_rng(2)
    seeds = ((0, 1, 2), (3, 4), (3, 4), (0, 1, 2), (3, 4))
    column = Column([_entry(str(row), draw.normal(size=len(own)), own) for row, own in enumerate(seeds)])
    assert column._is_paired.tolist() == [False, True, True, False, True]


def test_rows_of_one_spread_know_it_together() -> None:
    variances, given = np.array([1.0, 1.1, 0.9, 1.3, 0.8, 0.0]), np.array([2.0, 2.0, 2.0, 4.0, 4.0, 2.0])
    found, degrees = moderated(variances, given)
    weight = (5 - 3) * 2.0
    common = float(np.average(variances[:5], weights=given[:5]))
    np.testing.assert_allclose(found[:5], (weight * common + given[:5] * variances[:5]) / (weight + given[:5]))
    np.testing.assert_allclose(degrees, [6, 6, 6, 8, 8, 2])
    assert found[5] == 0.0, "copies stay copies"
    few = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(moderated(few, np.full(3, 2.0))[0], few)


@pytest.mark.in_turns
@pytest.mark.parametrize("sizes", [(4, 500), (3, 3, 3), (8,) * 7, (30,)])
def test_a_mean_over_tiny_test_sets_keeps_its_level(sizes: tuple[int, ...]) -> None:
    """2,000 tables: 5 % is counted as 5 ± 1. Taken for one test set, four groups beside five hundred are significant in 15 %."""
    assert 0.02 <= false_positives_of_means(sizes, count=2000) <= 0.065


def test_a_mean_says_nothing_where_one_of_its_tasks_does_not() -> None:
    """All items of the second task hang together, as one: how it would be on others, nobody knows."""
    added = np.array([[3.0, -1.0, -2.0, 0.0]])
    entries = [_entry(label, [score], (), sign * added) for label, score, sign in (("ours", 80.0, 1), ("base", 79.0, -1))]
    assert _one(Column(entries, [1 / 6] * 3 + [0.5], [0, 0, 0, 1])).about == "nothing"
    assert _one(Column(entries, [1 / 6] * 3 + [0.5])).about == "items"
    assert Column(entries, [1 / 6] * 3 + [0.5], [0, 0, 0, 1]).interval("ours") is None


def test_each_task_of_a_mean_is_a_stratum() -> None:
    """The variance of a mean of means, with each task's own n − 1."""
    draw = np.random.default_rng(5)
    items = [draw.normal(0, 3, size) for size in (3, 12)]
    added = np.concatenate([(one - one.mean()) / len(one) / 2 for one in items])
    weights, task_of = np.repeat([1 / 6, 1 / 24], [3, 12]), np.repeat([0, 1], [3, 12])
    column = Column([_entry("ours", [80.0], (), added[None])], weights, task_of)
    of_tasks = np.array([one.var(ddof=1) / len(one) / 4 for one in items])
    degrees = of_tasks.sum() ** 2 / float(np.sum(of_tasks**2 / [2, 11]))
    assert _half(column, "ours") == pytest.approx(np.sqrt(of_tasks.sum()) * t.isf(0.025, degrees))
