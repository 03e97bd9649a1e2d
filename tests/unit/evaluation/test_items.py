"""What items add to a score: contributions by measure, groups, folds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, v_measure_score

from sentdist.data.leaks import TaskTexts
from sentdist.errors import DataError
from sentdist.evaluation import items
from sentdist.evaluation.items import items_of, joined


def test_items_that_share_a_text_belong_together() -> None:
    texts = TaskTexts.of_pairs("pairs", [("a", "b"), ("c", "d"), ("b", "e"), ("f", "c"), ("g", "h")])
    groups = texts.groups()
    assert groups[0] == groups[2] and groups[1] == groups[3] and len(set(groups.tolist())) == 3


def test_groups_sum_their_items_and_keep_their_shares() -> None:
    columns = {"accuracy": np.array([100.0, 0.0, 100.0, 100.0]), "group": np.array([1, 0, 1, 2]), "query_id": np.array(list("abcd"))}
    found = items_of(columns, task="mine", where="here")
    assert found is not None and found.has_groups and found.identity.tolist() == list("abcd")
    np.testing.assert_allclose(found.by_group(), [-75 / 4, 50 / 4, 25 / 4])
    np.testing.assert_allclose(found.group_weights(), [0.25, 0.5, 0.25])


def test_folds_weigh_alike_whatever_their_size() -> None:
    folds = [items_of({"map": np.array(values)}, task="faq:map", where="here") for values in ([10.0, 30.0], [50.0, 60.0, 70.0])]
    both = joined([fold for fold in folds if fold is not None])
    np.testing.assert_allclose(both.weights, [1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6])
    np.testing.assert_allclose(both.contributions, [-5 / 2, 5 / 2, -10 / 6, 0, 10 / 6], atol=1e-12)


def test_parts_vary_by_themselves_but_those_that_have_a_group_in_common() -> None:
    parts = [
        items_of({"map": np.array(values), "group": np.array(groups)}, task="faq:map", where="here")
        for values, groups in (([1.0, 5.0, 9.0], [7, 3, 7]), ([2.0, 4.0], [8, 1]), ([6.0, 0.0], [3, 2]))
    ]
    found = joined([part for part in parts if part is not None])
    assert found.parts.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert found.strata.tolist() == [0, 0, 0, 1, 1]  # groups 2, 3 and 7, then 1 and 8
    np.testing.assert_allclose(found.group_weights(), np.array([1 / 2, 1 / 3 + 1 / 2, 2 / 3, 1 / 2, 1 / 2]) / 3)
    np.testing.assert_allclose(found.by_group(), np.array([-1.5, 1.5, 0, 0.5, -0.5]) / 3, atol=1e-12)


def test_a_mean_over_parts_gives_each_part_one_share() -> None:
    columns = {"map@100": np.array([10.0, 30.0, 60.0]), "stratum": np.array(["a", "a", "b"]), "query_id": np.array(list("xyz"))}
    found = items_of(columns, task="forums", where="here")
    assert found is not None
    np.testing.assert_allclose(found.weights, [1 / 4, 1 / 4, 1 / 2])
    np.testing.assert_allclose(found.contributions, [-10 / 4, 10 / 4, 0.0])
    assert found.strata.tolist() == [0, 0, 1]


def test_what_has_no_spread_has_no_items_and_what_has_no_column_is_refused() -> None:
    constant = {"similarity": np.ones(3), "score": np.arange(3.0)}
    assert items_of(constant, task="sts", where="here") is None
    assert items_of({"label": np.arange(3), "cluster": np.zeros(3)}, task="c", where="here") is None
    with pytest.raises(DataError, match='or "mrr"'):
        items_of({"map": np.ones(2)}, task="faq:mrr", where="here")


COPIES = 200  # of all items but one: an item more is then a small step of its weight


def _data(kind: str, size: int = 40) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    generator = np.random.default_rng(3)
    gold = np.round(generator.uniform(0, 5, size))
    found = np.round(gold + generator.normal(0, 2, size), 1 if kind == "spearman" else 0)
    return (found, gold) if kind == "spearman" else (found, (gold > 2).astype(float))


MEASURES: dict[str, tuple[Callable[..., NDArray[np.float64]], Callable[[NDArray[np.float64], NDArray[np.float64]], float]]] = {
    "spearman": (items.of_spearman, lambda found, gold: spearmanr(found, gold).statistic),
    "ap": (items.of_average_precision, lambda found, gold: average_precision_score(gold, found)),
    "mean": (lambda found, gold: items.of_mean(100 * found), lambda found, gold: float(np.mean(found))),
}


def test_an_item_of_a_clustering_adds_what_is_lost_without_it() -> None:
    found, gold = _data("v")
    without = np.array([100 * v_measure_score(np.delete(gold, item), np.delete(found, item)) for item in range(len(gold))])
    expected = (without.mean() - without) * (len(gold) - 1) / len(gold)
    np.testing.assert_allclose(items.of_v_measure(found, gold), expected, atol=1e-10)


def test_an_item_more_moves_the_score_by_its_contribution() -> None:
    """All items COPIES times and one of them once more, against the derivative; ties in all lists."""
    for name in list(MEASURES):
        found, gold = _data(name)
        contribution, score = MEASURES[name]
        many_found, many_gold = np.tile(found, COPIES), np.tile(gold, COPIES)
        before = score(many_found, many_gold)
        moved = [score(np.append(many_found, one), np.append(many_gold, other)) - before for one, other in zip(found, gold, strict=True)]
        expected = contribution(found, gold) / 100 / COPIES
        np.testing.assert_allclose(moved, expected, rtol=0.05, atol=np.abs(expected).max() * 0.02)  # the second derivative is left
        assert abs(expected.sum()) < 1e-12
