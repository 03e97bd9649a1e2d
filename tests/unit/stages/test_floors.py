"""The rows of a table that need no training: words alone, random weights, and finished embeddings read in another way."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sentdist.errors import RecipeError
from sentdist.evaluation.geometry import postprocess
from sentdist.evaluation.nearest import word_scores
from sentdist.evaluation.retrieval import rank_by
from sentdist.evaluation.sts import paired_cosines
from sentdist.plan.stage import Json
from tests.support.building import run_local
from tests.support.planning import small_recipe
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def _embeddings(num: int = 200, width: int = 6) -> NDArray[np.float32]:
    draw = np.random.default_rng(3)
    return (draw.normal(size=(num, width)) @ draw.normal(size=(width, width)) + 5.0).astype(np.float32)


def cosines(embeddings: NDArray[np.float32]) -> NDArray[np.float64]:
    half = len(embeddings) // 2
    return paired_cosines(embeddings[:half], embeddings[half:], where="pairs")


def test_bm25_is_lucenes_formula() -> None:
    """Σ over the words of the query, repeated ones too, of ln(1 + (N − n + ½) / (n + ½)) · f / (f + k₁ (1 − b + b · length / mean length)),
    with k₁ = 0.9 and b = 0.4."""
    documents = [["a", "bird", "sings", "a", "song"], ["a", "bird"], ["the", "old", "house"]]

    def score(query: list[str], document: list[str]) -> float:
        total = 0.0
        for word in query:
            having, times = sum(word in one for one in documents), document.count(word)
            rarity = math.log(1 + (3 - having + 0.5) / (having + 0.5))
            total += rarity * times / (times + 0.9 * (0.6 + 0.4 * len(document) / (10 / 3)))
        return total

    queries = [["a", "bird", "a"], ["song"], ["house", "the", "unknown"]]
    found = word_scores("bm25", [" ".join(query) for query in queries], [" ".join(document) for document in documents])
    np.testing.assert_allclose(found, [[score(query, document) for document in documents] for query in queries], rtol=1e-5)


def test_bm25_finds_the_rare_word() -> None:
    documents = ["the cat sleeps", "the dog sleeps", "the bird sings and the bird flies"]
    scores = word_scores("bm25", ["the bird", "unknown words"], documents)
    assert scores[0].argmax() == 2
    assert scores[1].tolist() == [0.0, 0.0, 0.0]


def test_overlap_is_shared_words_over_all_words() -> None:
    assert word_scores("word_overlap", ["A dog runs."], ["a dog sleeps", "birds"]).tolist() == [[0.5, 0.0]]


def test_documents_are_ranked_by_score_with_ties_in_order() -> None:
    ranking = rank_by([[0.1, 0.9, 0.1, 0.5]], depth=3)
    assert ranking.documents.tolist() == [[1, 3, 0]]
    # The shares of words in common are few: most of a collection ties, and sorting may leave a short list of ties alone.
    scores = [0.5, 0.0, 0.5, 0.1] * 50
    in_order = sorted(range(200), key=lambda row: (-scores[row], row))
    assert rank_by([scores], depth=120).documents.tolist() == [in_order[:120]]


def test_whitened_embeddings_have_no_correlation() -> None:
    found = postprocess(_embeddings(), "whiten")
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(6), atol=1e-5)  # float32 results of float64 sums
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-5)


def test_whitening_undoes_any_invertible_map() -> None:
    """Cosines after whitening depend on what the embeddings hold, not on the axes they hold it in."""
    embeddings = _embeddings().astype(np.float64)
    mapped = embeddings @ np.random.default_rng(5).normal(size=(6, 6)) - 2.0
    one, other = (postprocess(values, "whiten") for values in (embeddings, mapped))
    np.testing.assert_allclose(cosines(one), cosines(other), atol=1e-4)


def test_whitening_fewer_sentences_than_channels_keeps_what_varies() -> None:
    assert postprocess(_embeddings(num=4), "whiten").shape == (4, 3)


def test_centred_embeddings_have_no_mean() -> None:
    np.testing.assert_allclose(postprocess(_embeddings(), "center").mean(axis=0), 0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"lexical": "word_overlap", "objective": {"name": "info_nce"}}, "methods.new.lexical"),
        ({"lexical": "word_overlap", "encoder": {"pooling": "cls"}}, "methods.new.lexical"),
        ({"encoder": {"poolin": "cls"}}, 'methods.new.encoder: "poolin" is not one of'),
        ({"encoder": {"pooling": "none"}}, "methods.new.encoder.pooling"),
        ({"of": "fine_tuned", "objective": {"name": "info_nce"}}, "methods.new.of"),
        ({"of": "base"}, "untouched checkpoint"),
    ],
)
def test_rows_that_make_no_sense_are_refused(method: dict[str, Json], message: str) -> None:
    with pytest.raises(RecipeError, match=message.replace(".", r"\.")):
        small_recipe(methods={"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}, "new": method})


def test_each_row_reads_the_encoder_in_its_own_way(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    methods: Json = {
        "overlap": {"lexical": "word_overlap"},
        "base": {},
        "untrained": {"encoder": {"initialization": "random"}},
        "first_last": {"encoder": {"pooling": "first_last"}},
        "whitened": {"view": {"postprocess": "whiten"}},
        "half": {"view": {"channels": [0, 16]}},
    }
    values = tiny_values(tiny_encoder_dir, methods=methods, baseline="base")
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    scores = {trial.method: artifact.record.results["stsb"] for trial, artifact in zip(plan.trials, run_local(plan, context), strict=True)}
    assert len(set(map(str, scores.values()))) == len(methods)


def test_keyword_search_has_nothing_to_say_of_pairs(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = tiny_values(tiny_encoder_dir, methods={"keywords": {"lexical": "bm25"}}, baseline="keywords")
    with pytest.raises(RecipeError, match="bm25 for pairs"):
        tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")


def test_channels_that_the_embeddings_lack_are_refused(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = tiny_values(tiny_encoder_dir, methods={"half": {"view": {"channels": [16, 99]}}}, baseline="half")
    with pytest.raises(RecipeError, match="0 to 32"):
        tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
