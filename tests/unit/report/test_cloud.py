"""Spectra and maps of embeddings: what is kept beside scores, what is drawn from it, and what a page says under the mouse."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from sentdist.errors import DataError
from sentdist.report.cloud import Sample, cloud_drawings, embedding_map, principal_plane, singular_spectra
from sentdist.stages.scores.cloud import sampled_pairs
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


def test_rare_parts_share_a_colour(samples: dict[str, Sample]) -> None:
    many = sample_of(samples["base"].embeddings, ["big"] * 30 + [f"small{number}" for number in range(10)])
    parts = {row["part"] for row in csv.DictReader(io.StringIO(embedding_map({"one": many}, task="t").table))}
    assert len(parts) == 6 and {"big", "other"} <= parts


def test_a_plane_holds_all_variance_of_points_in_a_plane() -> None:
    angles = np.linspace(0, 6, 30)
    points, share = principal_plane(np.stack([np.cos(angles), np.sin(angles), np.zeros(30)], axis=1))
    assert points.shape == (30, 2) and share == pytest.approx(1.0)


def test_seeds_of_different_widths_are_refused() -> None:
    with pytest.raises(DataError, match="as many in every seed"):
        singular_spectra({"one": [np.ones(3), np.ones(4)]})
    with pytest.raises(DataError, match="nothing to draw"):
        embedding_map({}, task="t")


def test_sampled_pairs_are_spread_evenly() -> None:
    assert sampled_pairs(300) == list(range(0, 300, 2)) and sampled_pairs(450)[-1] == 447
