"""How often the test of significance errs, and how often its intervals hold: `python -m rayjobs.benchmarks.calibration_page`."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from rayjobs.benchmarks import out_folder
from rayjobs.benchmarks.calibration import (
    by_items_alone,
    by_seeds_alone,
    by_seeds_and_items,
    errors,
    monte_carlo_error,
    not_best,
    over_table,
)
from rayjobs.benchmarks.null_measures import MEASURES, false_positives
from rayjobs.benchmarks.null_models import NullModel
from rayjobs.benchmarks.null_tasks import (
    PARTS,
    SHARING,
    SIZES,
    false_positives_of_means,
    false_positives_of_parts,
    false_positives_of_shared,
)
from sentdist.report.style import Drawing, canvas, house_style, save

RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)
SEEDS = (2, 3, 5, 10)
ROWS = (1, 3, 10, 30, 100)
ITEMS = 60
GROUPS = (2, 3, 5, 10)  # of test items, for many rows

MODELS = {
    "seeds paired, correlation 0.9": NullModel(shared_luck=0.9),
    "luck skewed": NullModel(luck="skewed"),
    "luck of two modes": NullModel(luck="bimodal"),
    "one training in ten collapses": NullModel(luck="collapse"),
    "items right or wrong (ties)": NullModel(ties=True),
    "items in groups of 10": NullModel(num_items=400, group_size=10, items_over_seeds=4.0),
    "items in groups of 40": NullModel(num_items=800, group_size=40, items_over_seeds=4.0),
    "checkpoint, 1 row, normal": NullModel(is_fixed=True),
    "checkpoint, 1 row, skewed, 5 seeds": NullModel(is_fixed=True, luck="skewed", num_seeds=5),
    "checkpoint, 1 row, two modes, 5 seeds": NullModel(is_fixed=True, luck="bimodal", num_seeds=5),
    "checkpoint, 6 rows, skewed": NullModel(is_fixed=True, luck="skewed", num_rows=6),
    "checkpoint, 6 rows, two modes": NullModel(is_fixed=True, luck="bimodal", num_rows=6),
}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Shares in [0, 1] over what was varied."""

    label: str
    places: Sequence[float]
    shares: Sequence[float]


def main() -> None:
    """Simulate, and write calibration.md and its figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="infra/benchmarks", type=out_folder)
    parser.add_argument("--tables", default=4000, type=int, help="of a model with one row; a fortieth of it with a hundred rows")
    asked = parser.parse_args()
    started = time.process_time()
    lines, by_ratio, by_rows = list(_page(asked.tables)), _curves_by_ratio(asked.tables), _by_rows(asked.tables)
    (asked.out / "calibration.svg").write_text(picture(by_ratio, by_rows).svg)
    text = "\n".join([*_head(asked.tables), *_ratio_table(by_ratio, asked.tables), *_row_table(by_rows), *lines])
    (asked.out / "calibration.md").write_text(f"{text}\n\nProcessor seconds: {time.process_time() - started:.0f}.\n")


def _head(count: int) -> Iterator[str]:
    yield "# How often the test of significance errs"
    yield ""
    yield (
        "`sentdist/evaluation/significance.py` on made-up tables in which no system is better than another "
        "(`rayjobs/benchmarks/null_models.py`). The level is 5 %."
    )
    yield (
        "The interval of a difference leaves out 0 exactly where its p is below 0.05, both over the table "
        "(`tests/laws/test_significance.py`), so coverage is 100 % less the false positives."
    )
    yield f"Counting error (95 %) of 5 %: ± {100 * monte_carlo_error(0.05, count):.1f} for {count:,} tables."
    yield ""
    yield (
        f"`python -m rayjobs.benchmarks.calibration_page --tables {count}`; Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}."
    )
    yield ""
    yield "![False positives by ratio and by rows](calibration.svg)"
    yield ""


def _curves_by_ratio(count: int) -> list[Curve]:
    """One row against a baseline, by the ratio of standard errors from items and from seeds."""
    models = {seeds: [NullModel(num_seeds=seeds, items_over_seeds=ratio, num_items=ITEMS) for ratio in RATIOS] for seeds in SEEDS}
    own = [Curve(label=f"seeds and items, {seeds} seeds", places=RATIOS,
        shares=[errors(by_seeds_and_items, one, count=count).one_row for one in row])
           for seeds, row in models.items()]  # fmt: skip
    old = [Curve(label=f"{label}, 3 seeds", places=RATIOS, shares=[errors(rule, one, count=count).one_row for one in models[3]])
           for label, rule in (("seeds alone", by_seeds_alone), ("items alone", by_items_alone))]  # fmt: skip
    return [*own, *old]


def _by_rows(count: int) -> list[Curve]:
    """Tables of equal rows: some mark at all; the best row's equals left out; today's rule before; three seeds."""
    some, best, before = [], [], []
    for rows in ROWS:
        model = NullModel(num_rows=rows, num_items=ITEMS)
        fewer = max(100, count // max(1, rows // 3))
        some.append(errors(over_table, model, count=fewer).any_row)
        best.append(not_best(model, count=max(60, count // (rows + 10))))
        before.append(errors(by_seeds_alone, model, count=fewer).any_row)
    labels = ("some mark in the table", "some equal said not to be the best", "some star by seeds alone")
    return [Curve(label=label, places=ROWS, shares=shares) for label, shares in zip(labels, (some, best, before), strict=True)]


def _ratio_table(curves: Sequence[Curve], count: int) -> Iterator[str]:
    yield f"## One row, items against seeds ({count:,} tables each)"
    yield ""
    yield (
        "False positives in %, by the standard error from items over that from seeds (variances: 1/16 to 16). A quarter of a training's "
        "variance is its own on these items."
    )
    yield ""
    yield "| | " + " | ".join(f"{ratio:g}" for ratio in RATIOS) + " |"
    yield "|---|" + "---:|" * len(RATIOS)
    for curve in curves:
        yield f"| {curve.label} | " + " | ".join(f"{100 * share:.1f}" for share in curve.shares) + " |"
    yield ""


def _row_table(curves: Sequence[Curve]) -> Iterator[str]:
    yield "## Many rows (3 seeds)"
    yield ""
    yield "Share of tables in %, all rows being equal; `over_table` and `may_be_best`."
    yield ""
    yield "| rows | " + " | ".join(map(str, ROWS)) + " |"
    yield "|---|" + "---:|" * len(ROWS)
    for curve in curves:
        yield f"| {curve.label} | " + " | ".join(f"{100 * share:.1f}" for share in curve.shares) + " |"
    yield ""


def _page(count: int) -> Iterator[str]:
    yield "## Harder null models (3 seeds but where said)"
    yield ""
    yield "| | seeds and items | seeds alone | items alone |"
    yield "|---|---:|---:|---:|"
    for name, model in MODELS.items():
        fewer = count // 2 if model.num_items > 200 or model.num_rows > 1 else count
        one = model if model.num_items > 200 else replace(model, num_items=ITEMS)
        shares = [errors(rule, one, count=fewer).one_row for rule in (by_seeds_and_items, by_seeds_alone, by_items_alone)]
        yield f"| {name} | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |"
    yield ""
    yield from _few_groups(count // 4)
    yield from _measures(count)
    yield "## Means over tasks, of two untouched encoders"
    yield ""
    yield (
        f"Each task is a stratum with its own degrees of freedom. False positives in % of {4 * count:,} tables, by "
        "the groups of test items of the tasks:"
    )
    yield ""
    yield "| " + " | ".join(" and ".join(map(str, sizes)) if len(sizes) < 4 else f"{len(sizes)} times {sizes[0]}" for sizes in SIZES) + " |"
    yield "|" + "---:|" * len(SIZES)
    yield "| " + " | ".join(f"{100 * false_positives_of_means(sizes, count=4 * count):.1f}" for sizes in SIZES) + " |"
    yield ""
    yield "Where tasks share items (a share of the smaller task's, in common with the first), these count as one group of one stratum:"
    yield ""
    yield "| | " + " | ".join(f"{' and '.join(map(str, sizes))}, {share:.0%}" for sizes, share in SHARING) + " |"
    yield "|---|" + "---:|" * len(SHARING)
    for title, is_joined in (("as reports take them", True), ("taken as independent", False)):
        shares = [false_positives_of_shared(sizes, share, is_joined=is_joined, count=4 * count) for sizes, share in SHARING]
        yield f"| {title} | " + " | ".join(f"{100 * one:.1f}" for one in shares) + " |"
    yield ""
    yield "One task whose score is a mean over parts (folds, languages, forums, sets to cluster), by the items of these:"
    yield ""
    yield "| " + " | ".join(" and ".join(map(str, sizes)) if len(sizes) < 4 else f"{len(sizes)} times {sizes[0]}" for sizes in PARTS) + " |"
    yield "|" + "---:|" * len(PARTS)
    yield "| " + " | ".join(f"{100 * false_positives_of_parts(sizes, count=count):.1f}" for sizes in PARTS) + " |"
    yield ""
    yield "## Checkpoints, uneven rows, power"
    yield ""
    yield (
        "Against a checkpoint few seeds of one row are tested by their signs alone: never significant below 6 seeds. Uneven rows, every "
        "second one three times as variable:"
    )
    yield ""
    for rows in (3, 10, 30):
        model = NullModel(num_rows=rows, num_items=ITEMS, uneven=3.0)
        found = errors(over_table, model, count=max(200, count // rows))
        yield f"- {rows} rows: some mark in {100 * found.any_row:.1f} % of tables."
    yield ""
    power = errors(over_table, NullModel(num_rows=10, num_items=ITEMS, gain=4.0), count=count // 8).last_row
    yield (
        "With ten rows, three seeds and a last row that is better by four standard errors, its mark stands in "
        f"{100 * power:.0f} % of tables."
    )


def _few_groups(count: int) -> Iterator[str]:
    yield f"## Twenty rows of one encoder each, test items in few groups ({count:,} tables)"
    yield ""
    yield "| groups | " + " | ".join(map(str, GROUPS)) + " |"
    yield "|---|" + "---:|" * len(GROUPS)
    models = [
        NullModel(num_rows=20, num_seeds=1, num_items=4 * one, group_size=4, items_over_seeds=1000.0, interaction=0.0) for one in GROUPS
    ]
    yield (
        "| some mark in the table | " + " | ".join(f"{100 * errors(over_table, model, count=count).any_row:.1f}" for model in models) + " |"
    )
    yield ""


def _measures(count: int) -> Iterator[str]:
    yield "## Measures that are no means over items, on small test sets (3 seeds)"
    yield ""
    yield "V-measures are those of two and of five labels."
    yield ""
    yield "| | " + " | ".join(MEASURES) + " |"
    yield "|---|" + "---:|" * len(MEASURES)
    for num_items in (30, 100, 300):
        shares = [false_positives(measure, num_items=num_items, count=count // 2) for measure in MEASURES]
        yield f"| {num_items} items | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |"
    yield ""


def picture(by_ratio: Sequence[Curve], by_rows: Sequence[Curve]) -> Drawing:
    """Two panels: false positives over the ratio, and over the number of rows; the band is 3 to 6 %."""
    names = ("standard error from items over that from seeds", "rows")
    with house_style():
        figure, panels = canvas(width=9.0, height=3.8, columns=2)
        for axes, curves, name in zip(panels, (by_ratio, by_rows), names, strict=True):
            axes.axhspan(3, 6, color="#e4e4e4", zorder=0)
            for curve in curves:
                style = ":" if "alone" in curve.label else "-"
                axes.plot(curve.places, [100 * share for share in curve.shares], marker="o", linestyle=style, label=curve.label)
            axes.set_xscale("log")
            axes.set_xticks(list(curves[0].places), [f"{place:g}" for place in curves[0].places])
            axes.set_xlabel(name)
            axes.set_ylabel("false positives (%)")
            axes.set_ylim(bottom=0)
            axes.legend(fontsize=7)
        records = [[one.label, place, share] for one in (*by_ratio, *by_rows) for place, share in zip(one.places, one.shares, strict=True)]
        return save(figure, name="calibration", caption="Grey: 3 to 6 %.", header=["rule", "place", "share"], records=records)


if __name__ == "__main__":
    main()
