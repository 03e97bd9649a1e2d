"""How well k-means clusters of embeddings agree with labels: the V-measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.metrics import checked_embeddings, normalized

DECIMALS = 6  # of a unit vector: below that float32 embeddings hold rounding only


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusteringScore:
    """v_measure: × 100, mean over runs, the harmonic mean of homogeneity and completeness (Rosenberg & Hirschberg 2007); None where there
    are fewer different embeddings than labels. of_runs: each run's. clusters: (S,) of the first run."""

    v_measure: float | None
    of_runs: tuple[float, ...]
    clusters: NDArray[np.int64]


def score_clusters(embeddings_SD: ArrayLike, labels: Sequence[str], *, num_runs: int = 5, where: str = "clustering") -> ClusteringScore:
    """Cluster S embeddings of length 1 into as many clusters as there are labels, by Lloyd's k-means from k-means++ starts of seeds 0, 1,
    ….

    Raises DataError for embeddings that are not finite, and for fewer than two labels.
    """
    unit_SD = normalized(checked_embeddings(embeddings_SD, where=where))
    num_labels = len(set(labels))
    if len(labels) != len(unit_SD) or num_labels < 2:
        raise DataError(
            where=where,
            found=f"{len(labels)} labels, {num_labels} of them different, for {len(unit_SD)} embeddings",
            expected="a label for each, at least two different",
            remedy="Complete the labels.",
        )
    if len(np.unique(np.round(unit_SD, DECIMALS), axis=0)) < num_labels:
        return ClusteringScore(v_measure=None, of_runs=(), clusters=np.zeros(len(unit_SD), dtype=np.int64))
    from sklearn.cluster import KMeans  # scikit-learn takes a second to import
    from sklearn.metrics import v_measure_score

    runs = [KMeans(n_clusters=num_labels, n_init=1, random_state=seed).fit_predict(unit_SD) for seed in range(num_runs)]
    scores = tuple(100.0 * float(v_measure_score(list(labels), clusters)) for clusters in runs)
    return ClusteringScore(v_measure=float(np.mean(scores)), of_runs=scores, clusters=runs[0].astype(np.int64))
