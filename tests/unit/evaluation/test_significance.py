"""The test of significance, where it must agree with the classical test of a special case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import dunnett, ttest_1samp, ttest_rel

from sentdist.errors import DataError
from sentdist.evaluation.items import of_mean
from sentdist.evaluation.significance import ONE_GROUP, Difference, against, may_be_best, over_tasks
from sentdist.evaluation.variation import Column, Entry

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


def test_items_alone_are_students_paired_test_over_items() -> None:
    generator = np.random.default_rng(0)
    ours, base = generator.normal(55, 10, 40), generator.normal(50, 10, 40)
    entries = [
        Entry(label=label, scores=np.array([values.mean()]), seeds=(), contributions=of_mean(values)[None])
        for label, values in (("ours", ours), ("base", base))
    ]
    found = _one(Column(entries, np.full(40, 1 / 40)))
    assert found.about == "items" and found.num_seeds is None and found.p == pytest.approx(ttest_rel(ours, base).pvalue, rel=CLOSE)


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


def test_a_table_is_dunnetts_test_where_rows_share_nothing_but_the_baseline() -> None:
    """Seeds differ, so nothing is paired; twenty rows know their common spread, as Dunnett's pooled one."""
    generator = np.random.default_rng(1)
    samples = generator.normal(0, 1, (21, 8)) + np.r_[0, 1.5, np.zeros(19)][:, None]
    column = Column([_trained(str(row), one, range(100 * row, 100 * row + 8)) for row, one in enumerate(samples)])
    found = against([column], [[(str(row), "0") for row in range(1, 21)]])[0]
    expected = dunnett(*samples[1:], control=samples[0], random_state=0).pvalue
    np.testing.assert_allclose([one.table_p for one in found], expected, rtol=0.15, atol=0.03)


def test_what_would_be_found_is_found_in_four_of_five() -> None:
    generator = np.random.default_rng(2)
    size = float(np.median([_drawn(generator, 0.0).detectable or 0.0 for _ in range(50)]))
    reported = np.mean([_drawn(generator, size).is_significant for _ in range(400)])
    assert reported == pytest.approx(0.8, abs=0.08)  # ± 0.02 by counting, the rest by the spread of what ten seeds say of themselves


def _drawn(generator: np.random.Generator, gain: float) -> Difference:
    return _one(Column([_trained("ours", generator.normal(gain, 1, 10)), _trained("base", generator.normal(0, 1, 10))]))


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


@pytest.mark.parametrize("highest", [_trained("highest", [100.0] * 3), _trained("highest", [100.0])], ids=["copies", "one seed"])
def test_nothing_may_be_the_best_beside_a_higher_row_without_a_test(highest: Entry) -> None:
    """What else is best among the rest is not the best of its column."""
    column = Column([highest, _trained("good", [60.0, 61.2, 59.5]), _trained("bad", [50.1, 51.0, 49.5])])
    assert may_be_best(column) == ("highest", frozenset(), frozenset())


def test_a_checkpoint_without_items_stands_among_the_best_until_it_is_distinguished() -> None:
    """By the signs of six seeds it is, as by the mark beside it; by those of three it is not."""
    rows = {seeds: _trained("ours", np.linspace(70, 71, seeds)) for seeds in (3, 6)}
    found = {}
    for seeds, ours in rows.items():
        column = Column([Entry(label="base", scores=np.array([50.0]), seeds=()), ours])
        found[seeds] = may_be_best(column)[1:]
        assert _one(column).is_significant == ("base" in found[seeds][1])
    assert found == {3: ({"ours", "base"}, frozenset()), 6: ({"ours"}, {"base"})}


@pytest.mark.parametrize("scores", [[], [80.0, float("nan")]])
def test_scores_that_are_none_or_nan_are_refused(scores: list[float]) -> None:
    with pytest.raises(DataError, match="a finite score a seed"):
        Column([_trained("ours", scores)])


def test_a_table_of_pairs_that_share_no_row_has_the_p_of_independent_tests() -> None:
    """Rows of other seeds, each with a baseline of its own: that none of m passes has the chance that one does not, to the power m."""
    samples = np.random.default_rng(4).normal(0, 1, (12, 8))
    samples[:6:2] += np.array([[0.8], [1.2], [2.0]])
    column = Column([_trained(str(row), one, range(100 * row, 100 * row + 8)) for row, one in enumerate(samples)])
    found = against([column], [[(str(row), str(row + 1)) for row in range(0, 12, 2)]])[0]
    expected = [1 - (1 - (one.p or 0.0)) ** 6 for one in found]
    np.testing.assert_allclose([one.table_p for one in found], expected, atol=0.02)  # by 4000 draws
    assert min(expected) < 0.1 < 0.4 < np.median(expected)


def test_a_grid_with_a_baseline_at_each_point_errs_in_five_of_a_hundred_tables() -> None:
    """Two points, a baseline and two rows at each, and what dev chose across them; seeds are paired; nobody is better."""
    generator, tables = np.random.default_rng(5), 400
    pairs = [("a", "base"), ("b", "base"), ("c", "other base"), ("d", "other base"), ("a", "other base")]
    labels = ["base", "a", "b", "other base", "c", "d"]
    reported = 0
    for _ in range(tables):
        scores = generator.normal(0, 1, (6, 5)) + generator.normal(0, 2, 5)
        column = Column([_trained(label, one) for label, one in zip(labels, scores, strict=True)])
        reported += any(one.is_significant for one in against([column], [pairs])[0])
    assert 0.02 < reported / tables < 0.085  # 5 % ± 2.2 % by counting, 1.3 % by 4000 draws and what five seeds say of themselves
