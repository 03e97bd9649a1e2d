"""Choose the figures that a sweep has numbers for, and collect the numbers of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from sentdist.recipe.specs import Regularizers
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import STAGES
from sentdist.report.figures import Cost, LearningCurve, Series, cost_plot, curves, forest_plot, heat_map, learning_curves
from sentdist.report.method_figures import TITLES, relation_drawings
from sentdist.report.page_head import column_words
from sentdist.report.printed import regression_of, tables_of
from sentdist.report.score_rows import CellFacts, ResultRow
from sentdist.report.style import PALETTE, Drawing, SystemStyles, styles_of
from sentdist.report.sweep_rows import SweepRows, table_rows
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord

LEAST_CELLS = 4  # of a heat map; fewer cells are not drawn
COUNTED = frozenset(kind for kind, stage in STAGES.items() if stage.purpose == "training")  # stages that cost
Spot = TypeVar("Spot")
Score = Callable[[ResultRow], float | None]  # of a row in the leading column


def sweep_drawings(sweep: SweepRecord, records: dict[str, Record], *, scored: SweepRows, tables: list[ResultTable]) -> Iterator[Drawing]:
    """Yield all figures for which the sweep has numbers: `differences` and `learning` first."""
    headline = tables[0]
    unit, score = score_unit(headline), headline.lead_score
    rows = next(table_rows(scored)).rows
    compared = [one for one in headline.comparisons if one.relation == "baseline" and headline.lead in one.differences]
    if compared:
        found = {one.system: one.differences[headline.lead] for one in compared}
        yield forest_plot(found, column=headline.lead, references=headline.references, unit=f"difference: {unit}")
    scores: dict[str, list[float]] = {}
    for row in rows:
        if (mean := score(row)) is not None:
            scores.setdefault(row.label, []).append(mean)
    systems = _shown_first(scores, scored.facts, headline.baseline)
    styles = _styles(sweep, systems)
    if scored.curves:
        objectives = {label: facts.objective for label, facts in scored.facts.items() if facts.objective is not None}
        num_systems = len({curve.label for curve in scored.curves})
        shown = _readable(scored.curves, systems)
        yield learning_curves(shown, dev_unit=_dev_unit(sweep.recipe), styles=styles, objectives=objectives, num_systems=num_systems)
    printed = tables_of(sweep.paper).regulators if sweep.paper is not None and scored.of_kind("sts") else None
    yield from _regulators(rows, score, scored.facts, unit, paper=printed)
    yield from _grid(rows, score, scored.facts, unit)
    yield from _thresholds(rows, score, scored.facts, unit)
    spent = [one for one in costs(sweep, records, scores) if one.system in systems[: len(PALETTE)]]
    if spent:
        yield cost_plot(spent, unit=unit, work_unit=work_unit(records), styles=styles)
    yield from relation_drawings(sweep, records)


def costs(sweep: SweepRecord, records: Mapping[str, Record], scores: Mapping[str, Sequence[float]]) -> Iterator[Cost]:
    """Yield the costs of the cells whose stages are all finished; `scores`: cell -> scores of its seeds."""
    mentions, trials = sweep.mentions, sweep.cells
    for cell, values in scores.items():
        needed = [[key for key in trial.stages if sweep.places[key].partition("/")[0] in COUNTED] for trial in trials.get(cell, ())]
        if not values or not needed or not all(key in records for keys in needed for key in keys):
            continue
        alone = [sum(work(records[key]) for key in keys) for keys in needed]
        shared = [sum(work(records[key]) / mentions[key] for key in keys) for keys in needed]
        yield Cost(system=cell, scores=values, alone_s=sum(alone) / len(alone), shared_s=sum(shared) / len(shared), num_trials=len(needed))


def work(record: Record) -> float:
    """Return seconds × workers of a training, or the seconds of any other stage."""
    workers = record.runtime.get("workers", 1) if record.kind == "train" else 1
    return record.seconds * (workers if isinstance(workers, int) else 1)


def work_unit(records: Mapping[str, Record]) -> str:
    """Return the unit of `work`: GPU-seconds if every training worker had one GPU, else worker-seconds."""
    gpus = {record.runtime.get("gpus_per_worker") for record in records.values() if record.kind == "train"}
    return "GPU-seconds" if gpus == {1.0} else "worker-seconds"


def score_unit(table: ResultTable) -> str:
    """Return the label of axes that show the leading column of a table."""
    return f"{column_words(table)} ({table.unit})"


def _dev_unit(recipe: Mapping[str, Json]) -> str:
    """The label of axes that show the dev score of a recipe."""
    selection = recipe.get("selection")
    return f"dev score of {selection['task']} × 100" if isinstance(selection, dict) else "dev score"


def _shown_first(scores: dict[str, list[float]], facts: dict[str, CellFacts], baseline: str | None) -> list[str]:
    """Cells in the order of preference for figures with limited room: untouched encoders, the baseline, then the best."""
    means = {label: sum(values) / len(values) for label, values in scores.items()}
    return sorted(scores, key=lambda label: (facts[label].objective is not None, label != baseline, -means[label]))


def _styles(sweep: SweepRecord, systems: Sequence[str]) -> SystemStyles:
    """One style per cell for all figures: in the order of the sweep; if colours are too few, `systems` come first."""
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
        panels: dict[str, Series] = {"This run": {"ours": {float(count): found for count, found in scores.items()}}}
        if paper:
            panels["The paper, Table 4"] = {"paper": {float(count): [found] for count, found in paper.items()}}
        caption = "Score against the number of regulators (2 × entropy encoders)."
        caption += " Both panels span the same number of points; levels differ because encoder and data differ." if paper else ""
        yield curves(panels, x="regulators", unit=unit, name="regulators", caption=caption)


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
        caption = f"{unit[0].upper()}{unit[1:]} by batch size and φ set, mean over seeds; bold: the best."
        yield heat_map({"": scores}, titles=("batch size", "φ set"), unit=unit, name="grid", caption=caption)


def _scores_of_cells(places: Mapping[Spot, list[ResultRow]], score: Score) -> dict[Spot, list[float]]:
    """The scores at each place of a figure; {} if a place has several cells, since their scores are not those of seeds."""
    if any(len({row.label for row in there}) > 1 for there in places.values()):
        return {}
    found = {place: [mean for row in there if (mean := score(row)) is not None] for place, there in places.items()}
    return {place: means for place, means in found.items() if means}


def _thresholds(rows: Sequence[ResultRow], score: Score, facts: dict[str, CellFacts], unit: str) -> Iterator[Drawing]:
    """Score over slope and threshold, a figure for each method that has a grid of both."""
    surfaces: dict[str, dict[str, dict[tuple[float, float], list[float]]]] = {}
    for row in rows:
        found, mean = regression_of(facts[row.label]), score(row)
        if found is not None and found.slope is not None and found.threshold is not None and mean is not None:
            panel = f"{TITLES.get(found.loss, found.loss)}, {found.boundary}"
            cells = surfaces.setdefault(row.method, {}).setdefault(panel, {})
            cells.setdefault((found.slope, found.threshold), []).append(mean)
    for method, panels in surfaces.items():
        if len({cell for cells in panels.values() for cell in cells}) >= LEAST_CELLS:
            named = {
                title: {(f"{slope:g}", f"{threshold:g}"): cells[slope, threshold] for slope, threshold in sorted(cells)}
                for title, cells in panels.items()
            }
            caption = f"{unit[0].upper()}{unit[1:]} by slope k and threshold x0, mean over seeds, one scale for all panels; bold: the best."
            yield heat_map(named, titles=("slope k", "threshold x0"), unit=unit, name=f"thresholds-{method}", caption=caption)
