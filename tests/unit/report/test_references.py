"""Each row of a grid is compared with the baseline at its own point, and the page names what it is compared with."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.unroll import Trial
from sentdist.report import tables as cell_text
from sentdist.report.comparisons import GridBaseline, References, references
from sentdist.report.score_rows import ResultRow, Scalar, TableRows, group_rows
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.store import ArtifactStore
from tests.support.pages import html_part
from tests.support.planning import plan_of, with_method
from tests.support.synthetic_sweeps import fill_store

Cells = Mapping[str, Mapping[str, Scalar]]  # "METHOD VALUES" -> params
EQ1 = GridBaseline(method="eq1", title="Eq. 1")
BOTH: Cells = {"eq1 64": {"training.batch_size": 64}, "eq1 128": {"training.batch_size": 128}}
SQUARE: Cells = {f"eq1 {size} {rate}": {"training.batch_size": size, "training.rate": rate} for size in (64, 128) for rate in (1e-5, 3e-5)}


def _rows(cells: Cells, seeds: int = 1) -> list[ResultRow]:
    return [
        ResultRow(method=label.split()[0], label=label, params=params, seed=seed, scores={"a": _score(label, seed)}, is_fixed=seeds == 1)
        for label, params in cells.items()
        for seed in range(seeds)
    ]


def _score(label: str, seed: int) -> float:
    return float(70 + np.random.default_rng([*label.encode(), seed]).normal())


def _found(cells: Cells, baseline: str | None, grid: GridBaseline | None = EQ1) -> References:
    return references(group_rows(_rows(cells)), baseline, grid)


@pytest.mark.parametrize(
    ("cells", "baseline", "expected", "elsewhere"),
    [
        ({**BOTH, "rcl 64": {"training.batch_size": 64}, "rcl 128": {"training.batch_size": 128}}, "eq1 64",
         {"rcl 64": "eq1 64", "rcl 128": "eq1 128"}, ()),
        ({**SQUARE, "rcl 128 1e-05": {"training.rate": 1e-5, "training.batch_size": 128}}, "eq1 64 1e-05",
         {"rcl 128 1e-05": "eq1 128 1e-05"}, ()),
        ({**BOTH, "rcl 64 a": {"training.batch_size": 64, "phis": "[0.1]"}, "rcl 128 a": {"training.batch_size": 128, "phis": "[0.1]"},
          "rcl 128 b": {"training.batch_size": 128, "phis": "[0.2]"}}, "eq1 64",
         {"rcl 64 a": "eq1 64", "rcl 128 a": "eq1 128", "rcl 128 b": "eq1 128"}, ()),
        ({**BOTH, "base": {}, "rcl 128": {"training.batch_size": 128}}, "eq1 64", {"base": "eq1 64", "rcl 128": "eq1 128"}, ("base",)),
        ({**SQUARE, "rcl 128": {"training.batch_size": 128}, "rse 128 3e-05": {"training.batch_size": 128, "training.rate": 3e-5}},
         "eq1 64 1e-05", {"rcl 128": "eq1 64 1e-05", "rse 128 3e-05": "eq1 128 3e-05"}, ("rcl 128",)),
        ({**BOTH, "rcl 128": {"training.batch_size": 128}, "rcl 256": {"training.batch_size": 256}}, "eq1 64",
         {"rcl 128": "eq1 128", "rcl 256": "eq1 64"}, ("rcl 256",)),
        ({**BOTH, "eq1 also 128": {"training.batch_size": 128}, "eq1 256": {"training.batch_size": 256},
          "rcl 128": {"training.batch_size": 128}, "rcl 256": {"training.batch_size": 256}}, "eq1 64",
         {"rcl 128": "eq1 64", "rcl 256": "eq1 256"}, ("rcl 128",)),
        ({**BOTH, "rcl 128": {"training.batch_size": 128}}, "eq1 64", {"rcl 128": "eq1 128"}, ()),
        ({"eq1 128": BOTH["eq1 128"], "base": {}, "rcl 64": BOTH["eq1 64"], "rcl 128": BOTH["eq1 128"]}, None,
         {"rcl 128": "eq1 128"}, ("base", "rcl 64")),
    ],
    ids=["one key", "two keys, in any order", "keys of its own", "no key", "one of two keys", "no such row", "two such rows", "all elsewhere than first",
         "first cell not finished"],
)  # fmt: skip
def test_a_row_is_compared_with_the_one_row_of_the_baseline_that_agrees_in_all_that_the_baseline_varies(
    cells: Cells, baseline: str | None, expected: dict[str, str], elsewhere: tuple[str, ...]
) -> None:
    found = _found(cells, baseline)
    assert (dict(found.of), found.elsewhere) == (expected, elsewhere) and found.keys
    assert found.baselines == {label for label in cells if label.startswith("eq1")}


@pytest.mark.parametrize(
    ("cells", "grid"),
    [
        ({"eq1": {}, "rcl a": {"phis": "a"}, "rcl b": {"phis": "b"}}, EQ1),
        ({"eq1 1": {"methods.eq1.rate": 1}, "eq1 2": {"methods.eq1.rate": 2}, "rcl": {}}, EQ1),
        ({"eq1 1": {"rate": 1}, "eq1 2": {"rate": 2}, "rcl 1": {"rate": 1}}, EQ1),
        ({"eq1 1": {"rate": 1}, "rcl 1": {"rate": 1}, "rcl 2": {"rate": 2}}, EQ1),
        ({"eq1 64": BOTH["eq1 64"], "eq1 128": BOTH["eq1 128"], "rcl 128": BOTH["eq1 128"]}, None),
        ({"eq1 64": BOTH["eq1 64"], "eq1 128": BOTH["eq1 128"]}, EQ1),
    ],
    ids=["a baseline of one cell", "a key of the baseline's own", "none is at another point", "the others not finished", "no grid", "a baseline alone"],
)  # fmt: skip
def test_rows_that_have_one_reference_are_compared_as_without_a_grid(cells: Cells, grid: GridBaseline | None) -> None:
    first = next(iter(cells))
    found = _found(cells, first, grid)
    assert found == _found(cells, first, None) and found.words == first and found.note == ""
    assert dict(found.of) == {label: first for label in cells if label != first}
    assert _found(cells, None, None).of == {} and _found(cells, None, None).words == ""


@st.composite
def _grids(draw: st.DrawFn) -> tuple[list[ResultRow], list[ResultRow]]:
    """Rows of a grid of which some are lacking, and the same in another order."""
    sizes, rates = st.sampled_from([64, 128, 256]), st.sampled_from([1e-5, 3e-5, None])
    points = draw(st.lists(st.tuples(sizes, rates), unique=True, min_size=1))
    own = draw(st.lists(st.tuples(sizes, rates, st.sampled_from("ab")), unique=True))
    cells: dict[str, Mapping[str, Scalar]] = {f"eq1 {size} {rate}": {"batch": size, "rate": rate} for size, rate in points}
    cells |= {f"rcl {size} {rate} {phis}": {"batch": size, "rate": rate, "phis": phis} for size, rate, phis in own}
    cells |= {"base": {}}
    rows = _rows(cells, seeds=2)
    return rows, draw(st.permutations(rows))


@given(_grids())
def test_the_order_of_rows_changes_no_reference(grid: tuple[list[ResultRow], list[ResultRow]]) -> None:
    one, other = (references(group_rows(rows), grid[0][0].label, EQ1) for rows in grid)
    assert (one.of, one.keys, one.words) == (other.of, other.keys, other.words)
    assert set(one.elsewhere) == set(other.elsewhere) and one.baselines == other.baselines


def _compared(table: ResultTable) -> dict[tuple[str, str], float]:
    return {(one.system, one.other): one.differences["a"].difference for one in table.comparisons if one.relation == "baseline"}


def _table(cells: Cells, seeds: int = 3, by_dev: Sequence[str] = (), *, backwards: bool = False) -> ResultTable:
    rows = _rows(cells, seeds)
    grid = GridBaseline(method="eq1", title="Eq. 1", by_dev=tuple(by_dev))
    return build_table(
        TableRows(title="t", rows=rows[::-1] if backwards else rows, columns=["a"], average=False, measure=TASK_KINDS["sts"].main),
        baseline="eq1 64",
        grid=grid,
    )


CELLS: Cells = {**BOTH, "rcl 64": {"training.batch_size": 64}, "rcl 128": {"training.batch_size": 128}, "base": {}}


def test_differences_sentences_and_marks_are_from_the_row_at_the_same_point() -> None:
    table = _table(CELLS)
    means = {label: np.mean([_score(label, seed) for seed in range(3)]) for label in CELLS}
    pairs = {("rcl 64", "eq1 64"), ("rcl 128", "eq1 128"), ("base", "eq1 64")}
    assert _compared(table) == pytest.approx({(one, other): means[one] - means[other] for one, other in pairs})
    assert _compared(_table(CELLS, backwards=True)) == pytest.approx(_compared(table)), "in whatever order rows come"
    assert set(table.verdicts) == {"rcl 64", "rcl 128", "base"}
    assert all(f" {other}" in table.verdicts[one] for one, other in pairs if one != "base") and table.num_tests == 3
    assert [line.is_baseline for line in table.lines] == [True, True, False, False, False]
    found = table.line("rcl 128").cells["a"].against_baseline
    assert found is not None and found.difference == pytest.approx(means["rcl 128"] - means["eq1 128"])


def test_notes_say_what_each_row_is_compared_with() -> None:
    notes = _table(CELLS).notes
    assert notes[1].startswith("↑ ↓: better or worse than Eq. 1 at the same batch_size (p below 0.05). Intervals and p are corrected for 3")
    assert notes[2] == (
        "Each row is compared with Eq. 1 at the same value of batch_size, rows of Eq. 1 with none. "
        "Compared with eq1 64, for want of a row at the same values: base."
    )
    several = build_table(
        TableRows(
            title="t",
            rows=_rows({**SQUARE, "rcl 128 1e-05": SQUARE["eq1 128 1e-05"]}),
            columns=["a"],
            average=False,
            measure=TASK_KINDS["sts"].main,
        ),
        baseline=None,
        grid=EQ1,
    )
    assert several.notes[2] == "Each row is compared with Eq. 1 at the same values of batch_size and rate, rows of Eq. 1 with none."
    assert several.references.words == "Eq. 1 at the same batch_size and rate"
    alone = build_table(
        TableRows(
            title="t", rows=_rows({"eq1 128": BOTH["eq1 128"], **CELLS}), columns=["a"], average=False, measure=TASK_KINDS["sts"].main
        ),
        baseline=None,
        grid=EQ1,
    )
    assert alone.notes[2].endswith("Not compared, for want of a row at the same values: base.")


def test_cells_and_tests_of_a_page_name_the_row_that_was_used() -> None:
    page = html_part("result_table", _table(CELLS))
    assert [row[:3] for row in cell_text.tests_of(_table(CELLS))] == [
        ("rcl 64", "eq1 64", "a"),
        ("rcl 128", "eq1 128", "a"),
        ("base", "eq1 64", "a"),
    ]
    assert re.findall(r"[+-]\d\.\d\d against (.*?) \(", page) == ["eq1 64", "eq1 128", "eq1 64"]
    assert page.count('<tr class="baseline">') == 2


def test_what_dev_chose_is_compared_with_what_it_chose_of_the_baseline() -> None:
    """The best rate of one method beside the same rate of the other would be a baseline that nobody tuned."""
    table = _table(CELLS, by_dev=["rcl 128", "eq1 64", "rcl 64", "eq1 128"])
    (chosen,) = [one for one in table.comparisons if one.relation == "chosen"]
    assert (chosen.system, chosen.other) == ("rcl 128", "eq1 64") and len(_compared(table)) == 3
    remark = table.sentences[-1]
    assert remark == f"Of what dev chose: {table.verdict('rcl 128')}" and " eq1 64" in remark and len(table.sentences) == 4
    assert table.num_tests == 4, "the multiplicity of all that is asked of the baseline"
    assert ("rcl 128", "eq1 64", "a") in [row[:3] for row in cell_text.tests_of(table)]
    same = _table(CELLS, by_dev=["eq1 128", "rcl 128", "rcl 64", "eq1 64"])
    assert len(same.sentences) == 3 and {one.relation for one in same.comparisons} == {"baseline", "preceding"}, "both at one point"


RATES: Json = [1e-3, 2e-3]


def _report(folder: Path, sweep: Json, dev: Mapping[tuple[str, float], float] | None = None, title: str | None = None) -> Report:
    """Of made-up scores: fine_tuned is worst at a rate of 2e-3, where rcl is best."""
    fine_tuned: Json = {"objective": {"name": "info_nce"}, "title": title}
    values = with_method(fine_tuned=fine_tuned) | {
        "seeds": [0, 1, 2],
        "baseline": "fine_tuned",
        "sweep": sweep,
        "selection": {"task": "stsb-dev"},
    }
    plan = plan_of(recipe_from_values(values, where="small.yaml"))
    store = ArtifactStore(folder / "store")
    spread = {("fine_tuned", 1e-3): 1.0, ("fine_tuned", 2e-3): 2.0, ("rcl", 1e-3): 1.2, ("rcl", 2e-3): 0.8}

    def of(trial: Trial) -> tuple[str, float]:
        return trial.method, next((float(str(value)) for path, value in trial.params if path.endswith("learning_rate")), 1e-3)

    fill_store(
        store,
        plan,
        noise=lambda trial: spread.get(of(trial), 1.5),
        dev=lambda trial: (dev or {}).get(of(trial), 80.0),
        num_items={"stsb": 300},
    )
    return report_sweep(store, "small")


def test_a_report_of_a_grid_compares_at_equal_points_and_says_so(tmp_path: Path) -> None:
    report = _report(tmp_path, {"training.learning_rate": RATES, "training.batch_size": [32, 64]}, title="Eq. 1")
    for rate in ("0.001", "0.002"):
        for size in (32, 64):
            point = f"(learning_rate={rate}, batch_size={size})"
            assert re.search(rf"^\| rcl {re.escape(point)} \| Eq. 1 {re.escape(point)} \| STS-B ", report.markdown, re.MULTILINE)
    assert "Each row is compared with Eq. 1 at the same values of learning_rate and batch_size, rows of Eq. 1 with none." in report.markdown
    apart = "Compared with Eq. 1 (learning_rate=0.001, batch_size=32), for want of a row at the same values: base."
    assert "Difference from Eq. 1 at the same learning_rate and batch_size, with its 95 % interval" in report.markdown
    assert (
        report.markdown.count(f"rows of Eq. 1 with none. {apart}") == 1 and report.markdown.count(f"corrected over the table. {apart}") == 2
    )
    drawn = {row["system"]: row for row in csv.DictReader(io.StringIO(str(report.files["differences.csv"])))}
    tested = {
        row["system"]: row
        for row in csv.DictReader(io.StringIO(str(report.files["table1-comparisons.csv"])))
        if row["relation"] == "baseline"
    }
    assert {name: (row["against"], row["difference"]) for name, row in drawn.items()} == {
        name: (row["against"], row["difference"]) for name, row in tested.items()
    }
    assert len(drawn) == 5 and all(row["against"].partition("(")[2] == name.partition("(")[2] for name, row in drawn.items() if "(" in name)


def test_a_finding_on_dev_sets_what_was_chosen_beside_what_was_chosen(tmp_path: Path) -> None:
    dev = {("fine_tuned", 1e-3): 82.0, ("fine_tuned", 2e-3): 80.0, ("rcl", 1e-3): 81.0, ("rcl", 2e-3): 83.0}
    report = _report(tmp_path / "apart", {"training.learning_rate": RATES}, dev)
    verdict, base, _, choice = report.lead.splitlines()
    assert verdict.startswith("rcl (learning_rate=0.002) is ") and " fine_tuned (learning_rate=0.001)" in verdict
    assert (
        base.endswith(".")
        and choice.startswith("The settings were chosen on dev with the same seeds")
        and f"\n{verdict}\n" in report.markdown
    )
    together = _report(tmp_path / "together", {"training.learning_rate": RATES}, dev | {("fine_tuned", 2e-3): 84.0})
    assert " fine_tuned (learning_rate=0.002)" in together.lead.splitlines()[0]


def test_where_the_baseline_alone_varies_all_are_compared_with_what_dev_chose_of_it(tmp_path: Path) -> None:
    dev = {("fine_tuned", 1e-3): 80.0, ("fine_tuned", 2e-3): 82.0}
    report = _report(tmp_path, {"methods.fine_tuned.training.learning_rate": RATES}, dev)
    tested = csv.DictReader(io.StringIO(str(report.files["table1-comparisons.csv"])))
    against = {row["system"]: row["against"] for row in tested if row["relation"] == "baseline"}
    assert set(against.values()) == {"fine_tuned (learning_rate=0.002)"} and against.keys() == {
        "base",
        "rcl",
        "fine_tuned (learning_rate=0.001)",
    }
