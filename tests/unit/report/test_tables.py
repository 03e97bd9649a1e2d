"""A result table says what the rows support, no more: means, intervals, tests, marks, sentences."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import ttest_rel

from sentdist.errors import DataError
from sentdist.evaluation.significance import Difference, over_tasks
from sentdist.evaluation.sts import spearman
from sentdist.report.comparisons import AVERAGE, Comparison, in_words, table_columns
from sentdist.report.leaks import Leaked
from sentdist.report.score_rows import ResultRow, Scalar, TableRows, group_rows, read_items
from sentdist.report.tables import ResultTable, build_table, comparisons_to_csv, to_csv
from sentdist.report.templating import html_page
from sentdist.store.sweep import SweepRecord
from sentdist.tasks.kinds import TASK_KINDS
from tests.support.pages import markdown_part

TASKS = ("STS12", "STS13", "STS-B")


def _row(label: str, seed: int, scores: tuple[float | None, ...], *, is_fixed: bool = False, **params: Scalar) -> ResultRow:
    return ResultRow(method="rcl", label=label, params=params, seed=seed, scores=dict(zip(TASKS, scores, strict=False)), is_fixed=is_fixed)


@pytest.fixture
def rows() -> list[ResultRow]:
    return [
        _row("base", 0, (70.0, 80.0, 75.0), is_fixed=True),
        *(_row("eq1", seed, (71 + 0.1 * seed, 81 - 0.1 * seed, 76.0 + 0.05 * seed)) for seed in range(3)),
        *(_row("rcl", seed, (72.5 + 0.1 * seed, 81.1 + 0.3 * seed, 74.0 + 0.1 * seed), phis=".01") for seed in (2, 0, 1)),
    ]


def _table(rows: list[ResultRow], *, columns: tuple[str, ...] = TASKS, baseline: str | None = "eq1", **options: object) -> ResultTable:
    measure = TASK_KINDS["sts"].main
    given = TableRows(title="Seven tasks", rows=rows, columns=columns, measure=measure, average=len(columns) > 1)
    return build_table(given, baseline=baseline, **options)  # type: ignore[arg-type]


def test_cells_are_means_over_seeds_and_the_average_is_taken_seed_by_seed(rows: list[ResultRow]) -> None:
    cells = _table(rows).line("rcl").cells
    assert cells["STS12"].summary is not None and cells["Avg"].summary is not None
    assert cells["STS12"].summary.mean == pytest.approx(72.6) and cells["STS12"].summary.sd == pytest.approx(0.1)
    per_seed = [np.mean([72.5 + 0.1 * s, 81.1 + 0.3 * s, 74.0 + 0.1 * s]) for s in range(3)]
    assert cells["Avg"].summary.mean == pytest.approx(np.mean(per_seed))
    assert cells["Avg"].summary.sd == pytest.approx(np.std(per_seed, ddof=1))


def test_two_systems_with_the_same_seeds_are_paired_by_them(rows: list[ResultRow]) -> None:
    table = _table([row for row in rows if row.label != "base"])
    found = table.line("rcl").cells["STS13"].against_baseline
    assert found is not None and found.about == "seeds" and found.p is not None and found.table_p is not None
    assert found.p == pytest.approx(ttest_rel([81.1, 81.4, 81.7], [81.0, 80.9, 80.8]).pvalue, rel=0.02)  # read off a grid of quantiles
    assert found.p < found.table_p <= 4 * found.p and table.num_tests == 3
    others = [replace(row, seed=row.seed + 10) if row.label == "eq1" else row for row in rows if row.label != "base"]
    apart = _table(others).line("rcl").cells["STS13"].against_baseline
    assert apart is not None and apart.p is not None and apart.p != pytest.approx(found.p, rel=0.05)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Difference(difference=0.42, low=0.11, high=0.73, p=0.01, table_p=0.02, about="seeds"),
         "RCL is better than Eq. 1 by 0.42 points (95 % interval +0.11 to +0.73, p = 0.020)."),
        (Difference(difference=0.9, low=0.0, high=1.4, table_p=0.25, about="seeds", num_seeds=3, by_signs=True, enough_by_signs=6),
         "RCL is not shown to differ from Eq. 1: +0.90 points (95 % interval +0.00 to +1.40, p = 0.250); 3 seeds are too few, 6 on one side "
         "would be enough."),
        (Difference(difference=0.0, reason="why"), "RCL is equal to Eq. 1 to two digits, which cannot be tested: why."),
    ],
)  # fmt: skip
def test_a_comparison_is_said_in_plain_words(found: Difference, said: str) -> None:
    assert in_words(Comparison(system="RCL", other="Eq. 1", relation="baseline", differences={"t": found}), "t") == said


def test_runs_that_score_alike_have_no_test_and_a_saturated_one_is_called_so() -> None:
    """29 of 30 questions solved by every training: the trainings differ, the test cannot see it."""
    same = _table([_row(label, seed, (70.0, 80.0, 75.0)) for label in ("eq1", "rcl") for seed in range(3)]).line("rcl").cells["Avg"]
    assert same.against_baseline is not None and same.against_baseline.p is None and same.interval is None
    assert same.against_baseline.reason.startswith("all 6 runs score 75.00 on these test items")
    for reference, count in (("eq1", 4), ("base", 3)):
        both = [_row(label, seed, (98.33,)) for label in ("eq1", "rcl") for seed in (0, 1)] + [_row("base", 0, (98.33,), is_fixed=True)]
        found = _table(both, columns=TASKS[:1], baseline=reference).line("rcl").cells["STS12"].against_baseline
        assert found is not None and found.reason.startswith(f"saturated: all {count} runs score 98.33 on these test items")


def test_no_interval_goes_beyond_what_a_measure_can_be() -> None:
    """Two seeds that differ by two points have an interval of 25."""
    both = group_rows([_row(label, seed, (mean + 2 * seed,) * 3) for label, mean in (("low", 1.0), ("high", 97.0)) for seed in range(2)])
    for kind in (TASK_KINDS["sts"], TASK_KINDS["pairs"], TASK_KINDS["classification"]):
        columns = table_columns(both, dict.fromkeys(TASKS, kind.main), average=True)
        for name in (*TASKS, AVERAGE):
            low, high = columns.interval(name, "low"), columns.interval(name, "high")
            assert low is not None and high is not None and high.high == kind.main.highest == 100.0 and low.high > 3.0 and high.low < 97.0
            assert (low.low < 0.0) if kind.name == "sts" else (low.low == kind.main.lowest == 0.0), "a correlation may be negative"
    systems = group_rows([_row("low", seed, (2.0 * seed,) * 3) for seed in range(2)])
    measures = dict(zip(TASKS, (TASK_KINDS["sts"].main, TASK_KINDS["pairs"].main, TASK_KINDS["pairs"].main), strict=True))
    columns = table_columns(systems, measures, average=True)
    assert columns.measures[AVERAGE].lowest == pytest.approx(-100 / 3) and columns.measures[AVERAGE].highest == 100.0, "a mean's own"
    assert columns.interval("elsewhere", "low") is None


def _with_items(folder: Path, label: str, noise: float, seed: int = 0, num_pairs: int = 400) -> ResultRow:
    scores, items = {}, {}
    for number, task in enumerate(TASKS):
        gold = np.random.default_rng(number).uniform(0, 5, num_pairs)
        similarities = (gold + np.random.default_rng([number, seed, int(100 * noise)]).normal(0, noise, num_pairs)) / 10
        items[task] = folder / f"{label}-{seed}-{task}.parquet"
        pq.write_table(pa.table({"score": gold, "similarity": similarities}), items[task])
        scores[task] = spearman(similarities, gold)
    return ResultRow(method="rcl", label=label, params={}, seed=seed, scores=scores, items=items)


def test_other_tasks_are_asked_seed_by_seed_and_not_of_rows_of_other_seeds() -> None:
    """Seeds' luck, where nothing takes it out, passes for a difference on other tasks in up to 64 of 100 cases."""
    ours = np.random.default_rng(0).normal(75, 1, (4, 3))
    for num_runs, first in ((4, 0), (4, 10), (1, 0)):
        theirs = np.random.default_rng(1).normal(74, 1, (num_runs, 3))
        rows = [
            *(_row("eq1", first + seed, tuple(row), is_fixed=num_runs == 1) for seed, row in enumerate(theirs.tolist())),
            *(_row("rcl", seed, tuple(row)) for seed, row in enumerate(ours.tolist())),
        ]
        found = next(one.other_tasks for one in _table(rows).comparisons if (one.system, one.relation) == ("rcl", "baseline"))
        assert found == (None if first else over_tasks(ours - theirs)), "other seeds say nothing"


def test_with_seeds_and_items_both_are_drawn_again(tmp_path: Path) -> None:
    """Adding items widens the interval of few seeds that agree; the average's difference is that of seeds' averages."""
    rows = [_with_items(tmp_path, label, noise, seed) for label, noise in (("eq1", 2.0), ("rcl", 1.9)) for seed in (0, 1, 2)]
    one = _table([row for row in rows if row.seed == 0]).line("rcl").cells["STS12"].against_baseline
    assert one is not None and one.about == "items" and one.low is not None and one.high is not None and one.low < one.difference < one.high
    found = _table(rows).line("rcl").cells["Avg"].against_baseline
    plain = _table([replace(row, items=None) for row in rows]).line("rcl").cells["Avg"].against_baseline
    assert found is not None and plain is not None and (found.about, plain.about) == ("seeds and items", "seeds")
    assert found.difference == pytest.approx(plain.difference)
    lacking = _table([*rows[:-1], replace(rows[-1], items=None)]).line("rcl").cells["Avg"].against_baseline
    assert lacking is not None and lacking.about == "seeds", "where a seed has no items those of the others say nothing of all"
    records = list(csv.DictReader(io.StringIO(comparisons_to_csv(_table(rows)))))
    assert {record["speaks of"] for record in records} == {"seeds and items", "other tasks"}
    assert len(records) == len(TASKS) + 2  # the average, and on other tasks
    average = next(record for record in records if record["task"] == "Avg")
    assert (float(average["p alone"]), float(average["p over table"])) == pytest.approx((found.p, found.table_p), rel=1e-5)


def test_the_csv_has_the_settings_of_each_system() -> None:
    rows = [_row(f"rcl ({phi})", 0, (70.0, 71.0, 72.0), phi=phi) for phi in (0.01, 0.05)]
    written = list(csv.DictReader(io.StringIO(to_csv(_table(rows, baseline=None)))))
    assert [float(line["phi"]) for line in written] == [0.01, 0.05]


def test_what_training_saw_stands_in_the_cell(rows: list[ResultRow]) -> None:
    table = _table(rows, leaked={("rcl", "STS12"): Leaked(num_leaked=999, num_items=3108)})
    cells = {
        line.split("|")[1].strip(): line.split("|")[3]
        for line in markdown_part("result_table", table).splitlines()
        if line.startswith("| ")
    }
    assert cells["rcl"].rstrip().endswith("**leaked 999 of 3,108**") and "leaked" not in cells["eq1"]
    assert '<span class="leaked">leaked 999 of 3,108</span>' in html_page("# t\n" + markdown_part("result_table", table))
    assert any(note.startswith("Leaked:") for note in table.notes)


def test_retrieval_items_and_folds(tmp_path: Path) -> None:
    paths = []
    for fold in range(2):
        paths.append(tmp_path / f"{fold}.parquet")
        pq.write_table(pa.table({"query_id": ["a", "b"], "map": [10.0 * fold, 50.0]}), paths[-1])
    row = ResultRow(method="m", label="m", params={}, seed=0, scores={"faq:map": 30.0}, items={"faq:map": tuple(paths)})
    items = read_items(row, "faq:map")
    assert items is not None and items.contributions.tolist() == [-12.5 / 2, 12.5 / 2, -5.0, 5.0]
    with pytest.raises(DataError, match='or "mrr"'):
        read_items(ResultRow(method="m", label="m", params={}, seed=0, scores={}, items={"faq:mrr": paths[0]}), "faq:mrr")
    assert read_items(row, "other") is None
    pq.write_table(pa.table({"similarity": [0.5, 0.5], "score": [1.0, 2.0]}), undefined := tmp_path / "2.parquet")
    assert read_items(replace(row, items={"faq:map": (*paths, undefined)}), "faq:map") is None, "a fold less is another test set"


def test_a_missing_score_is_a_dash_and_leaves_the_average(rows: list[ResultRow]) -> None:
    table = _table([*rows, _row("late", 0, (71.0, None, 75.0)), _row("late", 1, (72.0, 82.0, 76.0))])
    line = next(line for line in markdown_part("result_table", table).splitlines() if line.startswith("| late")).split("|")
    assert line[4].strip().startswith("**82.00** (n=1)") and "late" in table.notes[-1]
    average = table.line("late").cells["Avg"].summary
    assert average is not None and average.num_seeds == 1
    nothing = _table([*rows, _row("none", 0, (71.0, None, 75.0))])
    assert nothing.line("none").cells["Avg"].summary is None and "| not defined |" in markdown_part("result_table", nothing)


def test_other_items_and_a_seed_that_occurs_twice_are_refused(rows: list[ResultRow], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one and the same test set"):
        _table([_with_items(tmp_path, "eq1", 2.0), _with_items(tmp_path, "rcl", 1.0, num_pairs=300)])
    with pytest.raises(AssertionError, match="seeds of rcl"):
        _table([*rows, rows[-1]])


SWEEP = SweepRecord(name="s", about="", recipe={"methods": {"a": {"objective": {}}}}, baseline=None, paper=None, places={}, trials=())


def _table_claims(scores: dict[str, Sequence[float]], *, baseline: str | None = None, tasks: Sequence[str] = ("t",)) -> ResultTable:
    """One seed a score, the same on every task; `base` is a checkpoint."""
    rows = [
        ResultRow(method=label, label=label, params={}, seed=seed, scores=dict.fromkeys(tasks, score), is_fixed=label == "base")
        for label, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return build_table(
        TableRows(title="t", rows=rows, columns=tasks, average=len(tasks) > 1, measure=TASK_KINDS["sts"].main), baseline=baseline
    )


FINDINGS: list[tuple[dict[str, Sequence[float]], str]] = [
    ({"a": [80.0], "b": [81.0]}, "; b has the highest, 81.00."),
    ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.2, 90.1]}, "; b has the highest, 90.10, which is significantly better."),
    ({"a": [80.0, 80.1, 80.3], "b": [90.0, 90.0, 90.0]}, "; b has the highest, 90.00."),
    ({"a": [80.0, 83.1, 85.3], "b": [84.0, 90.2, 84.1]}, "; b has the highest, 86.10."),
    ({"a": [100.0], "b": [100.0], "c": [99.0]}, ", the highest of the table; 1 other row has it, too."),
    ({"a": [80.0], "b": [79.0]}, ", the highest of the table."),
]


def test_the_seeds_that_would_do_against_a_checkpoint_are_those_of_the_whole_table() -> None:
    """Six seeds are tested by their signs in a table of one comparison, and not among the eight of seven tasks and their average."""
    tasks = [f"t{number}" for number in range(7)]
    for few in (3, 6):
        table = _table_claims({"base": [50.0], "a": np.linspace(70, 71, few).tolist()}, baseline="base", tasks=tasks)
        found = table.comparisons[0].differences["Avg"]
        assert not found.is_significant and found.detectable is None and "would probably have been seen" not in table.verdicts["a"]
        enough = found.enough_by_signs
        assert enough is not None and enough > 6 and f"{enough} on one side would be enough" in table.verdicts["a"]
    reported = _table_claims({"base": [50.0], "a": np.linspace(70, 71, enough).tolist()}, baseline="base", tasks=tasks)
    assert reported.comparisons[0].differences["Avg"].is_significant
