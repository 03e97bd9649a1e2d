"""What a column of scores varies by, and the tests of significance on it, against the classical test of each special case."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import polygamma
from scipy.stats import t, ttest_1samp, ttest_rel

from sentdist.evaluation.significance import ONE_GROUP, Difference, against, may_be_best, over_tasks
from sentdist.evaluation.variation import Column, Entry, moderated

CLOSE = 0.02  # of p: critical values are read off a grid


def _trained(label: str, scores: Sequence[float] | NDArray[np.float64], seeds: Sequence[int] | None = None) -> Entry:
    return Entry(label=label, scores=np.asarray(scores, dtype=np.float64), seeds=tuple(range(len(scores)) if seeds is None else seeds))


def _one(column: Column, other: str = "base") -> Difference:
    return against([column], [[("ours", other)]])[0][0]


def test_seeds_alone_are_students_paired_test() -> None:
    ours, base = [82.1, 82.5, 82.4, 82.6], [81.2, 81.9, 81.6, 82.0]
    found = _one(Column([_trained("ours", ours), _trained("base", base)]))
    expected = ttest_rel(ours, base)
    assert found.p == pytest.approx(expected.pvalue, rel=CLOSE) and found.about == "seeds"
    low, high = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01) and found.table_p == found.p
    differences = np.subtract(ours, base)
    assert found.error == pytest.approx(differences.std(ddof=1) / 2), "not the interval's width over 1.96, which is Student's"


def test_one_seed_speaks_of_items_alone_and_of_nothing_without_them() -> None:
    items = np.array([[0.1, -0.2, 0.1]])
    entries = [
        Entry(label=label, scores=np.array([80.0]), seeds=(0,), contributions=items * sign) for label, sign in (("ours", 1), ("base", -1))
    ]
    assert _one(Column(entries, [1 / 3] * 3)).about == "items"
    one_group = [replace(entry, contributions=np.zeros((1, 1))) for entry in entries]
    assert _one(Column(one_group, [1.0])).about == "nothing", "items that all hang together are one item"
    assert _one(Column(one_group, [1.0])).reason == ONE_GROUP
    bare = _one(Column([_trained("ours", [80.0]), _trained("base", [81.0])]))
    assert bare.difference == -1.0 and bare.p is None and bare.low is None and bare.reason.startswith("one seed and no test items")


def test_other_tasks_are_students_test_over_tasks() -> None:
    gains = np.array([[0.5, 1.5, 0.9, -0.2, 1.1]])
    found = over_tasks(gains)
    assert found is not None and found.p == pytest.approx(ttest_1samp(gains[0], 0).pvalue, rel=CLOSE)
    assert over_tasks(gains[:, :2]) is None and over_tasks(np.zeros((3, 5))) is None


def test_who_may_be_best() -> None:
    generator = np.random.default_rng(3)
    column = Column([_trained(label, gain + generator.normal(0, 0.1, 5)) for label, gain in (("a", 0), ("b", 2), ("c", 2), ("d", 0))])
    best, alive, reported = may_be_best(column)
    assert best in alive == {"b", "c"} and reported == {"a", "d"}


def test_nothing_may_be_the_best_beside_a_higher_row_without_a_test() -> None:
    """What else is best among the rest is not the best of its column."""
    for highest in [_trained("highest", [100.0] * 3), _trained("highest", [100.0])]:
        column = Column([highest, _trained("good", [60.0, 61.2, 59.5]), _trained("bad", [50.1, 51.0, 49.5])])
        assert may_be_best(column) == ("highest", frozenset(), frozenset())


def _entry(
    label: str, scores: Sequence[float] | NDArray[np.float64], seeds: Sequence[int], items: NDArray[np.float64] | None = None
) -> Entry:
    return Entry(label=label, scores=np.asarray(scores, dtype=np.float64), seeds=tuple(seeds), contributions=items)


def _half(column: Column, label: str) -> float:
    found = column.interval(label)
    assert found is not None
    return (found.high - found.low) / 2


def _one_of_variation(column: Column, ours: str = "ours", other: str = "base") -> Difference:
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


def test_what_seeds_give_items_is_counted_once() -> None:
    """Two seeds, which move the items against each other; `given` is the variance of the mean of these encoders over items."""
    for moved in [0.0, 0.5, 2.0]:
        for is_paired in [True, False]:
            mean, apart = np.array([1.0, -0.5, -0.5, 0.0]), moved * np.array([0.5, 0.5, -0.5, -0.5])
            ours = _entry("ours", [80.0, 81.0], (0, 1), np.stack([mean + apart, mean - apart]))
            others = [_entry(f"other {row}", [80.0 + row, 80.5], (5, 6) if not is_paired else (0, 1), np.zeros((2, 4))) for row in (0, 1)]
            alone = Column([ours] if is_paired else [ours, *others], [0.25] * 4)
            of_items = max(0.0, 4 / 3 * (float(mean @ mean) - float(apart @ apart)))
            of_seeds = 0.5 / 2
            variance = of_items + of_seeds
            multiple = (of_items * t.isf(0.025, 3) + of_seeds * t.isf(0.025, 1)) / variance
            assert _half(alone, "ours") == pytest.approx(multiple * np.sqrt(variance))


def test_runs_of_one_score_are_copies_only_if_their_items_agree_too() -> None:
    items = np.array([[1.0, -1.0], [1.0, -1.0]])
    assert _entry("same", [70.0, 70.0], (0, 1)).is_copies and _entry("same", [70.0, 70.0], (0, 1), items).is_copies
    assert not _entry("by chance", [70.0, 70.0], (0, 1), items * [[1.0], [-1.0]]).is_copies


def test_the_degrees_of_items_are_those_of_their_shares() -> None:
    weights = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    ours, base = np.array([0.6, -0.2, -0.2, 0.1, -0.3]), np.array([-0.1, 0.3, 0.1, -0.2, -0.1])
    found = _one_of_variation(Column([_entry("ours", [80.0], (), ours[None]), _entry("base", [79.5], (), base[None])], weights))
    assert found.low is not None and found.high is not None
    margin = t.isf(0.025, 1 / 0.28 - 1) * np.sqrt(5 / 4 * np.sum((ours - base) ** 2))
    assert (found.high - found.low) / 2 == pytest.approx(margin, rel=5e-3)  # between two points of the grid


def test_few_seeds_beside_a_checkpoint_tell_by_their_signs() -> None:
    for seeds, by_signs in [(3, True), (5, True), (6, False)]:
        scores = 90 + np.arange(seeds) / 1000
        found = _one_of_variation(Column([_entry("ours", scores, range(seeds)), _entry("base", [80.0], ())]))
        assert found.p == 2.0 ** (1 - seeds) and found.by_signs == by_signs and found.is_significant != by_signs
        others = [_entry(str(row), scores + row, range(seeds)) for row in range(4)]  # five rows know how trainings are spread
        assert (_one_of_variation(Column([_entry("ours", scores, range(seeds)), *others, _entry("base", [80.0], ())])).p or 1.0) < 0.001


def test_what_no_draw_reaches_has_bonferronis_p() -> None:
    draw, seeds = np.random.default_rng(7), range(60)
    rows = [_entry(str(row), draw.normal(4.0 if row == 0 else 0.0, 1, 60), range(100 * row, 100 * row + 60)) for row in range(9)]
    (first, *_) = against([Column([*rows, _entry("base", draw.normal(0, 1, 60), seeds)])], [[(str(row), "base") for row in range(9)]])[0]
    assert first.p is not None and first.table_p is not None and first.p < 1e-6 and first.table_p / first.p == pytest.approx(9)


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


def test_six_variances_weigh_as_far_as_they_scatter_beyond_chance() -> None:
    """trigamma(prior / 2) is the variance of their logarithms, six drawn from many, less that of ten degrees of freedom (Smyth 2004)."""
    variances = np.array([0.1, 0.5, 1.0, 2.0, 4.0, 9.0])
    beyond = statistics.variance(np.log(variances).tolist()) - polygamma(1, 5.0)
    prior = 2 * brentq(lambda half: polygamma(1, half) - beyond, 0.01, 1000.0)
    np.testing.assert_allclose(moderated(variances, np.full(6, 10.0))[1], 10 + prior)


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


def test_a_mean_says_nothing_where_one_of_its_tasks_does_not() -> None:
    """All items of the second task hang together, as one: how it would be on others, nobody knows."""
    added = np.array([[3.0, -1.0, -2.0, 0.0]])
    entries = [_entry(label, [score], (), sign * added) for label, score, sign in (("ours", 80.0, 1), ("base", 79.0, -1))]
    assert _one_of_variation(Column(entries, [1 / 6] * 3 + [0.5], [0, 0, 0, 1])).about == "nothing"
    assert _one_of_variation(Column(entries, [1 / 6] * 3 + [0.5])).about == "items"
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
