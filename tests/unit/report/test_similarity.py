"""The similarity heat maps: what they state, what they refuse, the same bytes each time."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.image import imread

from sentdist.errors import DataError
from sentdist.report.embedding_figures import similarity_maps

pytestmark = pytest.mark.pixels

TOPICS = ["weather"] * 3 + ["food"] * 2
SENTENCES = [
    "It rains.",
    "The sky is grey & low.",
    "A storm came over the hills late in the evening, with hail.",
    "I like soup.",
    "We ate bread.",
]


def embeddings(spread: float, width: int = 8) -> np.ndarray:
    """Sentences of a topic around a common direction."""
    rng = np.random.default_rng(0)
    centres = {topic: rng.normal(size=width) for topic in dict.fromkeys(TOPICS)}
    return np.stack([centres[topic] + spread * rng.normal(size=width) for topic in TOPICS]).astype(np.float32)


def test_every_pair_of_every_model_is_drawn_and_reported() -> None:
    models = {"BERT": embeddings(3.0), "SimCSE": embeddings(1.0, 16), "SupMPN": embeddings(0.1)}
    before = dict(rcParams)
    drawing = similarity_maps(models, SENTENCES, topics=TOPICS)
    assert dict(rcParams) == before
    assert imread(io.BytesIO(drawing.png), format="png")[..., :3].std() > 0.02
    assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
    records = list(csv.DictReader(io.StringIO(drawing.table)))
    assert len(records) == 3 * 10
    first = models["BERT"].astype(float)
    cosine = first[0] @ first[1] / np.linalg.norm(first[0]) / np.linalg.norm(first[1])
    assert float(records[0]["cosine"]) == pytest.approx(cosine, abs=1e-5)
    assert "within topics less between topics: BERT " in drawing.caption
    assert similarity_maps(models, SENTENCES, topics=TOPICS) == drawing


def test_topics_are_apart_by_the_pairs_of_different_sentences() -> None:
    """Cosines of 0.6 within two topics of two sentences and 0 between; a sentence beside itself, at 1, is no pair."""
    apart = np.array([[1.0, 0.0, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.6, 0.8]])
    drawing = similarity_maps({"one": apart}, ["a", "b", "c", "d"], topics=["x", "x", "y", "y"])
    assert drawing.caption.endswith("less between topics: one 0.60.")


def test_without_topics_and_with_many_sentences() -> None:
    many = [f"sentence {number}" for number in range(30)]
    drawing = similarity_maps({"one": np.random.default_rng(1).normal(size=(30, 6))}, many)
    assert "topics" not in drawing.caption
    assert len(drawing.table.splitlines()) == 1 + 30 * 29 // 2


@pytest.mark.parametrize(
    ("models", "topics", "says"),
    [
        ({}, None, "0 models"),
        ({"one": np.ones((4, 3))}, None, r"shape \(4, 3\)"),
        ({"one": np.ones(5)}, None, r"shape \(5,\)"),
        ({"one": np.diag([1.0, 1, 0, 1, 1])}, None, "no direction for sentence 3"),
        ({"one": np.full((5, 2), np.nan)}, None, "no direction"),
        ({"one": np.ones((5, 3))}, ["weather"], "1 topics"),
    ],
)
def test_refusals(models: dict[str, np.ndarray], topics: list[str] | None, says: str) -> None:
    with pytest.raises(DataError, match=says):
        similarity_maps(models, SENTENCES, topics=topics)
