"""The poster's table beside ours, and the figure of the probes."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from sentdist.errors import DataError
from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.specs import View
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.method_figures import probe_plot
from sentdist.report.papers.auxiliary import AUXILIARY_TABLES, TABLES, AuxiliaryFacts, auxiliary_facts
from sentdist.report.printed import STS_COLUMNS
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table

pytestmark = pytest.mark.pixels

SIMCSE = AuxiliaryFacts(has_tasks=False)
WHOLE = AuxiliaryFacts(has_tasks=True, adversary="entropy")
KNOWN = {
    "base": None,
    "simcse": SIMCSE,
    "tasks": AuxiliaryFacts(has_tasks=True),
    "adversaries": WHOLE,
    "reversal": AuxiliaryFacts(has_tasks=True, adversary="reversal"),
    "tags": AuxiliaryFacts(has_tasks=True, adversary="entropy", part="pos"),
    "words": AuxiliaryFacts(has_tasks=True, adversary="entropy", part="bow"),
}


def table_of(*labels: str) -> ResultTable:
    rows = [
        ResultRow(method=label, label=label, params={}, seed=0, scores=dict.fromkeys(STS_COLUMNS[:-1], 70.0 + place))
        for place, label in enumerate(labels)
    ]
    return build_table(
        TableRows(title="t", rows=rows, columns=STS_COLUMNS[:-1], average=True, measure=TASK_KINDS["sts"].main), baseline=labels[0]
    )


def test_the_posters_averages_fit_its_cells() -> None:
    for row in AUXILIARY_TABLES["1"].rows:
        assert np.mean(row.scores[:7]) == pytest.approx(row.scores[7], abs=0.006), row.label


def test_the_embedding_and_its_channels_find_their_rows() -> None:
    whole, averages = TABLES.beside_facts(table_of(*KNOWN), KNOWN)
    assert {row.label: row.paper_label for row in whole.rows} == {"simcse": "SimCSE", "tags": "Our POS", "words": "Our BOW"}
    assert {row.label: row.paper_label for row in averages.rows} == {
        "simcse": "SimCSE", "adversaries": "Our sentence", "tags": "Our POS", "words": "Our BOW",
    }  # fmt: skip
    (gain,) = next(row.paper_gain for row in averages.rows if row.label == "adversaries")
    assert gain == pytest.approx(0.64)


@pytest.mark.parametrize(("channels", "part"), [(None, "whole"), ("tags", "pos"), ("words", "bow"), ((0, 128), "pos"), ((128, 768), "bow")])
def test_the_first_channels_are_those_of_tags_and_the_others_those_of_words(channels: Any, part: str) -> None:
    cell: Any = SimpleNamespace(train=SimpleNamespace(objective=InfoNCE()), view=View(channels=channels))
    assert auxiliary_facts(cell) == AuxiliaryFacts(has_tasks=False, part=part)  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [{"one": SIMCSE}, {"one": WHOLE, "two": WHOLE, "simcse": SIMCSE}])
def test_what_cannot_be_distinguished_stands_beside_nothing(known: dict[str, AuxiliaryFacts]) -> None:
    assert list(TABLES.beside_facts(table_of(*known), known)) == []


def test_probes_are_drawn_with_their_numbers() -> None:
    found = {
        "SimCSE": {"tags_from_pos": [0.2, 0.3], "tags_from_bow": [0.5, 0.5], "words_from_pos": [0.1, 0.1], "words_from_bow": [0.2, 0.2]},
        "adversaries": {"tags_from_pos": [0.6], "tags_from_bow": [-0.1]},
    }
    drawing = probe_plot(found)
    pixels = imread(io.BytesIO(drawing.png), format="png")
    assert min(pixels.shape[:2]) > 200 and pixels[..., :3].std() > 0.02  # not a blank sheet
    assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
    rows = list(csv.DictReader(io.StringIO(drawing.table)))
    assert [(row["system"], row["target"], row["part"], row["mean"], row["seeds"]) for row in rows] == [
        ("SimCSE", "tags", "pos", "0.25", "2"),
        ("SimCSE", "tags", "bow", "0.5", "2"),
        ("adversaries", "tags", "pos", "0.6", "1"),
        ("adversaries", "tags", "bow", "-0.1", "1"),
        ("SimCSE", "words", "pos", "0.1", "2"),
        ("SimCSE", "words", "bow", "0.2", "2"),
    ]
    assert probe_plot(found) == drawing
    with pytest.raises(DataError, match="nothing to draw"):
        probe_plot({})
