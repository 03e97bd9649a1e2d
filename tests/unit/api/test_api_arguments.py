"""What a Python program gives to a public function reaches what answers: relations, embeddings of one's own, stores and data."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sentdist
from sentdist import DataError, RecipeError, StoreError, api
from sentdist.api import recipes
from sentdist.cli import app
from sentdist.execution import build_recipe
from sentdist.inference.arguments import given_data, given_store
from sentdist.learning.relation_file import Relations, write_relations
from sentdist.report import paper_page
from sentdist.stages.planning import planned
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES
from tests.support.tiny_encoders import SENTENCES, WIDTH

DEMO = RECIPES / "demo.yaml"
RELATIONS = Relations(names=("entailment", "twin"), vectors=np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32))
WEIGHTS = {"entailment": 1.0, "twin": 0.5}


@pytest.fixture(scope="module")
def related(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> sentdist.Encoder:
    """The tiny encoder with two relations beside it."""
    folder = tmp_path_factory.mktemp("related") / "encoder"
    shutil.copytree(tiny_encoder_dir, folder)
    write_relations(folder, RELATIONS)
    return sentdist.Encoder.load(folder)


def _moved(related: sentdist.Encoder, heads: tuple[str, ...], tails: tuple[str, ...]) -> np.ndarray:
    """Of each head with each tail, by both relations."""
    first, second = (related.encode(list(texts)).astype(np.float64) for texts in (heads, tails))
    found = np.zeros((len(first), len(second)))
    for vector, weight in zip(RELATIONS.vectors, WEIGHTS.values(), strict=True):
        moved = first + vector
        cosines = moved @ second.T / np.linalg.norm(moved, axis=1)[:, None] / np.linalg.norm(second, axis=1)
        found += weight / sum(WEIGHTS.values()) * cosines
    return found


def test_pairs_are_scored_by_relations_in_the_direction_that_is_said(related: sentdist.Encoder) -> None:
    heads, tails = tuple(SENTENCES[:3]), tuple(SENTENCES[3:6])
    forward, backward = np.diag(_moved(related, heads, tails)), np.diag(_moved(related, tails, heads))
    assert (np.abs(forward - backward) > 1e-4).all()
    for directions, expected in (("one", forward), ("max_both", np.maximum(forward, backward))):
        found = sentdist.similarity(related, heads, tails, relations=WEIGHTS, directions=directions)
        np.testing.assert_allclose(found, expected, atol=2e-6)
    two = [sentdist.similarity(related, tails[0], heads[0], relations=WEIGHTS, directions=one) for one in ("one", "max_both")]
    np.testing.assert_allclose(two, [backward[0], max(forward[0], backward[0])], atol=2e-6)
    asked = ["similarity", related.loaded.use.checkpoint, tails[0], heads[0], "--relation", "entailment", "--relation", "twin=0.5"]
    for directions, score in zip(("one", "max_both"), two, strict=True):
        said = CliRunner().invoke(app, [*asked, "--directions", directions]).stdout
        assert float(said) == pytest.approx(score, abs=2e-6), "as the command says"


def test_a_search_by_relations_has_their_scores(related: sentdist.Encoder) -> None:
    (hits,) = sentdist.search(related, [SENTENCES[0]], SENTENCES, top=4, relations=WEIGHTS)
    scores = _moved(related, (SENTENCES[0],), tuple(SENTENCES))[0]
    assert [hit.row for hit in hits] == np.argsort(-scores)[:4].tolist()
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1][:4], atol=2e-6)


def test_embeddings_that_are_given_are_searched_in_and_not_made_again(related: sentdist.Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    turned = related.encode(list(SENTENCES))[::-1].copy()
    plain = sentdist.search(related, SENTENCES[0], SENTENCES, top=3)
    found = sentdist.search(related, SENTENCES[0], SENTENCES, top=3, embeddings=turned)
    assert [hit.row for hit in found] == [len(SENTENCES) - 1 - hit.row for hit in plain]
    assert [hit.text for hit in found] == [SENTENCES[hit.row] for hit in found]


def test_the_hits_of_one_sentence_are_a_list_and_those_of_a_list_of_one_a_list_of_lists(related: sentdist.Encoder) -> None:
    one, listed = (sentdist.search(related, asked, SENTENCES, top=2) for asked in (SENTENCES[0], [SENTENCES[0]]))
    assert listed == [one] and isinstance(one[0], api.Hit)


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [(None, None, None), (None, "shells", "shells"), ("mine", None, "mine"), (Path("mine"), "shells", "mine")],
)
def test_a_store_that_is_given_goes_before_that_of_the_environment(
    given: Any, environment: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SENTDIST_STORE", "SENTDIST_DATA"):
        monkeypatch.delenv(name, raising=False)
        if environment is not None:
            monkeypatch.setenv(name, environment)
    assert given_store(given) == found and given_data(given) == (None if found is None else Path(found))


def test_every_function_asks_the_store_and_data_that_are_given(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "shells"))
    monkeypatch.delenv("SENTDIST_DATA", raising=False)
    asked: list[tuple[object, object]] = []

    def note(*_: object, store: Any, data: object = None, **__: object) -> None:
        asked.append((getattr(store, "root", store), data))
        raise DataError(where="here", found="enough", expected="no more", remedy="None.")

    for name in ("planned_trials", "requested"):
        monkeypatch.setattr(planned, name, note)
    monkeypatch.setattr("sentdist.inference.planned_scores.planned_evaluation", note)
    (tmp_path / "data").mkdir()
    places = {"store": tmp_path / "mine", "data": tmp_path / "data"}
    encoder = sentdist.Encoder.load(tiny_encoder_dir)
    calls = (
        lambda: sentdist.plan(DEMO, **places),
        lambda: sentdist.run(DEMO, **places),
        lambda: sentdist.sweep(DEMO, **places),
        lambda: sentdist.evaluate(encoder, "scenes-sts", **places),
        lambda: sentdist.compare(encoder, tiny_encoder_dir, "scenes-sts", **places),
    )
    for call in calls:
        with pytest.raises(DataError, match="enough"):
            call()
    assert asked == [(str(tmp_path / "mine"), tmp_path / "data")] * len(calls)
    looked: list[str] = []
    monkeypatch.setattr(paper_page, "report_paper", lambda store, name: looked.append(store.root))
    sentdist.report(paper="rcl", store=tmp_path / "mine")
    assert looked == [str(tmp_path / "mine")]
    for call in (
        lambda: sentdist.Encoder.load("abcdef123456", store=tmp_path / "mine"),
        lambda: sentdist.evaluate("abcdef123456", "scenes-sts", **places),
        lambda: sentdist.compare(encoder, "abcdef123456", "scenes-sts", **places),
    ):
        with pytest.raises(StoreError, match=str(tmp_path / "mine")):
            call()


def test_a_grid_is_left_out_by_run_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built: list[tuple[int, object]] = []
    monkeypatch.setattr(
        build_recipe, "build_recipe", lambda asked, *_, **named: built.append((len(asked.trials), named["print_line"])) or []
    )
    said: list[str] = []
    for call in (sentdist.run, sentdist.sweep):
        assert call(DEMO, store=tmp_path, print_line=said.append) == []
    assert built[0][0] < built[1][0] and {print_line for _, print_line in built} == {said.append}


def test_what_a_plan_has_found_out_is_printed_and_every_part_has_its_outcomes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = sentdist.plan(DEMO, store=tmp_path)
    noted = replace(plan, notes=("75 rows: 59 train",))
    monkeypatch.setattr(planned, "requested", lambda *_, **__: (noted, SimpleNamespace(store=ArtifactStore(tmp_path))))
    parts = [SimpleNamespace(plan=name, summary=SimpleNamespace(failures=())) for name in ("first", "fresh seeds")]
    monkeypatch.setattr(build_recipe, "build_recipe", lambda *_, **__: parts)
    monkeypatch.setattr(recipes, "outcomes", lambda plan, store: [plan])
    said: list[str] = []
    assert sentdist.sweep(DEMO, store=tmp_path, print_line=said.append) == ["first", "fresh seeds"] and said == ["75 rows: 59 train"]


def test_changes_beside_a_recipe_that_is_read_already_are_refused() -> None:
    recipe = sentdist.Recipe.load(DEMO)
    with pytest.raises(DataError, match="overrides beside a Recipe"):
        sentdist.plan(recipe, overrides=["seeds=[1]"])
    with pytest.raises(RecipeError, match="varies"):
        sentdist.sweep(DEMO, overrides=["methods.rcl.phis=[0.03]"])


@pytest.mark.parametrize("overrides", [{"seeds": [0]}, [("seeds", 0)], 3])
def test_overrides_of_another_kind_are_shown_how_they_are_written(overrides: object) -> None:
    """The keys of a dict were taken for them, and `--set` was spoken of."""
    with pytest.raises(RecipeError, match=r"overrides: found .*; expected texts that change a field each\. For example \["):
        sentdist.Recipe.load(DEMO, overrides)  # type: ignore[arg-type]


def test_two_uses_of_one_checkpoint_are_distinguished_by_their_order(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    mean, cls = (sentdist.Encoder.load(tiny_encoder_dir, pooling=pooling) for pooling in ("mean", "cls"))
    found = sentdist.compare(mean, cls, "scenes-sts", store=tmp_path)
    assert f"{tiny_encoder_dir} (first)" in found.sentence and f"{tiny_encoder_dir} (second)" in found.sentence
