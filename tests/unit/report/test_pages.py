"""Figures, the paper's tables, citations and the page: complete, well formed, the same bytes each time."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from jinja2 import UndefinedError
from matplotlib import rcParams
from matplotlib.image import imread

from sentdist.errors import DataError
from sentdist.evaluation.significance import NOTHING_VARIES, Difference
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import citations
from sentdist.report.figures import LearningCurve, forest_plot, heat_map, learning_curves, regulators_curve
from sentdist.report.papers.rcl import PAPER_REGULATORS, PAPER_TABLES
from sentdist.report.printed import side_by_side
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.style import Drawing, styles_of
from sentdist.report.sweep_report import SweepPage
from sentdist.report.tables import ResultTable, build_table
from sentdist.report.templating import Block, render
from tests.support.pages import html_part, markdown_part

pytestmark = pytest.mark.pixels

UNIT = "average of 7 tasks (Spearman's correlation × 100)"


def _curves() -> list[LearningCurve]:
    steps = range(200)
    return [
        LearningCurve(label=label, seed=seed, steps=steps, losses=[3 / (1 + step) + seed for step in steps], dev_steps=[99, 199], dev_scores=[80.0, 81.0 + seed])
        for label in ("Eq. 1", "RCL")
        for seed in (0, 1)
    ]  # fmt: skip


def _drawings() -> list[Drawing]:
    grid = {
        (batch, phis): [80.0 + number, 80.4] for number, (batch, phis) in enumerate([("32", "{.01}"), ("64", "{.01}"), ("64", "{.02}")])
    }
    reported = Difference(difference=0.8, low=0.5, high=1.1, p=0.01, table_p=0.03, about="seeds and items")
    differences = {"RCL": reported, "single": Difference(difference=0.85, reason=NOTHING_VARIES)}
    return [
        regulators_curve({0: [81.0, 81.2], 2: [81.5, 81.7], 4: [82.0]}, paper=PAPER_REGULATORS, unit=UNIT),
        heat_map(grid, unit=UNIT),
        learning_curves(_curves(), dev_unit=UNIT),
        forest_plot(differences, baseline="Eq. 1", unit=UNIT),
    ]


@pytest.fixture(scope="module")
def drawings() -> list[Drawing]:
    return _drawings()


def test_figures_are_drawn_and_carry_their_numbers(drawings: list[Drawing]) -> None:
    for drawing in drawings:
        pixels = imread(io.BytesIO(drawing.png), format="png")
        assert min(pixels.shape[:2]) > 200 and pixels[..., :3].std() > 0.02, drawing.name  # not a blank sheet
        assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
        assert len(list(csv.reader(io.StringIO(drawing.table)))) > 2


def test_figures_are_the_same_bytes_each_time_and_leave_settings_alone(drawings: list[Drawing]) -> None:
    before = dict(rcParams)
    for first, second in zip(drawings, _drawings(), strict=True):
        assert first.svg == second.svg and first.png == second.png
    assert dict(rcParams) == before


def test_figures_state_what_they_show(drawings: list[Drawing]) -> None:
    curve, grid, learning, forest = drawings
    assert "ours,4,82,,1" in curve.table and "paper,8,82.4,,5" in curve.table
    assert "64,{.01},80.7" in grid.table and "framed: the best" in grid.caption
    assert "averaged over 2 steps" in learning.caption
    last = [record for record in csv.DictReader(io.StringIO(learning.table)) if record["quantity"] == "dev score"][-1]
    assert (last["label"], last["step"], last["mean"], last["seeds"]) == ("RCL", "199", "81.5", "2")
    assert "single,0.85,,,,nothing" in forest.table


def test_titles_of_long_phi_sets_take_lines_of_their_own_and_no_width() -> None:
    """SVG text is drawn as paths, so the size says it: a title that is broken makes the figure taller,
    not its neighbours' titles unreadable."""
    short = heat_map({("32", "{.01}"): [80.0], ("32", "{.02}"): [81.0]}, unit=UNIT)
    long = heat_map({("32", "{0.01, 0.02, 0.03, 0.04, 0.05}"): [80.0], ("32", "{.02}"): [81.0]}, unit=UNIT)
    heights, widths = zip(*(imread(io.BytesIO(drawing.png), format="png").shape[:2] for drawing in (short, long)), strict=True)
    assert heights[1] > heights[0] and widths[1] == widths[0]


def test_seeds_that_stopped_early_leave_the_later_steps() -> None:
    short = LearningCurve(label="RCL", seed=1, steps=range(3), losses=[3.0, 3.0, 3.0])
    whole = LearningCurve(label="RCL", seed=0, steps=range(5), losses=[1.0, 1.0, 1.0, 1.0, 1.0])
    records = list(csv.DictReader(io.StringIO(learning_curves([short, whole], dev_unit=UNIT).table)))
    assert [(record["mean"], record["seeds"]) for record in records] == [("2", "2")] * 3 + [("1", "1")] * 2


def test_nothing_to_draw_is_named() -> None:
    for draw in (
        lambda: regulators_curve({}, unit=UNIT),
        lambda: heat_map({}, unit=UNIT),
        lambda: learning_curves([], dev_unit=UNIT),
        lambda: forest_plot({}, baseline="x", unit=UNIT),
    ):
        with pytest.raises(DataError, match="nothing to draw"):
            draw()


def test_the_papers_averages_fit_its_cells() -> None:
    """Misprints of our own would show here: averages are printed with two decimals, one is off by 0.006 in the paper itself."""
    for table in PAPER_TABLES.values():
        for row in table.rows:
            assert len(row.scores) == len(table.columns) and set(row.starred) <= set(table.columns)
            if len(row.scores) == 8:
                assert np.mean(row.scores[:7]) == pytest.approx(row.scores[7], abs=0.006), (table.number, row.label)
    assert PAPER_TABLES["3"].row("RCL") == PAPER_TABLES["5"].row("RCL") and PAPER_REGULATORS[8] == PAPER_TABLES["3"].row("RCL").scores[-1]


@pytest.fixture
def table() -> ResultTable:
    rows = [ResultRow(method="base", label="MiniLM", params={}, seed=0, scores={"STS12": 70.0, "SICK-R": 60.0}, is_fixed=True)]
    rows += [ResultRow(method="rcl", label="ours", params={}, seed=s, scores={"STS12": 71.0 + s, "SICK-R": 59.0}) for s in (0, 1)]
    return build_table(
        TableRows(title="t", rows=rows, columns=("STS12", "SICK-R"), average=False, measure=TASK_KINDS["sts"].main), baseline="MiniLM"
    )


def test_beside_the_paper_compares_gains(table: ResultTable) -> None:
    found = side_by_side(table, PAPER_TABLES["3"], matches={"MiniLM": "SRoBERTa-base", "ours": "RCL"}, base="MiniLM")
    assert found.columns == ("STS12", "SICK-R")
    assert found.rows[1].our_gain == pytest.approx((1.5, -1.0)) and found.rows[1].paper_gain == pytest.approx((1.69, 1.29))
    assert found.rows[0].our_gain == (None, None)
    text = markdown_part("beside", found)
    assert "| ours | ours | 71.50 (+1.50) | 59.00 (-1.00) |" in text and "| RCL | paper | 76.15 (+1.69) | 79.14 (+1.29) |" in text
    assert '<span class="gain worse">-1.00</span>' in html_part("beside", found)


def test_beside_the_paper_names_what_it_lacks(table: ResultTable) -> None:
    with pytest.raises(DataError, match="'RCLL'"):
        side_by_side(table, PAPER_TABLES["3"], matches={"ours": "RCLL"}, base=None)
    with pytest.raises(DataError, match="'mine'"):
        side_by_side(table, PAPER_TABLES["3"], matches={"mine": "RCL"}, base=None)
    with pytest.raises(DataError, match="Call our columns"):
        side_by_side(table, PAPER_TABLES["2a"], matches={"ours": "RCL"}, base=None)


def test_citations_are_complete_and_refuse_unknown_keys() -> None:
    everything = citations.cite(citations.CITATIONS)
    bibtex = citations.to_bibtex(everything)
    assert bibtex.count("@") == len(everything) and bibtex.count("{") == bibtex.count("}")
    for citation in everything:
        assert citation.url.startswith("https://") and 1940 < citation.year < 2030 and citation.authors and citation.role
        assert re.fullmatch(r"[a-z0-9_]+", citation.key)
    assert [one.key for one in citations.cite(["max_t", "rcl", "max_t"])] == ["rcl", "max_t"]
    assert markdown_part("citation_list", citations.cite(["rcl"])).startswith("1. Mingxi Tan, Alexis Rolland and Andong Tian (2022).")
    with pytest.raises(DataError, match="typo"):
        citations.cite(["typo"])


def _page(**given: object) -> SweepPage:
    return SweepPage(**{"title": "A & B", "lead": ("Lead.",), "facts": {}, "recipe": "", "citations": (), **given})  # type: ignore[arg-type]


def test_page_is_self_contained(drawings: list[Drawing]) -> None:
    scores = Block(title="Scores, all", said=["a < b"], header=["a"], rows=[["1 & 2"]], drawings=drawings)
    text = render("sweep.html.jinja", page=_page(facts={"Seeds": "3"}, first=(scores,), recipe="name: <x>\n\nseeds: [0]"))
    assert '<a href="#scores-all">' in text and '<section id="scores-all">' in text and "A &amp; B" in text and "a &lt; b" in text
    assert "<code>name: &lt;x&gt;\n\nseeds: [0]</code>" in text and "1 &amp; 2" in text
    assert not re.search(r"<script|<link|<img|@import|src=", text)
    identifiers = re.findall(r'\bid="([^"]+)"', text)
    assert len(identifiers) == len(set(identifiers))
    for reference in re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', text):
        assert reference in identifiers


def test_a_page_links_its_sections_in_their_order() -> None:
    text = render("sweep.html.jinja", page=_page(first=(Block(title="First"),), details=(Block(title="Later on"),)))
    assert re.findall(r'<a href="#([^"]+)">', text) == ["first", "details"]
    assert re.findall(r'<section id="([^"]+)">', text) == ["first", "details"]
    assert re.findall(r"<summary>([^<]+)</summary>", text) == ["Later on", "Recipe, without its defaults", "Citations", "BibTeX"]


def test_commands_in_sentences_are_code_and_nothing_else_is() -> None:
    block = Block(title="t", said=["Type `sentdist leaks RECIPE` now, not `<b>` or `a|b` or a lone ` and *stars*."])
    html, markdown = html_part("block", block), markdown_part("block", block)
    assert "Type <code>sentdist leaks RECIPE</code> now, not `&lt;b&gt;` or `a|b` or a lone ` and *stars*." in html
    assert "Type `sentdist leaks RECIPE` now, not \\`&lt;b&gt;\\` or \\`a\\|b\\` or a lone \\` and \\*stars\\*." in markdown


def test_a_template_that_names_what_is_not_there_is_refused() -> None:
    with pytest.raises(UndefinedError, match="page"):
        render("sweep.html.jinja")


def test_a_system_looks_alike_in_all_figures_of_a_report() -> None:
    """The order in which a figure shows systems changes nothing, where the report has made their styles."""
    styles = styles_of(["untouched", "Eq. 1", "RCL"])
    assert len({style.color for style in styles.values()}) == len({style.marker for style in styles.values()}) == 3
    curves = [
        LearningCurve(label=label, seed=0, steps=[0, 1], losses=[1.0, 0.5], dev_steps=[1], dev_scores=[70.0]) for label in ("RCL", "Eq. 1")
    ]
    drawn = learning_curves(curves, dev_unit=UNIT, styles=styles).svg
    assert styles["RCL"].color.lower() in drawn and styles["Eq. 1"].color.lower() in drawn
    assert styles["untouched"].color.lower() not in drawn, "a colour is not given to another system because its own is not shown"
