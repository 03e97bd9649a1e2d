"""Choose the figures that a sweep has numbers for, and collect the numbers of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from sentdist.plan.specs import Regularizers, Shape
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS, mean_of
from sentdist.plan.task_names import OWN, kind_of_rows, named_task, task_names
from sentdist.report.cell_values import regression_of
from sentdist.report.comparisons import AVERAGE
from sentdist.report.embedding_figures import cloud_drawings
from sentdist.report.figures import LearningCurve, forest_plot, heat_map, learning_curves, regulators_curve, task_forest
from sentdist.report.method_figures import (
    TITLES,
    LossShape,
    ThresholdCell,
    loss_shapes,
    probe_drawings,
    relation_drawings,
    relations_alone,
    threshold_surfaces,
)
from sentdist.report.page_head import column_words
from sentdist.report.printed import tables_of
from sentdist.report.score_rows import CellFacts, ResultRow
from sentdist.report.selection import cost_plot, costs, work_unit
from sentdist.report.style import Drawing, SystemStyles, styles_of
from sentdist.report.sweep_rows import RELATION, SweepRows, table_rows
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord
from sentdist.text import PALETTE

FIRST_FIGURES = ("differences", "learning")  # shown on the page; all others are folded away
LEAST_CELLS = 4  # of a heat map; fewer cells are not drawn
Spot = TypeVar("Spot")
Score = Callable[[ResultRow], float | None]  # of a row in the leading column


def sweep_drawings(
    sweep: SweepRecord, store: ArtifactStore, records: dict[str, Record], *, scored: SweepRows, tables: list[ResultTable]
) -> Iterator[Drawing]:
    """Yield all figures for which the sweep has numbers."""
    headline = tables[0]
    unit = score_unit(headline)
    rows = next(table_rows(scored)).rows
    score = headline.lead_score
    printed = tables_of(sweep.paper).regulators if sweep.paper is not None and scored.of_kind("sts") else None
    yield from _regulators(rows, score, scored.facts, unit, paper=printed)
    yield from _grid(rows, score, scored.facts, unit)
    yield from _thresholds(rows, score, scored.facts, unit)
    yield from _loss_shapes(scored)
    compared = [one for one in headline.comparisons if one.relation == "baseline"]
    measured = {one.system: one.differences[headline.lead] for one in compared if headline.lead in one.differences}
    if measured:
        rows_of = headline.references
        yield forest_plot(measured, baseline=rows_of.words, unit=f"difference: {unit}", against=rows_of.own, apart=rows_of.apart)
        yield from _task_forest(headline)
    scores: dict[str, list[float]] = {}
    for row in rows:
        if (mean := score(row)) is not None:
            scores.setdefault(row.label, []).append(mean)
    systems = _shown_first(scores, scored.facts, headline.baseline)
    styles = _styles(sweep, systems)
    if scored.curves:
        curves = _readable(scored.curves, systems)
        objectives = {label: facts.objective for label, facts in scored.facts.items() if facts.objective is not None}
        num_systems = len({curve.label for curve in scored.curves})
        yield learning_curves(curves, dev_unit=dev_unit(sweep.recipe), styles=styles, objectives=objectives, num_systems=num_systems)
    if spent := list(costs(sweep, records, scores)):
        yield cost_plot(spent, unit=unit, work_unit=work_unit(records), styles=styles)
    yield from cloud_drawings(sweep, store, records, systems=systems, styles=styles)
    yield from relation_drawings(sweep, records, styles=styles)
    if scored.useb_by_relation:
        alone = {row.label for row in scored.useb} - {
            row.label.removesuffix(f", {row.params[RELATION]}") for row in scored.useb_by_relation
        }
        yield relations_alone(scored.useb_by_relation, [row for row in scored.useb if row.label in alone], styles=styles)
    yield from probe_drawings(sweep, records)


def score_unit(table: ResultTable) -> str:
    """Return the label of axes that show the leading column of a table."""
    return f"{column_words(table)} ({table.unit})"


def dev_unit(recipe: Mapping[str, Json]) -> str:
    """Return the label of axes that show the dev score of a recipe: its tasks and their measures."""
    selection = recipe.get("selection")
    if not isinstance(selection, dict):
        return "dev score"
    given = str(selection["task"])
    measures = [TASK_KINDS[_kind(task, recipe)].main for task in task_names(given.split("+"))]
    return f"{given} ({mean_of(measures).title} × 100)"


def _kind(task: str, recipe: Mapping[str, Json]) -> str:
    if task != OWN:
        return named_task(task).card.kind
    corpus = recipe["corpus"]
    assert isinstance(corpus, dict)
    return kind_of_rows(cast(Shape, corpus["shape"]))


def _task_forest(table: ResultTable) -> Iterator[Drawing]:
    """The comparison of each row with its reference on each task, if there are several tasks."""
    tasks = [column for column in table.columns if column != AVERAGE]
    differences = {
        one.system: {task: found for task in tasks if (found := one.differences.get(task)) is not None}
        for one in table.comparisons
        if one.relation == "baseline"
    }
    known = {system: found for system, found in differences.items() if found}
    if known and len(tasks) > 1:
        rows_of = table.references
        yield task_forest(known, baseline=rows_of.words, tasks=tasks, unit=table.unit, against=rows_of.own, apart=rows_of.apart)


def _shown_first(scores: dict[str, list[float]], facts: dict[str, CellFacts], baseline: str | None) -> list[str]:
    """Cells in the order of preference for figures with limited room: untouched encoders, the baseline, then the best."""
    means = {label: sum(values) / len(values) for label, values in scores.items()}
    return sorted(scores, key=lambda label: (facts[label].objective is not None, label != baseline, -means[label]))


def _styles(sweep: SweepRecord, systems: Sequence[str]) -> SystemStyles:
    """One style per cell for all figures: in the order of the sweep, as in MLflow; if colours are too few, `systems` come first."""
    cells = list(dict.fromkeys(trial.cell for trial in sweep.trials))
    return styles_of(cells if len(cells) <= len(PALETTE) else dict.fromkeys([*systems, *cells]))


def _readable(curves: list[LearningCurve], systems: Sequence[str]) -> list[LearningCurve]:
    """As many curves as there are colours, of the first systems."""
    drawn = {curve.label for curve in curves}
    shown = [label for label in systems if label in drawn][: len(PALETTE)]
    return [curve for curve in curves if curve.label in shown] or curves


def _regulators(
    rows: Sequence[ResultRow], score: Score, facts: dict[str, CellFacts], unit: str, *, paper: Mapping[int, float] | None
) -> Iterator[Drawing]:
    """Score against the number of regulators, for the objective, batch size and dropouts with the most rows; the point at 0 is that
    objective without regulators (of RCL: Eq. 1)."""
    regulated = [known for row in rows if _is_regulated(known := facts[row.label])]
    if not regulated:
        return
    (objective, none, setting), _ = Counter((one.objective, one.without_bank, _setting(one)) for one in regulated).most_common(1)[0]
    places: dict[int, list[ResultRow]] = {}
    for row in rows:
        known = facts[row.label]
        if _setting(known) == setting and (known.objective == none or (known.objective == objective and _is_regulated(known))):
            places.setdefault(known.num_regulators, []).append(row)
    scores = _scores_of_cells(places, score)
    if len([count for count in scores if count]) > 1:
        yield regulators_curve(scores, paper=paper, unit=unit)


def _is_regulated(facts: CellFacts) -> bool:
    """Whether it was trained with regulators, and its objective also exists without them."""
    return facts.without_bank is not None and facts.num_regulators > 0


def _setting(facts: CellFacts) -> tuple[int | None, Regularizers | None]:
    return facts.batch_size, facts.regularizers


def _grid(rows: Sequence[ResultRow], score: Score, facts: dict[str, CellFacts], unit: str) -> Iterator[Drawing]:
    """Score over batch size and φ set."""
    places: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        if _is_regulated(known := facts[row.label]):
            places.setdefault((str(known.batch_size), "{" + ", ".join(f"{phi:g}" for phi in known.phis) + "}"), []).append(row)
    scores = _scores_of_cells(places, score)
    if len(scores) >= LEAST_CELLS:
        yield heat_map(scores, unit=unit)


def _scores_of_cells(places: Mapping[Spot, list[ResultRow]], score: Score) -> dict[Spot, list[float]]:
    """The scores at each place of a figure; {} if a place has several cells, since their scores are not those of seeds."""
    if any(len({row.label for row in there}) > 1 for there in places.values()):
        return {}
    found = {place: [mean for row in there if (mean := score(row)) is not None] for place, there in places.items()}
    return {place: means for place, means in found.items() if means}


def _thresholds(rows: Sequence[ResultRow], score: Score, facts: dict[str, CellFacts], unit: str) -> Iterator[Drawing]:
    """Score over slope and threshold, a figure for each method that has a grid of both."""
    surfaces: dict[str, dict[ThresholdCell, list[float]]] = {}
    for row in rows:
        found, mean = regression_of(facts[row.label]), score(row)
        if found is not None and found.slope is not None and found.threshold is not None and mean is not None:
            cell = ThresholdCell(loss=found.loss, boundary=str(found.boundary), slope=found.slope, threshold=found.threshold)
            surfaces.setdefault(row.method, {}).setdefault(cell, []).append(mean)
    for method, cells in surfaces.items():
        if len({(cell.slope, cell.threshold) for cell in cells}) >= LEAST_CELLS:
            yield threshold_surfaces(cells, unit=unit, name=f"thresholds-{method}")


def _loss_shapes(scored: SweepRows) -> Iterator[Drawing]:
    """The shapes of the regression losses that a sweep compares; a grid of slopes has too many to distinguish."""
    regressions = [one for facts in scored.facts.values() if (one := regression_of(facts)) is not None and one.loss in TITLES]
    shapes = list(dict.fromkeys(LossShape(loss=one.loss, slope=one.slope or 1.0, threshold=one.threshold or 0.0) for one in regressions))
    if 1 < len(shapes) <= len(PALETTE):
        yield loss_shapes(shapes)
