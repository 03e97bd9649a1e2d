"""What has no score, no mean and no test is refused: each call, and a word of its error."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from sentdist.errors import DataError
from sentdist.evaluation.classification import cross_validated, score_clusters, split_classified
from sentdist.evaluation.geometry import measure_geometry, uniformity
from sentdist.evaluation.linear_models import probe_distribution, probe_regression, senteval_cross_validated
from sentdist.evaluation.nearest import search
from sentdist.evaluation.relational import relation_weights
from sentdist.evaluation.retrieval import score_ranking
from sentdist.evaluation.significance import summarize
from sentdist.evaluation.sts import paired_cosines
from sentdist.evaluation.variation import Column, Entry

DRAW = np.random.default_rng(0)
A, B = DRAW.normal(size=(40, 6)), DRAW.normal(size=(40, 6))
GOLD, LABELS = DRAW.uniform(0, 5, 40), [str(row % 2) for row in range(40)]
NAMES = ("entailment", "duplicate-question")


def _with(values: np.ndarray, row: int, value: float) -> np.ndarray:
    changed = values.copy()
    changed[row] = value
    return changed


def _ranked(documents: list[str], qrels: dict[str, dict[str, int]], queries: tuple[str, ...] = ("q", "r")) -> object:
    return score_ranking(search(np.eye(2), np.eye(2), depth=2), query_ids=[*queries], document_ids=documents, qrels=qrels)


def _split(train: list[int], test: list[int]) -> object:
    return split_classified(A, [*LABELS[:-1], "new"], train=train, test=test, where="t")


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: paired_cosines(_with(A, 3, np.nan), B, where="sts12"), "NaN or infinity, first in row 3"),
    (lambda: paired_cosines(_with(A, 4, 0.0), B, where="sts12"), "length 0 in row 4"),
    (lambda: _ranked(["d", "e"], {"q": {"d": 1}, "r": {"d": 0}}), "1 of 2 queries without a relevant document, first 'r'"),
    (lambda: _ranked(["d", "e"], {"q": {"d": 1}, "r": {"gone": 1}}), "first 'gone'"),
    (lambda: search(np.eye(3), iter([np.zeros((0, 3))]), depth=2), "shape"),
    (lambda: search(np.eye(3), iter(()), depth=2), "at least one"),
    (lambda: search(np.eye(3), np.eye(3), depth=0), "at least 1 document"),
    (lambda: search(np.eye(3), iter([_with(np.eye(3), 1, 0.0)]), depth=2), "length 0 in row 1"),
    (lambda: search(np.eye(3), iter([_with(np.eye(3), 1, np.inf).astype(np.float16)]), depth=2), "NaN or infinity, first in row 1"),
    (lambda: score_clusters([[np.nan, 1.0], [0.0, 1.0]], ["a", "b"], where="t"), "NaN"),
    (lambda: cross_validated(_with(A, 3, np.nan), LABELS, where="t"), "1 of 40 embeddings with NaN"),
    (lambda: cross_validated(A, ["rare", *LABELS[1:]], where="t"), "1 of 40 rows labelled 'rare'"),
    (lambda: senteval_cross_validated(A, ["rare", *LABELS[1:]], where="t"), "1 of 40 rows labelled 'rare'"),
    (lambda: _split([], [1, 2]), "no rows in train"),
    (lambda: _split([*range(10)], [39]), "test rows labelled 'new'"),
    (lambda: uniformity(A[:1]), "at least two"),
    (lambda: measure_geometry(_with(A, 2, np.inf)), "first in row 2"),
    (lambda: probe_distribution(A[:2], np.ones((2, 3))), "2 sentences"),
    (lambda: probe_regression(A, np.ones((40, 2))), "never vary"),
    (lambda: relation_weights({"entailmemt": 1.0}, NAMES, normalize=True), '"entailmemt"'),
    (lambda: relation_weights({"entailment": 0.0}, NAMES, normalize=True), "no weight above 0"),
    (lambda: relation_weights({"entailment": 1.0}, (), normalize=True), "it has none"),
    (lambda: summarize([]), "Leave out runs"),
    (lambda: Column([Entry(label="ours", scores=np.array([80.0, math.nan]), seeds=(0, 1))]), "a finite score a seed"),
]


def test_bad_input_is_named_and_the_error_survives_a_pickle() -> None:
    for call, said in CALLS:
        with pytest.raises(DataError) as caught:
            call()
        assert said in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
