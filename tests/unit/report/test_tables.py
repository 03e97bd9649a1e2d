"""A result table says what the rows support, no more, in Markdown, HTML and CSV alike."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import t, ttest_rel

from sentdist.errors import DataError
from sentdist.evaluation.significance import Difference, over_tasks
from sentdist.evaluation.sts import score_similarities
from sentdist.plan.task_kinds import TASK_KINDS, TaskKind
from sentdist.report.comparisons import AVERAGE, Comparison, in_words, lead_column, table_columns
from sentdist.report.leaks import Leaked
from sentdist.report.score_rows import ResultRow, Scalar, TableRows, group_rows, read_items
from sentdist.report.tables import ResultTable, build_table, comparisons_to_csv, to_csv
from tests.support.pages import html_part, markdown_part

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
    comparison = next(one for one in table.comparisons if (one.system, one.relation) == ("rcl", "preceding"))
    assert comparison.differences["STS13"].difference == pytest.approx(found.difference)


def test_an_untouched_checkpoint_beside_few_rows_is_tested_by_signs_alone(rows: list[ResultRow]) -> None:
    """Three seeds on one side of a constant have p = 0.25 by their signs; more than that only other rows can tell."""
    found = _table(rows).line("base").cells["STS12"].against_baseline
    assert found is not None and found.difference == pytest.approx(-1.1) and found.low is not None and found.high is not None
    assert found.low < -1.1 < 0.0 <= found.high and found.p == 0.25 and not found.is_significant, "the interval says what p says"
    said = _table(rows).verdicts["base"]
    assert found.by_signs and found.detectable is None and said.startswith("eq1 is not shown to differ from base: ") and "3 seeds" in said


def _luck(label: str, gain: float, seeds: int = 5) -> list[ResultRow]:
    generator = np.random.default_rng([*label.encode()])
    return [_row(label, seed, tuple(70 + gain + generator.normal(0, 0.1, 3))) for seed in range(seeds)]


def test_marks_point_up_and_down() -> None:
    lines = markdown_part("result_table", _table([*_luck("eq1", 0), *_luck("rcl", 2), *_luck("low", -2), *_luck("same", 0)])).splitlines()
    cells = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    assert cells["rcl"].count("↑") == cells["low"].count("↓") == 4
    assert not any(sign in cells["same"] + cells["eq1"] for sign in "↑↓*†▲▼△▽⟨")
    assert cells["rcl"].count("**") == 8 and "**" not in cells["same"] + cells["low"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Difference(difference=0.42, low=0.11, high=0.73, p=0.01, table_p=0.02, about="seeds"),
         "RCL is better than Eq. 1 by 0.42 points (95 % interval +0.11 to +0.73, p = 0.020)."),
        (Difference(difference=-0.42, low=-0.73, high=-0.11, table_p=0.02, about="seeds"),
         "RCL is worse than Eq. 1 by 0.42 points (95 % interval -0.73 to -0.11, p = 0.020)."),
        (Difference(difference=-0.08, low=-0.3, high=0.14, table_p=0.6, about="seeds", detectable=0.35),
         "RCL is not shown to differ from Eq. 1: -0.08 points (95 % interval -0.30 to +0.14, p = 0.600); a difference of 0.35 would probably "
         "have been seen."),
        (Difference(difference=0.9, low=0.0, high=1.4, table_p=0.25, about="seeds", num_seeds=3, by_signs=True, enough_by_signs=6),
         "RCL is not shown to differ from Eq. 1: +0.90 points (95 % interval +0.00 to +1.40, p = 0.250); 3 seeds are too few, 6 on one side "
         "would be enough."),
        (Difference(difference=0.42, low=0.11, high=0.73, table_p=0.02, about="items", num_seeds=1),
         "RCL is better than Eq. 1 by 0.42 points (95 % interval +0.11 to +0.73, p = 0.020); other seeds were not tried."),
        (Difference(difference=0.001, low=0.0005, high=0.002, table_p=0.02, about="seeds"),
         "RCL is better than Eq. 1 by less than 0.01 points (95 % interval +0.00 to +0.00, p = 0.020)."),
        (Difference(difference=0.0, reason="why"), "RCL is equal to Eq. 1 to two digits, which cannot be tested: why."),
    ],
)  # fmt: skip
def test_a_comparison_is_said_in_plain_words(found: Difference, said: str) -> None:
    assert in_words(Comparison(system="RCL", other="Eq. 1", relation="baseline", differences={"t": found}), "t") == said


def test_of_an_untouched_encoder_the_trained_row_is_spoken_of(rows: list[ResultRow]) -> None:
    table = _table(rows)
    assert table.verdict("base").startswith("eq1 ") and table.verdict("rcl").startswith("rcl ") and table.verdict("eq1") == ""
    found = table.line("base").cells["Avg"].against_baseline
    assert found is not None and f"{-found.difference:+.2f} points (95 % interval +0.00 to " in table.verdict("base"), "by signs, up to 0"


def test_best_and_tied() -> None:
    table = _table([*_luck("eq1", 0), *_luck("rcl", 2), *_luck("twin", 2)])
    assert sorted(line.cells["Avg"].standing for line in table.lines) == ["", "best", "tied"]
    assert table.line("eq1").cells["Avg"].standing == ""


def test_of_many_columns_more_is_asked_to_tell_a_row_from_the_best() -> None:
    """A p between that for which all four columns together are wrong in 5 of 100 tables, and 5 %."""
    gains = [0.05, 0.15, 0.25, 0.35, 0.45]
    assert 1 - 0.95 ** (1 / 4) < ttest_rel(gains, np.zeros(5)).pvalue < 0.05
    luck = np.random.default_rng(0).normal(70, 1, 5).tolist()
    rows = [
        _row(label, seed, (luck[seed] + by,) * 3)
        for label in ("eq1", "rcl")
        for seed, by in enumerate(gains if label == "rcl" else [0.0] * 5)
    ]
    assert [line.cells["STS12"].standing for line in _table(rows).lines] == ["tied", "best"]
    alone = _table(rows, columns=TASKS[:1])
    assert [line.cells["STS12"].standing for line in alone.lines] == ["", "best"]


def test_a_verdict_tells_why_either_side_is_no_evidence(rows: list[ResultRow]) -> None:
    verdicts = _table(rows, exploratory={"eq1": "stopped early", "rcl": "a pilot"}).verdicts
    assert verdicts["rcl"].endswith(" Exploratory: a pilot; stopped early.") and verdicts["base"].endswith(" Exploratory: stopped early.")


def test_one_seed_without_items_gets_no_mark_and_says_so(rows: list[ResultRow]) -> None:
    single = [row for row in rows if row.seed == 0]
    text = markdown_part("result_table", _table(single))
    assert "One seed: what other seeds would give is not known" in text
    assert "±" not in "".join(line for line in text.splitlines() if line.startswith("| "))
    assert not any(sign in line for line in text.splitlines() if line.startswith("| rcl") for sign in "↑↓")
    assert "which cannot be tested: one seed and no test items: nothing varies" in text


def test_copies_of_one_run_have_no_test() -> None:
    table = _table([_row(label, seed, (70.0, 80.0, 75.0)) for label in ("eq1", "rcl") for seed in range(3)])
    found = table.line("rcl").cells["Avg"]
    assert found.against_baseline is not None and found.against_baseline.p is None and found.interval is None
    assert found.against_baseline.reason == "all 6 runs score 75.00 on these test items, so they cannot be told apart"


def test_a_saturated_test_is_called_so_and_its_runs_not_copies() -> None:
    """29 of 30 questions solved by every training: the trainings differ, the test cannot see it."""
    for reference, count in (("eq1", 4), ("base", 3)):
        both = [_row(label, seed, (98.33,)) for label in ("eq1", "rcl") for seed in (0, 1)] + [_row("base", 0, (98.33,), is_fixed=True)]
        found = _table(both, columns=TASKS[:1], baseline=reference).line("rcl").cells["STS12"].against_baseline
        assert found is not None and found.reason.startswith(f"saturated: all {count} runs score 98.33 on these test items")
    apart = [*both, _row("eq2", 0, (70.0,)), _row("eq2", 1, (71.0,))]
    found = _table(apart, columns=TASKS[:1], baseline="eq2").line("rcl").cells["STS12"].against_baseline
    assert found is not None and found.reason.startswith("all 2 seeds of rcl score 98.33: what other seeds")


@pytest.mark.parametrize("kind", [kind for kind in TASK_KINDS.values() if kind.name != "geometry"], ids=lambda kind: kind.name)
def test_no_interval_goes_beyond_what_a_measure_can_be(kind: TaskKind) -> None:
    """Two seeds that differ by two points have an interval of 25."""
    systems = group_rows([_row(label, seed, (mean + 2 * seed,) * 3) for label, mean in (("low", 1.0), ("high", 97.0)) for seed in range(2)])
    columns = table_columns(systems, dict.fromkeys(TASKS, kind.main), average=True)
    for name in (*TASKS, AVERAGE):
        low, high = columns.interval(name, "low"), columns.interval(name, "high")
        assert low is not None and high is not None and high.high == kind.main.highest == 100.0 and low.high > 3.0 and high.low < 97.0
        assert (low.low < 0.0) if kind.name == "sts" else (low.low == kind.main.lowest == 0.0), "a correlation may be negative"


def test_the_interval_of_a_mean_ends_where_the_mean_of_its_measures_does() -> None:
    systems = group_rows([_row("low", seed, (2.0 * seed,) * 3) for seed in range(2)])
    measures = dict(zip(TASKS, (TASK_KINDS["sts"].main, TASK_KINDS["pairs"].main, TASK_KINDS["pairs"].main), strict=True))
    columns = table_columns(systems, measures, average=True)
    assert columns.measures[AVERAGE].lowest == pytest.approx(-100 / 3) and columns.measures[AVERAGE].highest == 100.0
    assert columns.interval("elsewhere", "low") is None


def _with_items(folder: Path, label: str, noise: float, seed: int = 0, num_pairs: int = 400) -> ResultRow:
    scores, items = {}, {}
    for number, task in enumerate(TASKS):
        gold = np.random.default_rng(number).uniform(0, 5, num_pairs)
        similarities = (gold + np.random.default_rng([number, seed, int(100 * noise)]).normal(0, noise, num_pairs)) / 10
        score = score_similarities(similarities, gold, ["one"] * num_pairs)
        items[task] = folder / f"{label}-{seed}-{task}.parquet"
        pq.write_table(pa.table(score.items()), items[task])
        scores[task] = score.spearman
    return ResultRow(method="rcl", label=label, params={}, seed=seed, scores=scores, items=items)


@pytest.mark.parametrize("base", ["same seeds", "other seeds", "checkpoint"])
def test_other_tasks_are_asked_seed_by_seed_and_not_of_rows_of_other_seeds(base: str) -> None:
    """Seeds' luck, where nothing takes it out, passes for a difference on other tasks in up to 64 of 100 cases."""
    ours = np.random.default_rng(0).normal(75, 1, (4, 3))
    theirs = np.random.default_rng(1).normal(74, 1, (1 if base == "checkpoint" else 4, 3))
    first = 10 if base == "other seeds" else 0
    rows = [
        *(_row("eq1", first + seed, tuple(row), is_fixed=base == "checkpoint") for seed, row in enumerate(theirs.tolist())),
        *(_row("rcl", seed, tuple(row)) for seed, row in enumerate(ours.tolist())),
    ]
    found = next(one.other_tasks for one in _table(rows).comparisons if (one.system, one.relation) == ("rcl", "baseline"))
    if base == "other seeds":
        assert found is None
    else:
        assert found is not None and found == over_tasks(ours - theirs)


def test_the_items_of_an_average_count_by_their_task(tmp_path: Path) -> None:
    """The variance of a mean of independent test sets is that of its parts by their number squared; n items have n - 1 degrees, and
    parts have Satterthwaite's together."""
    cells = _table([_with_items(tmp_path, "eq1", 2.0, num_pairs=40)]).line("eq1").cells
    halves = {name: (cell.interval.high - cell.interval.low) / 2 for name, cell in cells.items() if cell.interval is not None}
    of_tasks = [(halves[task] / float(t.isf(0.025, 39)) / len(TASKS)) ** 2 for task in TASKS]
    degrees = sum(of_tasks) ** 2 / sum(one**2 / 39 for one in of_tasks)
    assert halves[AVERAGE] == pytest.approx(float(t.isf(0.025, degrees)) * np.sqrt(sum(of_tasks)))


def test_one_seed_with_items_is_tested_over_items(tmp_path: Path) -> None:
    rows = [_with_items(tmp_path, "eq1", 2.0), _with_items(tmp_path, "rcl", 1.0), _with_items(tmp_path, "twin", 1.01)]
    table = _table(rows)
    found = table.line("rcl").cells["STS12"].against_baseline
    assert found is not None and found.about == "items" and found.is_significant
    assert found.low is not None and found.high is not None and 0 < found.low < found.difference < found.high
    text = markdown_part("result_table", table)
    assert "other seeds were not tried" in text and "with the same encoders" in text
    assert table.line("twin").cells["Avg"].standing in ("tied", "best")


def test_with_seeds_and_items_both_are_drawn_again(tmp_path: Path) -> None:
    """Adding items widens the interval of few seeds that agree; the average's difference is that of seeds' averages."""
    rows = [_with_items(tmp_path, label, noise, seed) for label, noise in (("eq1", 2.0), ("rcl", 1.9)) for seed in (0, 1, 2)]
    found = _table(rows).line("rcl").cells["Avg"].against_baseline
    plain = _table([replace(row, items=None) for row in rows]).line("rcl").cells["Avg"].against_baseline
    assert found is not None and plain is not None and (found.about, plain.about) == ("seeds and items", "seeds")
    assert found.difference == pytest.approx(plain.difference)
    lacking = _table([*rows[:-1], replace(rows[-1], items=None)]).line("rcl").cells["Avg"].against_baseline
    assert lacking is not None and lacking.about == "seeds", "where a seed has no items those of the others say nothing of all"
    records = list(csv.DictReader(io.StringIO(comparisons_to_csv(_table(rows)))))
    assert {record["speaks of"] for record in records} == {"seeds and items", "other tasks"}
    assert len(records) == 2 * (len(TASKS) + 2)  # two relations; the average, and on other tasks
    average = next(record for record in records if record["task"] == "Avg")
    assert (float(average["p alone"]), float(average["p over table"])) == pytest.approx((found.p, found.table_p), rel=1e-5)


def test_items_that_belong_together_count_as_one(tmp_path: Path) -> None:
    """Every pair ten times over tells no more than once, if its file says that the copies belong together."""
    rows = [_with_items(tmp_path, label, noise) for label, noise in (("eq1", 2.0), ("rcl", 1.9))]

    def copied(row: ResultRow, *, grouped: bool) -> ResultRow:
        paths = {}
        for task, path in (row.items or {}).items():
            table = pq.read_table(path)
            many = pa.concat_tables([table] * 10)
            paths[task] = tmp_path / f"{row.label}-{task}-{grouped}.parquet"
            pq.write_table(many.append_column("group", pa.array(list(range(len(table))) * 10)) if grouped else many, paths[task])
        return replace(row, items=paths)

    def width(given: list[ResultRow]) -> float:
        found = _table(given).line("rcl").cells["Avg"].against_baseline
        assert found is not None and found.low is not None and found.high is not None
        return found.high - found.low

    together = [copied(row, grouped=True) for row in rows]
    assert table_columns(group_rows(together), dict.fromkeys(TASKS, TASK_KINDS["sts"].main), average=False).sizes == dict.fromkeys(
        TASKS, (4000, 400)
    )
    assert width(together) == pytest.approx(width(rows), rel=0.02)
    assert width([copied(row, grouped=False) for row in rows]) == pytest.approx(width(rows) / 10**0.5, rel=0.02)


def test_what_training_saw_stands_in_the_cell(rows: list[ResultRow]) -> None:
    table = _table(rows, leaked={("rcl", "STS12"): Leaked(num_leaked=999, num_items=3108)})
    cells = {
        line.split("|")[1].strip(): line.split("|")[3]
        for line in markdown_part("result_table", table).splitlines()
        if line.startswith("| ")
    }
    assert cells["rcl"].rstrip().endswith("**leaked 999 of 3,108**") and "leaked" not in cells["eq1"]
    assert '<span class="leaked">leaked 999 of 3,108</span>' in html_part("result_table", table) and any(
        note.startswith("Leaked:") for note in table.notes
    )


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


class _Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_balanced_escaped_and_says_the_same(rows: list[ResultRow]) -> None:
    rows[0] = _row("<b>base & co</b>", 0, (70.0, 80.0, 75.0), is_fixed=True)
    text = html_part("result_table", _table(rows))
    parser = _Balanced()
    parser.feed(text)
    assert not parser.open and "<b>" not in text and "&lt;b&gt;base &amp; co" in text
    assert '<td class="best"' in text and "95 % interval over other seeds, on the same test items" in text


def test_csv_keeps_every_number(rows: list[ResultRow]) -> None:
    records = list(csv.DictReader(io.StringIO(to_csv(_table(rows)))))
    assert [record["label"] for record in records] == ["base", "eq1", "rcl"]
    assert float(records[2]["STS12 mean"]) == 72.6 and records[2]["phis"] == ".01" and records[0]["STS12 sd"] == ""
    assert float(records[2]["STS12 sd"]) == pytest.approx(0.1)


def test_bad_input_is_named(rows: list[ResultRow], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'eq2'"):
        _table(rows, baseline="eq2")
    with pytest.raises(DataError, match="STS99"):
        _table(rows, columns=("STS99",), baseline=None)
    with pytest.raises(DataError, match="no rows"):
        _table([], baseline=None)
    with pytest.raises(DataError, match="each seed once"):
        _table([*rows, rows[-1]])
    with pytest.raises(DataError, match="one label for one system"):
        _table([*rows, _row("rcl", 7, (1.0, 2.0, 3.0), phis="other")])
    short = [_with_items(tmp_path, "eq1", 2.0), _with_items(tmp_path, "rcl", 1.0, num_pairs=300)]
    with pytest.raises(DataError, match="one and the same test set"):
        _table(short)


@pytest.mark.parametrize("column", ["score", "group"])
def test_as_many_items_of_another_test_set_are_refused(column: str, tmp_path: Path) -> None:
    """Of one size, but with other gold scores, or with other items that belong together."""
    files = []
    for label in ("eq1", "rcl"):
        row = _with_items(tmp_path, label, 2.0)
        assert isinstance(row.items, dict)
        table = pq.read_table(row.items["STS12"]).append_column("group", pa.array(np.arange(400) // 2))
        if label == "rcl":
            other = np.roll(table[column].to_numpy(), 1)
            table = table.set_column(table.column_names.index(column), column, pa.array(other))
        pq.write_table(table, row.items["STS12"])
        files.append(row)
    with pytest.raises(DataError, match="or other gold scores or groups"):
        _table(files)
    assert _table(files[:1]).lines


@pytest.mark.parametrize(
    ("columns", "lead"),
    [
        (("sts12", "sts13", "Avg"), "Avg"),
        (("faq:acc@1", "faq:map", "faq:mrr", "faq:ndcg@10"), "faq:map"),  # the last one spoke: dev had chosen by another measure
    ],
)
def test_the_measure_that_stands_for_a_task_speaks_for_a_table(columns: tuple[str, ...], lead: str) -> None:
    assert lead_column(columns) == lead
