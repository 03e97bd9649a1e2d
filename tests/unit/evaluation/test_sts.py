"""STS sets are scored as the published tables score them, and what cannot be scored says so."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.stats

from sentdist.errors import DataError
from sentdist.evaluation.sts import Aggregation, StsScore, jaccard_scores, paired_cosines, score_similarities


def _pairs(num_pairs: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(num_pairs, 8)), generator.normal(size=(num_pairs, 8)), generator.uniform(0, 5, num_pairs)


def score_sts(
    first: np.ndarray, second: np.ndarray, gold: np.ndarray, subsets: list[str], aggregation: Aggregation = "all", where: str = "sts"
) -> StsScore:
    return score_similarities(paired_cosines(first, second, where=where), gold, subsets, aggregation, where=where)


def test_score_is_the_rank_correlation_of_cosines() -> None:
    first, second, gold = _pairs()
    score = score_sts(first, second, gold, ["one"] * 60)
    cosines = np.sum(first * second, axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert score.spearman == pytest.approx(100 * scipy.stats.spearmanr(cosines, gold).statistic)
    assert score.pearson == pytest.approx(100 * scipy.stats.pearsonr(cosines, gold).statistic)
    np.testing.assert_allclose(score.items()["similarity"], cosines, atol=1e-12)


def test_perfect_encoder_scores_100_and_its_mirror_minus_100() -> None:
    angles = np.linspace(0, np.pi, 30)
    first = np.tile([1.0, 0.0], (30, 1))
    second = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert score_sts(first, second, 5 - angles, ["one"] * 30).spearman == pytest.approx(100)
    assert score_sts(first, second, angles, ["one"] * 30).spearman == pytest.approx(-100)


def test_spearman_ignores_a_common_rotation_a_scale_and_monotone_changes_of_gold() -> None:
    first, second, gold = _pairs()
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0]
    plain = score_sts(first, second, gold, ["one"] * 60).spearman
    assert score_sts(3 * first @ rotation, second @ rotation, np.exp(gold), ["one"] * 60).spearman == pytest.approx(plain)


def test_aggregations_differ_as_defined() -> None:
    first, second, gold = _pairs()
    subsets = ["small"] * 10 + ["large"] * 50
    joined, mean, wmean = (score_sts(first, second, gold, subsets, how) for how in ("all", "mean", "wmean"))
    small, large = (part.spearman for part in joined.subsets)
    assert small is not None and large is not None
    assert mean.spearman == pytest.approx((small + large) / 2)
    assert wmean.spearman == pytest.approx((10 * small + 50 * large) / 60)
    assert joined.spearman == pytest.approx(score_sts(first, second, gold, ["one"] * 60).spearman)
    cosines = joined.similarities
    linear_small, linear_large = (100 * scipy.stats.pearsonr(cosines[part], gold[part]).statistic for part in (slice(10), slice(10, 60)))
    assert mean.pearson == pytest.approx((linear_small + linear_large) / 2)
    assert wmean.pearson == pytest.approx((10 * linear_small + 50 * linear_large) / 60)


def test_a_constant_has_no_correlation() -> None:
    first, second, gold = _pairs()
    assert score_sts(first, second, np.full(60, 3.0), ["one"] * 60).spearman is None
    collapsed = np.tile(first[:1], (60, 1)) * (1 + 1e-8 * second)
    assert score_sts(collapsed, collapsed[::-1], gold, ["one"] * 60).spearman is None
    half_constant = np.r_[np.full(30, 2.0), gold[30:]]
    assert score_sts(first, second, half_constant, ["a"] * 30 + ["b"] * 30, "mean").spearman is None
    assert score_sts(first, second, half_constant, ["a"] * 30 + ["b"] * 30, "all").spearman is not None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda first, gold, subsets: first.__setitem__((3, 0), np.nan), "NaN or infinity, first in row 3"),
        (lambda first, gold, subsets: first.__setitem__(4, 0.0), "length 0 in row 4"),
        (lambda first, gold, subsets: gold.__setitem__(0, np.nan), "1 gold scores"),
        (lambda first, gold, subsets: subsets.pop(), "59 subset names"),
    ],
)
def test_bad_input_is_named(spoil, message) -> None:  # type: ignore[no-untyped-def]
    first, second, gold = _pairs()
    subsets = ["one"] * 60
    spoil(first, gold, subsets)
    with pytest.raises(DataError, match=message) as caught:
        score_sts(first, second, gold, subsets, where="sts12")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert "sts12" in str(caught.value)


def test_misspelt_aggregation_and_unequal_shapes_are_refused() -> None:
    first, second, gold = _pairs()
    with pytest.raises(DataError, match="all, mean or wmean"):
        score_sts(first, second, gold, ["one"] * 60, "average")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="one embedding of each sentence"):
        score_sts(first, second[:30], gold, ["one"] * 60)
    with pytest.raises(DataError, match="neither of them 0"):
        score_sts(first[:0], second[:0], gold[:0], [])


def test_jaccard_counts_words_once() -> None:
    np.testing.assert_allclose(jaccard_scores(["A cat cat sat", "", "x"], ["a dog sat", "", "y"]), [0.5, 0.0, 0.0])


# The word-overlap probe of each public set: (set, split) -> all, mean, wmean. Any slip in aggregation, tokens or splits moves them.
PROBES = {
    ("sts12", "test"): (0.4304, 0.5152, 0.5243),
    ("sts13", "test"): (0.4882, 0.4282, 0.4946),
    ("sts14", "test"): (0.5110, 0.5837, 0.5981),
    ("sts15", "test"): (0.6722, 0.6367, 0.6600),
    ("sts16", "test"): (0.5689, 0.5744, 0.5866),
    ("stsb", "test"): (0.5183,),
    ("stsb", "dev"): (0.6299,),
    ("stsb", "train"): (0.5444,),
    ("stsb", None): (0.5609,),
    ("sick", "test"): (0.5648,),
    ("sick", "trial"): (0.5738,),
    ("sick", "train"): (0.5669,),
    ("sick", None): (0.5664,),
}


@pytest.mark.data
@pytest.mark.parametrize(("name", "split"), PROBES)
def test_word_overlap_probe(data_root: Path, name: str, split: str | None) -> None:
    table = pq.read_table(data_root / "sts" / f"{name}.parquet").to_pydict()
    kept = [row for row, found in enumerate(table["split"]) if split in (None, found)]
    column = {key: [values[row] for row in kept] for key, values in table.items()}
    overlaps = jaccard_scores(column["sentence1"], column["sentence2"])
    for aggregation, expected in zip(("all", "mean", "wmean"), PROBES[name, split], strict=False):
        score = score_similarities(overlaps, column["score"], column["subset"], aggregation)  # type: ignore[arg-type]
        # The published probes have four decimals.
        assert score.spearman == pytest.approx(100 * expected, abs=0.00501)
