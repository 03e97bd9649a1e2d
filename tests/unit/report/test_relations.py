"""The figures and the table of relations: complete, well formed, true to their numbers."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from sentdist.errors import DataError
from sentdist.report import method_figures as relations
from sentdist.report.method_figures import link_rows, printed_link_rows, relation_drawings, relation_matrix, weight_curves
from sentdist.report.papers.rse import PAPER_LINKS
from sentdist.report.style import Drawing
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord

pytestmark = pytest.mark.pixels

NAMES = ("entailment", "duplicate-question", "same-caption")


def _rows(drawing: Drawing) -> list[dict[str, str]]:
    pixels = imread(io.BytesIO(drawing.png), format="png")
    assert min(pixels.shape[:2]) > 200 and pixels[..., :3].std() > 0.02  # not a blank sheet
    assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
    return list(csv.DictReader(io.StringIO(drawing.table)))


def test_a_matrix_of_relations() -> None:
    one, other = np.eye(3), np.eye(3)
    other[0, 1] = other[1, 0] = -0.5
    drawing = relation_matrix(NAMES, [one, other], system="RSE", name="relations")
    rows = _rows(drawing)
    assert len(rows) == 9
    found = next(row for row in rows if (row["relation"], row["other"]) == ("entailment", "duplicate-question"))
    assert (found["mean"], found["sd"], found["seeds"]) == ("-0.25", "0.353553", "2")
    assert drawing.caption == "Cosines between the relation vectors of RSE, mean over 2 seeds."
    assert relation_matrix(NAMES, [one, other], system="RSE", name="relations") == drawing


def test_a_cell_has_the_colour_of_its_number_and_stands_at_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(relations, "save", lambda figure, **_: drawn.append(figure))
    cosines = np.array([[1.0, -0.5, 0.2], [-0.5, 1.0, 0.7], [0.2, 0.7, 1.0]])
    relation_matrix(NAMES, [cosines], system="RSE", name="relations")
    axes = drawn[0].axes[0]
    across, up = ([NAMES.index(label.get_text()) for label in labels] for labels in (axes.get_xticklabels(), axes.get_yticklabels()))
    colours = np.asarray(axes.collections[0].get_array()).reshape(3, 3)
    np.testing.assert_array_equal(colours, cosines[np.ix_(up, across)])
    said = {tuple(int(at) for at in text.get_position()[::-1]): float(text.get_text().replace("−", "-")) for text in axes.texts}
    assert said == {place: colours[place] for place in np.ndindex(3, 3)}


def test_a_single_seed_has_no_spread() -> None:
    assert {row["sd"] for row in _rows(relation_matrix(NAMES, [np.eye(3)], system="RSE", name="relations"))} == {""}


def test_curves_over_a_weight() -> None:
    curve = {0.0: [70.0, 71.0], 0.5: [72.0, 72.5], 1.0: [71.0, 71.5]}
    drawing = weight_curves({"RSE": curve, "other": {0.0: [60.0]}}, relation="duplicate-question", name="weights")
    rows = _rows(drawing)
    assert [(row["system"], row["weight"], row["mean"]) for row in rows] == [
        ("RSE", "0", "70.5"),
        ("RSE", "0.5", "72.25"),
        ("RSE", "1", "71.25"),
        ("other", "0", "60"),
    ]
    assert "weight of duplicate-question" in drawing.caption


def test_a_curve_has_each_score_at_its_weight() -> None:
    trials = [SimpleNamespace(key=f"k{seed}", method="rse", cell="RSE", train=f"t{seed}", seed=seed) for seed in (0, 1)]
    curves = [{"relation": "twin", "weights": [0.0, 0.5, 1.0], "scores": [70.0 + seed, None, 75.0 + seed]} for seed in (0, 1)]
    records = {trial.key: SimpleNamespace(results={"weight_curve": curve}) for trial, curve in zip(trials, curves, strict=True)}
    (drawing,) = relation_drawings(cast(SweepRecord, SimpleNamespace(trials=trials)), cast(dict[str, Record], records))
    assert [(row["weight"], row["mean"], row["seeds"]) for row in _rows(drawing)] == [("0", "70.5", "2"), ("1", "75.5", "2")]


def test_link_prediction_is_averaged_over_seeds() -> None:
    def trial(mrr: float) -> dict[str, object]:
        measures = {"mrr": mrr, "hits@1": mrr - 10, "hits@3": mrr + 5, "hits@10": mrr + 10}
        return {f"links.{relation}.{name}": value for relation in ("entailment", "all") for name, value in measures.items()} | {
            "stsb": 80.0
        }

    rows = link_rows({"RSE": [trial(80.0), trial(82.0)], "base": [{"stsb": 70.0}], "none": []}, task="links")
    assert [row.cells for row in rows] == [
        ["RSE", "entailment", "81.0", "71.0", "86.0", "91.0", "2"],
        ["RSE", "all", "81.0", "71.0", "86.0", "91.0", "2"],
    ]
    assert [row.relation for row in printed_link_rows(PAPER_LINKS, ["entailment", "same-sentence", "all"])] == ["entailment", "all"]


def test_nothing_to_draw() -> None:
    for draw in (
        lambda: weight_curves({}, relation="entailment", name="weights"),
        lambda: relation_matrix(NAMES, [], system="RSE", name="relations"),
        lambda: relation_matrix(NAMES, [np.eye(2)], system="RSE", name="relations"),
    ):
        with pytest.raises(DataError, match="found"):
            draw()
