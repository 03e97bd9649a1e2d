"""Each row of a grid is compared with the baseline at its own point, and the page names what it is compared with."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.recipe.unroll import Trial
from sentdist.report.comparisons import GridBaseline, References, references
from sentdist.report.score_rows import ResultRow, Scalar, TableRows, group_rows
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.store import ArtifactStore
from sentdist.tasks.kinds import TASK_KINDS
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


POINTS: list[tuple[Cells, str | None, dict[str, str], tuple[str, ...]]] = [  # cells, baseline, with what each is compared, which of them elsewhere
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
        ({**BOTH, "eq1 also 128": {"training.batch_size": 128}, "eq1 256": {"training.batch_size": 256},
          "rcl 128": {"training.batch_size": 128}, "rcl 256": {"training.batch_size": 256}}, "eq1 64",
         {"rcl 128": "eq1 64", "rcl 256": "eq1 256"}, ("rcl 128",)),
        ({"eq1 128": BOTH["eq1 128"], "base": {}, "rcl 64": BOTH["eq1 64"], "rcl 128": BOTH["eq1 128"]}, None,
         {"rcl 128": "eq1 128"}, ("base", "rcl 64")),
]  # fmt: skip


def test_a_row_is_compared_with_the_one_row_of_the_baseline_that_agrees_in_all_that_the_baseline_varies() -> None:
    for cells, baseline, expected, elsewhere in POINTS:
        for given in (cells, dict(reversed(cells.items()))):  # in whatever order rows come
            found = _found(given, baseline)
            assert (dict(found.of), set(found.elsewhere)) == (expected, {*elsewhere}) and found.keys, cells
            assert found.baselines == {label for label in cells if label.startswith("eq1")}


PLAIN: list[tuple[Cells, GridBaseline | None]] = [
    ({"eq1": {}, "rcl a": {"phis": "a"}, "rcl b": {"phis": "b"}}, EQ1),
    ({"eq1 1": {"methods.eq1.rate": 1}, "eq1 2": {"methods.eq1.rate": 2}, "rcl": {}}, EQ1),
    ({"eq1 1": {"rate": 1}, "eq1 2": {"rate": 2}, "rcl 1": {"rate": 1}}, EQ1),
    ({"eq1 64": BOTH["eq1 64"], "eq1 128": BOTH["eq1 128"], "rcl 128": BOTH["eq1 128"]}, None),
    ({"eq1 64": BOTH["eq1 64"], "eq1 128": BOTH["eq1 128"]}, EQ1),
]


def test_rows_that_have_one_reference_are_compared_as_without_a_grid() -> None:
    for cells, grid in PLAIN:
        first = next(iter(cells))
        found = _found(cells, first, grid)
        assert found == _found(cells, first, None) and found.words == first and found.note == ""
        assert dict(found.of) == {label: first for label in cells if label != first}
    assert _found(cells, None, None).of == {} and _found(cells, None, None).words == ""


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
    assert table.references.words == "Eq. 1 at the same batch_size" and table.notes[2].endswith(
        "for want of a row at the same values: base."
    )


def test_what_dev_chose_is_compared_with_what_it_chose_of_the_baseline() -> None:
    """The best rate of one method beside the same rate of the other would be a baseline that nobody tuned."""
    table = _table(CELLS, by_dev=["rcl 128", "eq1 64", "rcl 64", "eq1 128"])
    (chosen,) = [one for one in table.comparisons if one.relation == "chosen"]
    assert (chosen.system, chosen.other) == ("rcl 128", "eq1 64") and len(_compared(table)) == 3
    remark = table.sentences[-1]
    assert remark == f"Of what dev chose: {table.verdict('rcl 128')}" and " eq1 64" in remark and len(table.sentences) == 4
    assert table.num_tests == 4, "the multiplicity of all that is asked of the baseline"
    same = _table(CELLS, by_dev=["eq1 128", "rcl 128", "rcl 64", "eq1 64"])
    assert len(same.sentences) == 3 and {one.relation for one in same.comparisons} == {"baseline"}, "both at one point"


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
