"""The shape of a cloud of embeddings, against loops over pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sentdist.evaluation.geometry import alignment, effective_rank, mean_cosine, measure_geometry, singular_values, uniformity


@pytest.fixture
def cloud() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(23, 5)) + 0.5


def test_against_loops_over_pairs(cloud: np.ndarray) -> None:
    unit = cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
    pairs = list(itertools.combinations(range(23), 2))
    distances = [np.sum((unit[i] - unit[j]) ** 2) for i, j in pairs]
    assert uniformity(cloud) == pytest.approx(np.log(np.mean(np.exp(-2 * np.array(distances)))), abs=1e-12)
    assert mean_cosine(cloud) == pytest.approx(np.mean([unit[i] @ unit[j] for i, j in pairs]), abs=1e-12)
    assert alignment(cloud[:10], cloud[10:20]) == pytest.approx(np.mean(np.sum((unit[:10] - unit[10:20]) ** 2, axis=1)))


def test_tiling_changes_nothing(cloud: np.ndarray) -> None:
    for rows_per_tile in [1, 22]:
        assert uniformity(cloud, rows_per_tile=rows_per_tile) == pytest.approx(uniformity(cloud), abs=1e-12)


def test_extremes() -> None:
    axes = np.eye(6)
    assert effective_rank(singular_values(axes)) == pytest.approx(6)
    assert effective_rank(np.array([3.0, 1.0])) == pytest.approx(0.75**-0.75 * 0.25**-0.25)
    assert mean_cosine(axes) == pytest.approx(0)
    collapsed = np.ones((6, 6))
    assert effective_rank(singular_values(collapsed)) == pytest.approx(1)
    assert mean_cosine(collapsed) == pytest.approx(1)
    assert uniformity(collapsed) == pytest.approx(0)
    assert uniformity(np.array([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(-8)
    assert np.sum(singular_values(axes) ** 2) == pytest.approx(1)


def test_alignment_is_absent_without_positives(cloud: np.ndarray) -> None:
    measured = measure_geometry(cloud)
    assert measured.alignment is None and measured.num_positive_pairs == 0 and measured.num_sentences == 23
