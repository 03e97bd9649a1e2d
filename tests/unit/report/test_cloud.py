"""Spectra and maps of embeddings: what is kept beside scores, what is drawn from it, and what a page says under the mouse."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sentdist.errors import DataError
from sentdist.report import embedding_figures as cloud
from sentdist.report.embedding_figures import Sample, cloud_drawings, embedding_map, principal_plane, singular_spectra
from sentdist.report.style import inline_svg
from sentdist.stages.scores.build import SAMPLED_PAIRS, sampled_pairs
from sentdist.store.sweep import SweepRecord, TrialRecord
from tests.support.tasks_data import evaluated
from tests.support.tiny_data import write_data


def sample_of(embeddings: np.ndarray, subsets: list[str]) -> Sample:
    return Sample(sentences=[f"sentence <{number}> & more" for number in range(len(subsets))], subsets=subsets, embeddings=embeddings)


@pytest.fixture
def samples() -> dict[str, Sample]:
    draw = np.random.default_rng(0)
    embeddings = np.concatenate([draw.normal(size=(1, 16)) * 4 + draw.normal(size=(20, 16)) for _ in range(2)])
    subsets = ["captions"] * 20 + ["news"] * 20
    turned = embeddings @ np.linalg.qr(draw.normal(size=(16, 16)))[0]
    return {"base": sample_of(embeddings, subsets), "turned": sample_of(turned, subsets)}


def test_scores_keep_a_spectrum_that_a_report_draws_and_dots_of_one_colour_are_no_map(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    artifact, context = evaluated(tiny_encoder_dir, ("stsb",), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    key = artifact.record.key
    trial = TrialRecord(key=key, method="base", cell="base", name="base", params={}, seed=None, fold=None, train=None, stages=(key,))
    sweep = SweepRecord(name="s", about="", recipe={}, baseline=None, paper=None, trials=(trial,), places={key: artifact.record.place})
    (spectra,) = cloud_drawings(sweep, context.store, {key: artifact.record}, systems=["base"])
    values = [float(row["relative value"]) for row in csv.DictReader(io.StringIO(spectra.table))]
    assert len(values) == 32 and values[0] == 1.0 and values == sorted(values, reverse=True)
    old = artifact.record.model_copy(update={"files": {}})
    assert not list(cloud_drawings(sweep, context.store, {key: old}, systems=["base"]))


def test_a_rotation_of_the_embeddings_leaves_the_map_alone(samples: dict[str, Sample]) -> None:
    rows = list(csv.DictReader(io.StringIO(embedding_map(samples, task="t").table)))
    points = {system: np.array([[float(row["x"]), float(row["y"])] for row in rows if row["system"] == system]) for system in samples}
    assert points["turned"] == pytest.approx(points["base"], abs=1e-5)  # written with six digits


def test_a_page_says_the_sentence_of_every_point_and_stays_well_formed(samples: dict[str, Sample]) -> None:
    drawing = embedding_map(samples, task="t")
    page = inline_svg(drawing)
    assert page.count("<title>") == 80
    assert "<title>sentence &lt;39&gt; &amp; more (news)</title>" in page
    ElementTree.fromstring(page)
    assert "sentence" not in drawing.svg


def test_rare_parts_share_a_colour(samples: dict[str, Sample]) -> None:
    many = sample_of(samples["base"].embeddings, ["big"] * 30 + [f"small{number}" for number in range(10)])
    parts = {row["part"] for row in csv.DictReader(io.StringIO(embedding_map({"one": many}, task="t").table))}
    assert len(parts) == 6 and {"big", "other"} <= parts


def test_a_plane_holds_all_variance_of_points_in_a_plane() -> None:
    angles = np.linspace(0, 6, 30)
    points, share = principal_plane(np.stack([np.cos(angles), np.sin(angles), np.zeros(30)], axis=1))
    assert points.shape == (30, 2) and share == pytest.approx(1.0)


def test_a_logarithmic_axis_says_its_numbers_in_plain_figures() -> None:
    drawing = singular_spectra({"one": [np.geomspace(1.0, 1e-5, 8)]})
    assert "mathdefault" not in drawing.svg and "<!-- 0.001 -->" in drawing.svg  # beside each text drawn as a path stands what it says


def test_seeds_of_different_widths_are_refused() -> None:
    with pytest.raises(DataError, match="as many in every seed"):
        singular_spectra({"one": [np.ones(3), np.ones(4)]})
    with pytest.raises(DataError, match="nothing to draw"):
        embedding_map({}, task="t")


@given(st.integers(1, 5000))
def test_sampled_pairs_are_distinct_rows_of_the_task(num_pairs: int) -> None:
    rows = sampled_pairs(num_pairs)
    assert len(set(rows)) == len(rows) == min(num_pairs, SAMPLED_PAIRS)
    assert min(rows) >= 0 and max(rows) < num_pairs


def test_sampled_pairs_are_spread_evenly() -> None:
    assert sampled_pairs(300) == list(range(0, 300, 2)) and sampled_pairs(450)[-1] == 447


def test_long_names_of_systems_do_not_run_into_each_other(samples: dict[str, Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(cloud, "save", lambda figure, **_: drawn.append(figure))
    names = [f"rcl (batch_size={size}, learning_rate=3e-05, phis={{0.01, 0.02, 0.03}})" for size in (128, 256)]
    embedding_map(dict(zip(names, samples.values(), strict=True)), task="t")
    drawn[0].draw_without_rendering()
    titles = [axes._left_title for axes in drawn[0].axes]  # type: ignore[attr-defined]  # where the house has titles
    assert [title.get_text().replace("\n", "") for title in titles] == names
    first, second = (title.get_window_extent() for title in titles)
    assert not first.overlaps(second)
