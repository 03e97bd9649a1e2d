"""The parts of a page one by one: its CSV, its head, a paper's rows with ours below, whose work it rests on."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.evaluation.significance import Difference
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import paper_page
from sentdist.report.citations import _of_machines, _of_tests
from sentdist.report.comparisons import AVERAGE, Comparison
from sentdist.report.leaks import Leaked
from sentdist.report.page_head import finding, page_facts, rests_on, spoken_rows
from sentdist.report.paper_page import OurRow, report_paper
from sentdist.report.printed import STS_COLUMNS, PaperRow, PaperTable
from sentdist.report.score_rows import ResultRow, TableRows
from sentdist.report.sweep_report import _geometry_rows, _stage_rows
from sentdist.report.tables import ResultTable, build_table, comparisons_to_csv, to_csv
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def _table(scores: dict[str, Sequence[float]], *, baseline: str | None = None, tasks: Sequence[str] = ("t",), **given: Any) -> ResultTable:
    rows = [
        ResultRow(method=label.split()[0], label=label, params={}, seed=seed, scores=dict.fromkeys(tasks, score), is_fixed=label == "base")
        for label, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return build_table(
        TableRows(title="t", rows=rows, columns=tasks, average=len(tasks) > 1, measure=TASK_KINDS["sts"].main), baseline=baseline, **given
    )


SEEDS = {"base": [70.0], "rcl": [80.0, 80.4, 81.0], "eq1": [79.0, 79.5, 79.2]}


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_cell_of_a_csv_stands_under_its_heading() -> None:
    leaked = {("rcl", "t0"): Leaked(num_leaked=3, num_items=60, num_near=5)}
    table = _table(SEEDS, tasks=["t0", "t1"], leaked=leaked, exploratory={"rcl": "dev has not spoken"})
    for row, line in zip(_rows(to_csv(table)), table.lines, strict=True):
        assert (row["label"], row["method"], row["num_seeds"]) == (line.label, line.method, str(line.num_seeds))
        assert (row["is_fixed"], row["exploratory"]) == (str(line.is_fixed), line.exploratory)
        for column, cell in line.cells.items():
            summary, interval = cell.summary, cell.interval
            assert summary is not None
            expected = [summary.mean, summary.sd, *((None, None) if interval is None else (interval.low, interval.high))]
            given = [row[f"{column} {part}"] for part in ("mean", "sd", "low", "high")]
            assert given == ["" if value is None else f"{value:.6g}" for value in expected]
            assert row[f"{column} interval over"] == ("" if interval is None else interval.about)
            assert row[f"{column} items leaked"] == ("" if cell.leaked is None else str(cell.leaked.num_leaked))
    assert [row["exploratory"] for row in _rows(to_csv(table))] == ["", "dev has not spoken", ""]
    assert [row["t0 items leaked"] for row in _rows(to_csv(table))] == ["", "3", ""]


def test_every_difference_of_a_csv_has_its_own_p_and_that_over_the_table() -> None:
    table = _table(SEEDS, baseline="eq1", tasks=["t0", "t1", "t2"])
    rows = _rows(comparisons_to_csv(table))
    found = {(row["system"], row["against"], row["relation"], row["task"], row["speaks of"] == "other tasks"): row for row in rows}
    assert len(found) == len(rows)
    for comparison in table.comparisons:
        names = (comparison.system, comparison.other, comparison.relation)
        for task, one in comparison.differences.items():
            row = found[*names, task, False]
            numbers = (one.difference, one.low, one.high, one.p, one.table_p, one.detectable)
            given = [row[name] for name in ("difference", "low", "high", "p alone", "p over table", "detectable")]
            assert given == ["" if value is None else f"{value:.6g}" for value in numbers]
            assert (row["speaks of"], row["reason"]) == (one.about, one.reason)
        if (other := comparison.other_tasks) is not None:
            row = found[*names, AVERAGE, True]
            assert [row[name] for name in ("low", "high", "p alone")] == [
                "" if one is None else f"{one:.6g}" for one in (other.low, other.high, other.p)
            ]
    assert any(one.p != one.table_p for comparison in table.comparisons for one in comparison.differences.values())


def _sweep(headline: str | None, *methods: str, trials: tuple[TrialRecord, ...] = ()) -> SweepRecord:
    recipe: dict[str, Json] = {"headline": headline, "methods": {name: {"objective": {} if name != "base" else None} for name in methods}}
    return SweepRecord(name="s", about="", recipe=recipe, baseline=None, paper=None, places={}, trials=trials)


@pytest.mark.parametrize(
    ("headline", "spoken"), [("rcl", "rcl (a=1)"), ("other", "other"), (None, "other"), ("gone", "other"), ("base", "base")]
)
def test_a_finding_speaks_of_the_headline_method_else_of_the_first_trained_one_beside_the_baseline(
    headline: str | None, spoken: str
) -> None:
    scores = {"base": [70.0], "eq1": [79.0, 79.5], "other": [78.0, 78.5], "rcl (a=1)": [80.0, 80.4], "rcl (a=2)": [82.0, 82.4]}
    table = _table(scores, baseline="eq1")
    sweep = _sweep(headline, "base", "eq1", "other", "rcl")
    said = finding(sweep, table, {})
    assert said[0] == table.verdict(spoken) and len(said) == 4, "a sentence a method, and for how many comparisons it is corrected"
    assert {"base", "other", "rcl (a=1)"} == {line.label for line in spoken_rows(sweep, table, {})[:-1]}
    doubted = _table(scores, baseline="eq1", exploratory={spoken: "dev has not spoken"})
    assert finding(sweep, doubted, {})[0].endswith(" Exploratory: dev has not spoken.")


def test_what_a_finding_rests_on_is_said() -> None:
    table = _table(SEEDS, baseline="eq1")
    assert rests_on(table, table.line("rcl")) == "It rests on 3 seeds."
    assert rests_on(table, table.line("base")) == "" and rests_on(table, None) == ""
    assert rests_on(replace(table, num_items={"t": 60}), table.line("rcl")) == "It rests on 3 seeds and 60 test items."


def _record(key: str, kind: str = "train", *, created_at: str = "2026-01-02T03:04:05Z", results: dict[str, Json] | None = None,
            runtime: dict[str, Json] | None = None, **environment: str) -> Record:  # fmt: skip
    return Record(
        key=key, kind=kind, label=key, place=f"{kind}/{key}", stage={}, inputs=(), created_at=created_at, seconds=1.0, runtime=runtime or {},
        environment=environment, results=results or {}, files={},
    )  # fmt: skip


def test_the_head_of_a_page_says_the_newest_versions_and_all_machines_and_a_few_seeds() -> None:
    records = {
        "a": _record("a", created_at="2026-02-01T00:00:00Z", torch="2.1", processor="Xeon", commit="abc"),
        "b": _record("b", created_at="2026-03-01T10:20:30Z", torch="2.2", ray="2.60", processor="Xeon",
                     runtime={"workers": 4, "gpus_per_worker": 1.0}),
        "c": _record("c", created_at="2026-01-01T00:00:00Z", torch="2.0", processor="Xeon", runtime={"workers": 2, "gpus_per_worker": 0.5}),
        "d": _record("d", "scores", created_at="2026-01-05T00:00:00Z", processor="of a score"),
    }  # fmt: skip
    trials = tuple(
        TrialRecord(key=f"k{seed}", method="m", cell="m", name="m", params={}, seed=seed, fold=None, train="a", stages=())
        for seed in range(5)
    )
    found = page_facts(_sweep(None, trials=trials), records, [])
    assert (found["finished"], found["made with"]) == ("2026-03-01 10:20:30 UTC", "torch 2.2, ray 2.60")
    assert (found["trials"], found["seeds"], found["commit"]) == ("5", "0, 1, 2 and 2 more", "abc")
    assert found["machine"] == "Xeon, Xeon, 4 GPU, Xeon, 2 × 0.5 GPU"


PRINTED = PaperTable(
    paper="rcl", number="9", caption="c", base="Eq. 1", columns=("STS12", "STS13", "Avg"),
    rows=(PaperRow(label="Eq. 1", scores=(70.0, 72.0, 71.0)), PaperRow(label="RCL", scores=(74.0, 71.0, 72.5), starred=("STS12",), printed={"STS13": 11.0}),
          PaperRow(label="other", scores=(1.0, 2.0, 1.5))),
    recipes={"": "all.yaml", "RCL": "rcl.yaml"},
)  # fmt: skip


def test_a_printed_row_has_its_gain_in_the_last_column_and_its_misprints_beside_what_was_meant() -> None:
    rows = list(paper_page._rows(PRINTED, {}))
    assert rows[1].cells == (("74.00*",), ("71.00 (misprinted 11.00)",), ("72.50",), ("+1.50",))
    assert [row.cells[-1] for row in rows] == [("",), ("+1.50",), ("-69.50",)]
    assert paper_page._not_run(PRINTED, {}) == {"all.yaml": ["Eq. 1", "other"], "rcl.yaml": ["RCL"]}
    there: Any = ["something of ours"]
    assert paper_page._not_run(PRINTED, {"RCL": there}) == {"all.yaml": ["Eq. 1", "other"]}
    assert paper_page._not_run(replace(PRINTED, recipes={"RCL": "rcl.yaml"}), {}) == {"rcl.yaml": ["RCL"]}


def test_our_row_says_what_it_gains_over_our_base_how_far_it_is_from_theirs_and_why_to_doubt_it() -> None:
    table = _table({"eq1": [70.0, 71.0, 72.0], "rcl": [75.0, 75.2, 75.4]}, tasks=["STS12", "STS13"])
    columns = {"STS12": "STS12", "STS13": "STS13", "Avg": "Avg"}
    own = OurRow(sweep="mine", line=table.line("rcl"), base=table.line("eq1"), columns=columns)
    row = paper_page._our_row(PRINTED, PRINTED.rows[1], own)
    interval = table.line("rcl").cells["STS12"].interval
    assert row.label == "↳ rcl (mine, 3 seeds)" and row.cells[-1] == ("+4.20",) and interval is not None
    assert row.cells[0] == (
        f"75.20 [{interval.low:.2f}, {interval.high:.2f}]", f"+1.20 [{interval.low - 74:+.2f}, {interval.high - 74:+.2f}]",
    )  # fmt: skip
    doubted = replace(own, what="the test chose it", line=replace(own.line, exploratory="dev has not spoken"))
    assert paper_page._our_row(PRINTED, PRINTED.rows[1], doubted).label == "↳ rcl (mine, 3 seeds, exploratory; the test chose it)"
    assert paper_page._our_row(PRINTED, PRINTED.rows[1], replace(own, base=None)).cells[-1] == ("",)


@pytest.mark.parametrize(("ours", "titles"), [(None, ["t", "u"]), ("u", ["u"])])
def test_a_printed_table_may_name_the_one_of_ours_that_it_is_about(
    ours: str | None, titles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two benchmarks have a column CR."""
    tables = [replace(_table({"rcl": [score]}, tasks=["STS12"]), title=title) for title, score in (("t", 1.0), ("u", 2.0))]
    sweep = SimpleNamespace(paper="p", records=lambda store: {})
    found = {"sweep_names": ["s"], "load_sweep": sweep, "sweep_rows": SimpleNamespace(facts={"rcl": SimpleNamespace(line="")}),
             "sweep_leaks": None, "result_tables": tables}  # fmt: skip
    for name, answer in found.items():
        monkeypatch.setattr(paper_page, name, lambda *_, answer=answer: answer)
    printed: Any = SimpleNamespace(tables={"9": replace(PRINTED, ours=ours)}, further=None, our_rows=lambda facts: {"9": {"rcl": "RCL"}})
    rows = paper_page._our_rows(SimpleNamespace(), "p", printed)["9"]["RCL"]  # type: ignore[arg-type]
    assert [{1.0: "t", 2.0: "u"}[row.line.cells["STS12"].summary.mean] for row in rows] == titles  # type: ignore[union-attr]


def test_sharing_spares_each_time_but_the_first() -> None:
    records = {key: _record(key, kind).model_copy(update={"seconds": 10.0}) for key, kind in (("c", "corpus"), ("t", "train"))}
    trials = tuple(
        TrialRecord(
            key=f"s{seed}", method="m", cell="m", name="m", params={}, seed=seed, fold=None, train="t", stages=("c", "t", f"s{seed}")
        )
        for seed in range(3)
    )
    places = {"c": "corpus/c", "t": "train/t", **{f"s{seed}": f"scores/s{seed}" for seed in range(3)}}
    sweep = SweepRecord(name="s", about="", recipe={}, baseline=None, paper=None, places=places, trials=trials)
    assert _stage_rows(sweep, records) == [
        ["corpus", "3", "1", "1", "10", "20"], ["train", "3", "1", "1", "10", "20"], ["scores", "3", "3", "0", "0", "0"],
    ]  # fmt: skip


def test_an_average_counts_over_the_same_tasks_alone() -> None:
    few, whole = (_table({"a": [1.0]}, tasks=tasks) for tasks in (["STS12", "STS13"], list(STS_COLUMNS[:-1])))
    for columns, of_few in ((STS_COLUMNS, ["STS12", "STS13"]), (("Avg",), [])):
        table = replace(PRINTED, columns=columns, rows=())
        assert (list(table.columns_in(few.columns)), list(table.columns_in(whole.columns))) == (of_few, list(columns))
        assert "Avg" not in table.columns_in((*whole.columns, "STR"))


def test_the_sweeps_of_a_paper_stand_one_beneath_the_other_and_those_of_others_nowhere(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data, methods = write_data(tmp_path / "data"), tiny_values(tiny_encoder_dir)["methods"]
    assert isinstance(methods, dict)
    methods["rcl"]["phis"] = [0.01, 0.02, 0.03, 0.04]  # type: ignore[call-overload, index]
    for name, paper in (("one", "rcl"), ("two", "rcl"), ("theirs", "simcse"), ("nobody's", None)):
        values = tiny_values(tiny_encoder_dir, name=name.replace("'", ""), paper=paper, methods=methods)
        plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
        fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 30})
    table = report_paper(context.store, "rcl").markdown.split("## Table 3")[1].split("## Table 4")[0].splitlines()
    place = next(number for number, line in enumerate(table) if line.startswith("| RCL |"))
    assert [line.split("|")[1].strip().partition(";")[0] for line in table[place + 1 : place + 3]] == [
        "↳ rcl (one, 1 seed",
        "↳ rcl (two, 1 seed",
    ]
    assert "theirs" not in "".join(table) and "nobodys" not in "".join(table)


@pytest.mark.parametrize(
    ("differences", "works"),
    [
        ([], []),
        ([Difference(difference=1.0, about="nothing")], []),
        ([Difference(difference=1.0, p=0.1, table_p=0.1, about="items")], ["jackknife", "confidence_set"]),
        ([Difference(difference=1.0, p=0.1, table_p=0.1, about="seeds")] * 2, ["moderated", "max_t", "confidence_set"]),
        ([Difference(difference=1.0, p=0.1, table_p=0.1, about="seeds and items")], ["jackknife", "pigeonhole", "moderated", "confidence_set"]),
    ],
)  # fmt: skip
def test_a_page_cites_the_tests_that_stand_in_it(differences: list[Difference], works: list[str]) -> None:
    compared = Comparison(
        system="b", other="a", relation="baseline", differences={str(place): one for place, one in enumerate(differences)}
    )
    table = replace(_table({"a": [80.0], "b": [81.0]}), comparisons=(compared,))
    assert list(_of_tests([table])) == works


def test_a_page_cites_ray_where_workers_shared_a_training_or_ray_carried_it_out() -> None:
    for runtime, environment, works in (
        ({"workers": 1}, {}, []), ({"workers": 2}, {}, ["ray"]), ({"workers": 2, "engine": "deepspeed"}, {}, ["ray", "deepspeed"]),
        ({"workers": 1, "engine": "deepspeed"}, {}, []), ({}, {"executed by": "ray"}, ["ray"]),
    ):  # fmt: skip
        assert list(_of_machines([_record("a", runtime=dict(runtime), **environment)])) == works


def test_the_geometry_of_a_system_is_the_mean_over_its_own_finished_trials() -> None:
    measures = ("alignment", "uniformity", "mean_cosine", "effective_rank")
    values = {"a0": 1.0, "a1": 3.0, "b0": 8.0, "b1": None}
    cells = {"one": ("a0", "a1"), "two": ("b0", "b1")}
    sweep: Any = SimpleNamespace(cells={cell: [SimpleNamespace(key=key) for key in keys] for cell, keys in cells.items()})
    records: Any = {
        key: SimpleNamespace(results={f"geometry.{name}": value for name in measures}) for key, value in values.items() if value
    }
    assert _geometry_rows(sweep, records) == [["one", *["2.000"] * 4], ["two", *["8.000"] * 4]]
