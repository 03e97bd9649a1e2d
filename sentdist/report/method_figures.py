"""Figures of single methods: probes, relations and link prediction, USEB by relation, regression losses and thresholds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from sentdist.errors import DataError, counted
from sentdist.evaluation.significance import Summary, summarize
from sentdist.plan.stage import as_number, slug
from sentdist.report.score_rows import ResultRow
from sentdist.report.style import (
    DIVERGING,
    INK,
    MARKERS,
    MUTED,
    SEQUENTIAL,
    Drawing,
    SystemStyles,
    canvas,
    check_drawable,
    house_style,
    legend_columns,
    quiet,
    save,
    styles_of,
)
from sentdist.report.sweep_rows import FOUR, RELATION
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.text import PALETTE

PARTS = {"pos": "tag channels", "bow": "word channels"}
TARGETS = {"tags": "tags: share of their information", "words": "words: R²"}

Found = Mapping[str, Mapping[str, Sequence[float]]]  # system -> "tags_from_pos", … -> values of seeds


def probe_drawings(sweep: SweepRecord, records: Mapping[str, Record]) -> Iterator[Drawing]:
    """Yield the figure of the probes if any scores have probes."""
    found: dict[str, dict[str, list[float]]] = {}
    for trial in sweep.trials:
        results = records[trial.key].results if trial.key in records else {}
        for name in (f"{target}_from_{part}" for target in TARGETS for part in PARTS):
            value = results.get(f"probes.{name}")
            if isinstance(value, int | float):
                found.setdefault(trial.cell, {}).setdefault(name, []).append(float(value))
    if found:
        yield probe_plot(found)


def probe_plot(found: Found) -> Drawing:
    """Draw the probes: a line per system, a panel for tags and one for words; a good adversary moves the other part's mark towards 0."""
    check_drawable(found, "probes")
    records: list[list[object]] = []
    with house_style():
        figure, panels = canvas(width=8.4, height=1.3 + 0.36 * len(found), columns=2)
        for axes, (target, title) in zip(panels, TARGETS.items(), strict=True):
            for place, (system, values) in enumerate(found.items()):
                for number, (part, words) in enumerate(PARTS.items()):
                    seeds = values.get(f"{target}_from_{part}")
                    if not seeds:
                        continue
                    one = summarize(seeds)
                    color = PALETTE[number]
                    axes.errorbar(
                        one.mean, place, xerr=one.sd or 0.0, fmt=MARKERS[number], color=color, markeredgecolor="white",
                        label=words if place == 0 else "_",
                    )  # fmt: skip
                    records.append([system, target, part, one.mean, one.sd, one.num_seeds])
            axes.set_yticks(range(len(found)), list(found) if axes is panels[0] else [""] * len(found))
            axes.set_ylim(len(found) - 0.4, -0.6)
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.set_xlabel(title)
            axes.spines["left"].set_visible(False)
            axes.grid(visible=True, axis="x")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        caption = (
            "What linear probes predict from each part, on held-out sentences (0: nothing, 1: all); mean ± 1 standard deviation over "
            "seeds. Tags belong in the tag channels, words in the word channels; adversaries work against the others."
        )
        return save(figure, name="probes", caption=caption, header=["system", "target", "part", "mean", "sd", "seeds"], records=records)


SCORE = "average STS score (Spearman × 100)"  # of weight curves
LINK_COLUMNS = ("MRR", "Hits@1", "Hits@3", "Hits@10")
LINK_HEADER = ("system", "relation", *LINK_COLUMNS, "seeds")


@dataclass(frozen=True, kw_only=True)
class LinkRow:
    """Means over seeds, × 100, of one system on the held-out triples of one relation, in the order of LINK_COLUMNS."""

    system: str
    relation: str
    means: tuple[float, ...]
    num_seeds: int

    @property
    def cells(self) -> list[str]:
        return [self.system, self.relation, *(f"{mean:.1f}" for mean in self.means), str(self.num_seeds)]


def relation_drawings(sweep: SweepRecord, records: Mapping[str, Record], *, styles: SystemStyles | None = None) -> Iterator[Drawing]:
    """Yield the matrix of relations of each method with one grid point, then the score over the weight of each varied relation."""
    trials = [trial for trial in sweep.trials if trial.key in records]
    cells = Counter(method for method, _ in dict.fromkeys((trial.method, trial.cell) for trial in trials))
    drawn: set[str | None] = set()
    for method, count in cells.items():
        own = [trial for trial in trials if trial.method == method]
        found = [one for trial in own if isinstance(one := records[trial.key].results.get("relations"), dict)]
        if count > 1 or not found or {trial.train for trial in own} <= drawn:
            continue  # a grid, no relations, or an encoder that is drawn already
        drawn |= {trial.train for trial in own}
        names = [str(name) for name in found[0]["names"]]  # type: ignore[union-attr]
        yield relation_matrix(names, [np.array(one["cosines"]) for one in found], system=own[0].cell, name=f"relations-{method}")
    for relation, scores in _curves(trials, records).items():
        yield weight_curves(scores, relation=relation, name=f"weights-{slug(relation)}", styles=styles)


def link_table(sweep: SweepRecord, records: Mapping[str, Record], *, printed: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Return the rows under LINK_HEADER of every cell with link prediction, then the printed rows of the same relations.

    Args:
        printed: relation -> scores of a paper, in the order of LINK_COLUMNS.
    """
    results: dict[str, list[Mapping[str, object]]] = {}
    for trial in sweep.trials:
        if trial.key in records:
            results.setdefault(trial.cell, []).append(records[trial.key].results)
    rows = link_rows(results, task="links")
    asked = dict.fromkeys(row.relation for row in rows)
    return [row.cells for row in (*rows, *printed_link_rows(printed, asked))]


def _curves(trials: Sequence[TrialRecord], records: Mapping[str, Record]) -> dict[str, dict[str, dict[float, list[float]]]]:
    """Relation -> cell -> weight -> scores of seeds."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for trial in trials:
        curve = records[trial.key].results.get("weight_curve")
        if not isinstance(curve, dict):
            continue
        cell = found.setdefault(str(curve["relation"]), {}).setdefault(trial.cell, {})
        for weight, score in zip(curve["weights"], curve["scores"], strict=True):  # type: ignore[arg-type]
            if isinstance(score, int | float):
                cell.setdefault(float(weight), []).append(float(score))  # type: ignore[arg-type]
    return found


def relation_matrix(names: Sequence[str], cosines: Sequence[np.ndarray], *, system: str, name: str) -> Drawing:
    """Draw the mean over seeds of the (K, K) cosines between relation vectors; the table has the sd (arXiv 2212.08802, Figure 4)."""
    if not cosines or any(np.shape(matrix) != (len(names), len(names)) for matrix in cosines):
        raise DataError(
            where="relation matrix",
            found=f"matrices of shapes {sorted({np.shape(matrix) for matrix in cosines})} for {len(names)} relations",
            expected="at least one matrix with a row and a column per relation",
            remedy="Draw encoders of one recipe together.",
        )
    stacked = np.stack([np.asarray(matrix, dtype=np.float64) for matrix in cosines])
    means = stacked.mean(axis=0)
    with house_style():
        figure, (axes,) = canvas(width=2.6 + 0.62 * len(names), height=1.5 + 0.46 * len(names))
        image = axes.pcolormesh(means[::-1], cmap=DIVERGING, vmin=-1, vmax=1, edgecolors="white", linewidth=1.5)
        for row in range(len(names)):
            for column in range(len(names)):
                value = means[row, column]
                ink = "white" if abs(value) > 0.65 else INK
                said = f"{value:.2f}".replace("-", "−")
                axes.text(column + 0.5, len(names) - row - 0.5, said, ha="center", va="center", color=ink, fontsize=8)
        axes.set_xticks(np.arange(len(names)) + 0.5, names, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(len(names)) + 0.5, list(names)[::-1])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=14)
        bar.outline.set_visible(False)
        bar.set_label("cosine", fontsize=8)
        sds = stacked.std(axis=0, ddof=1) if len(stacked) > 1 else None
        records = [
            [one, other, float(means[row, column]), None if sds is None else float(sds[row, column]), len(stacked)]
            for row, one in enumerate(names)
            for column, other in enumerate(names)
        ]
        caption = f"Cosines between the relation vectors of {system}, mean over {counted(len(stacked), 'seed')}."
        return save(figure, name=name, caption=caption, header=["relation", "other", "mean", "sd", "seeds"], records=records)


def weight_curves(
    scores: Mapping[str, Mapping[float, Sequence[float]]], *, relation: str, name: str, styles: SystemStyles | None = None
) -> Drawing:
    """Draw the score against the weight of one relation: a line per system, mean ± 1 sd over seeds (arXiv 2212.08802, Figure 3)."""
    check_drawable([curve for curve in scores.values() if curve], "weight curves")
    records: list[list[object]] = []
    with house_style():
        figure, (axes,) = canvas(width=5.4, height=3.2)
        styles = styles or styles_of(scores)
        for system, curve in scores.items():
            weights = sorted(curve)
            found = [summarize(list(curve[weight])) for weight in weights]
            means = np.array([one.mean for one in found])
            spread = np.array([np.nan if one.sd is None else one.sd for one in found])
            color = styles[system].color
            axes.fill_between(weights, means - spread, means + spread, color=color, alpha=0.16, linewidth=0)
            axes.plot(weights, means, color=color, marker=styles[system].marker, markeredgecolor="white", label=system)
            records += [[system, weight, one.mean, one.sd, one.num_seeds] for weight, one in zip(weights, found, strict=True)]
        axes.set_xlabel(f"weight of {relation}")
        axes.set_ylabel(SCORE)
        quiet(axes)
        if len(scores) > 1:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
        caption = (
            f"{SCORE[0].upper()}{SCORE[1:]} against the weight of {relation}, the other weights unchanged; band: ± 1 "
            "standard deviation over seeds."
        )
        return save(figure, name=name, caption=caption, header=["system", "weight", "mean", "sd", "seeds"], records=records)


def link_rows(results: Mapping[str, Sequence[Mapping[str, object]]], *, task: str) -> list[LinkRow]:
    """Return the rows of a link-prediction table (arXiv 2212.08802, Table 7), without systems that have no results.

    Args:
        results: system -> one mapping per seed, with keys like "{task}.{relation}.mrr", × 100.
    """
    rows = []
    for system, trials in results.items():
        relations = [
            key.removeprefix(f"{task}.").removesuffix(".mrr")
            for key in (trials[0] if trials else {})
            if key.startswith(f"{task}.") and key.endswith(".mrr")
        ]
        for relation in relations:
            values = [[trial.get(f"{task}.{relation}.{measure}") for measure in ("mrr", "hits@1", "hits@3", "hits@10")] for trial in trials]
            numbers = [[number for value in row if (number := as_number(value)) is not None] for row in values]
            whole = [row for row in numbers if len(row) == len(LINK_COLUMNS)]
            if whole:
                means = tuple(float(mean) for mean in np.mean(whole, axis=0))
                rows.append(LinkRow(system=system, relation=relation, means=means, num_seeds=len(whole)))
    return rows


def printed_link_rows(printed: Mapping[str, Sequence[float]], relations: Iterable[str]) -> list[LinkRow]:
    """Return the printed rows of these relations."""
    return [
        LinkRow(system="paper (BERT-base)", relation=relation, means=tuple(map(float, printed[relation])), num_seeds=1)
        for relation in relations
        if relation in printed
    ]


WIDTH_IN = 7.4
TaskSummaries = Mapping[str, Mapping[str, Summary]]  # relation -> task -> over seeds


def relations_alone(rows: Sequence[ResultRow], others: Sequence[ResultRow] = (), *, styles: SystemStyles | None = None) -> Drawing:
    """Draw USEB by relation: a panel per task, a line per relation, a mark (mean ± 1 sd over seeds) per system, filled for the best.

    Args:
        rows: scored by one relation each, `params[RELATION]`.
        others: of systems without relations, drawn as dashed lines.
    """
    systems = {label: _by_relation(label, rows) for label in dict.fromkeys(map(_system, rows))}
    check_drawable([by_relation for by_relation in systems.values() if by_relation], "USEB by relation")
    relations = list(dict.fromkeys(str(row.params[RELATION]) for row in rows))
    lines = {label: _means([row for row in others if row.label == label]) for label in dict.fromkeys(row.label for row in others)}
    styles = styles or styles_of([*systems, *lines])
    places = {relation: len(relations) - 1 - place for place, relation in enumerate(relations)}
    with house_style():
        figure, panels = canvas(width=WIDTH_IN, height=1.1 + 2 * (0.75 + 0.3 * len(relations)), rows=2, columns=2)
        for panel, (axes, task) in enumerate(zip(panels, FOUR, strict=True)):
            for number, (label, by_relation) in enumerate(systems.items()):
                offset = 0.5 * (0.5 - (number + 0.5) / len(systems)) if len(systems) > 1 else 0.0
                _marks(axes, task, by_relation, places, offset, label=label, styles=styles)
            for label, scores in lines.items():
                if task in scores:
                    axes.axvline(scores[task].mean, color=styles[label].color, linestyle=(0, (4, 2)), linewidth=1.2, label=label, zorder=1)
            axes.set_title(task)
            axes.set_yticks(list(places.values()), list(places) if panel % 2 == 0 else [""] * len(places))
            axes.set_ylim(-0.6, len(relations) - 0.4)
            quiet(axes, grid="x")
        handles = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
        if len(handles) > 1:
            columns = legend_columns(list(handles), width_in=WIDTH_IN)
            figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=columns)
        records = [
            [label, relation, task, one.mean, one.sd, one.num_seeds]
            for label, by_relation in [*systems.items(), *((label, {"": scores}) for label, scores in lines.items())]
            for relation, scores in by_relation.items()
            for task, one in scores.items()
        ]
        dashed = " Dashed: without relations." if lines else ""
        caption = (
            "USEB by each relation alone (precision × 100), mean ± 1 standard deviation over seeds; filled: the best relation of a task, "
            f"chosen on its test data, as in the paper.{dashed}"
        )
        header = ["system", "relation", "task", "mean", "sd", "seeds"]
        return save(figure, name="useb-relations", caption=caption, header=header, records=records)


def _marks(
    axes: Axes, task: str, found: TaskSummaries, places: Mapping[str, int], offset: float, *, label: str, styles: SystemStyles
) -> None:  # fmt: skip
    known = {relation: scores[task] for relation, scores in found.items() if task in scores}
    best = max(known, key=lambda relation: known[relation].mean, default=None)
    color, marker = styles[label].color, styles[label].marker
    for relation, one in known.items():
        height = places[relation] + offset
        if one.sd is not None:
            axes.plot([one.mean - one.sd, one.mean + one.sd], [height, height], color=color, linewidth=1.2, alpha=0.6)
        face = color if relation == best else "white"
        axes.plot([one.mean], [height], marker, markersize=6, color=color, markerfacecolor=face, label=label if relation == best else None)


def _system(row: ResultRow) -> str:
    return row.label.removesuffix(f", {row.params[RELATION]}")


def _by_relation(label: str, rows: Sequence[ResultRow]) -> dict[str, dict[str, Summary]]:
    own = [row for row in rows if _system(row) == label]
    relations = dict.fromkeys(str(row.params[RELATION]) for row in own)
    found = {relation: _means([row for row in own if row.params[RELATION] == relation]) for relation in relations}
    return {relation: scores for relation, scores in found.items() if scores}


def _means(rows: Sequence[ResultRow]) -> dict[str, Summary]:
    """Task -> summary over seeds, for tasks that all rows have."""
    values = {task: [row.scores.get(task) for row in rows] for task in FOUR}
    return {task: summarize(np.array(scores, dtype=float).tolist()) for task, scores in values.items() if scores and None not in scores}


TITLES = {"translated_relu": "Translated ReLU", "smooth_k2": "Smooth K2", "l1": "L1", "mse": "MSE"}


@dataclass(frozen=True, kw_only=True)
class LossShape:
    """A regression loss of TITLES with slope k and threshold x0 (label units); l1 and mse have k = 1 and x0 = 0."""

    loss: str
    slope: float = 1.0
    threshold: float = 0.0

    @property
    def title(self) -> str:
        return TITLES[self.loss] + (
            f" (k = {self.slope:g}, x0 = {self.threshold:g})" if self.loss in ("translated_relu", "smooth_k2") else ""
        )

    def values(self, errors: np.ndarray) -> np.ndarray:
        """Return the loss at errors x = |p − y|: k·max(0, x − x0), or k·max(0, x − x0)²."""
        beyond = np.maximum(errors - self.threshold, 0.0)
        return self.slope * (beyond if self._is_linear else beyond**2)

    def slopes(self, errors: np.ndarray) -> np.ndarray:
        """Return the derivative at each error; at the threshold the one from the right."""
        beyond = errors - self.threshold
        return np.where(beyond >= 0, self.slope * (1.0 if self._is_linear else 2 * beyond), 0.0)

    @property
    def _is_linear(self) -> bool:
        return self.loss in ("translated_relu", "l1")


@dataclass(frozen=True, kw_only=True)
class ThresholdCell:
    """A point of the grid: loss, treatment of predictions outside the range, slope k and threshold x0."""

    loss: str
    boundary: str
    slope: float
    threshold: float


def threshold_surfaces(scores: Mapping[ThresholdCell, Sequence[float]], *, unit: str, name: str) -> Drawing:
    """Draw the mean score over k and x0: a panel per loss (rows) and boundary mode (columns), one scale; the best cell is marked."""
    check_drawable(scores, "threshold surfaces")
    losses = list(dict.fromkeys(cell.loss for cell in scores))
    boundaries = list(dict.fromkeys(cell.boundary for cell in scores))
    slopes = sorted({cell.slope for cell in scores})
    thresholds = sorted({cell.threshold for cell in scores})
    found = {cell: summarize(list(values)) for cell, values in scores.items() if len(values)}
    best = max(found, key=lambda cell: found[cell].mean)
    low, high = min(one.mean for one in found.values()), max(one.mean for one in found.values())
    span = (low, max(high, low + 1e-6))
    with house_style():
        width = max(4.4, 1.6 + len(boundaries) * (0.5 + 0.72 * len(thresholds)))
        height = 0.9 + len(losses) * (0.75 + 0.4 * len(slopes))
        figure, axes = canvas(width=width, height=height, rows=len(losses), columns=len(boundaries))
        for one, (loss, boundary) in zip(axes, itertools.product(losses, boundaries), strict=True):
            panel = {
                (cell.slope, cell.threshold): summary for cell, summary in found.items() if (cell.loss, cell.boundary) == (loss, boundary)
            }
            marked = (best.slope, best.threshold) if (best.loss, best.boundary) == (loss, boundary) else None
            image = _panel(one, panel, slopes, thresholds, span=span, marked=marked)
            one.set_title(TITLES.get(loss, loss) + (f", {boundary}" if len(boundaries) > 1 else ""))
            one.set_ylabel("slope k" if boundary == boundaries[0] else "")
            one.set_xlabel("threshold x0" if loss == losses[-1] else "")
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=18)
        bar.outline.set_visible(False)
        bar.set_label(unit if height > 3.5 else unit.split(" (")[0], fontsize=8)
        records = [[cell.loss, cell.boundary, cell.slope, cell.threshold, one.mean, one.sd, one.num_seeds] for cell, one in found.items()]
        said = f"k = {best.slope:g}, x0 = {best.threshold:g} ({TITLES.get(best.loss, best.loss)}, boundary {best.boundary})"
        caption = (
            f"{unit[0].upper()}{unit[1:]} by slope k and threshold x0, mean over seeds, one scale for all panels; ★: the best, {said}."
        )
        header = ["loss", "boundary", "slope", "threshold", "mean", "sd", "seeds"]
        return save(figure, name=name, caption=caption, header=header, records=records)


def loss_shapes(shapes: Sequence[LossShape]) -> Drawing:
    """Draw each loss and its derivative against the error |p − y| from 0 to 1 (the distance of two labels); dashed: half of it."""
    check_drawable(shapes, "loss shapes")
    errors = np.linspace(0.0, 1.0, 201)
    with house_style():
        figure, axes = canvas(width=7.2, height=3.1, columns=2)
        records: list[list[object]] = []
        for place, shape in enumerate(shapes):
            color, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
            for one, values in ((axes[0], shape.values(errors)), (axes[1], shape.slopes(errors))):
                # A jump is drawn as a gap, since the derivative has no values between.
                gaps = np.where(np.abs(np.diff(values, append=values[-1])) > 20 * shape.slope / len(errors), np.nan, values)
                one.plot(errors, gaps, color=color, marker=marker, markevery=(10 * place, 50), markeredgecolor="white", label=shape.title)
            rows = zip(errors.tolist(), shape.values(errors).tolist(), shape.slopes(errors).tolist(), strict=True)
            records += [[shape.title, *row] for row in rows]
        for one, title in zip(axes, ("Loss", "Gradient"), strict=True):
            one.axvline(0.5, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            one.set_title(title)
            one.set_xlabel("error |p − y| (label units)")
            one.margins(x=0.01)
            quiet(one)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        caption = (
            "The losses and their gradients against the error; within the threshold neither is above 0. Dashed: half way to the next label."
        )
        return save(figure, name="losses", caption=caption, header=["loss", "error", "value", "gradient"], records=records)


def _panel(
    axes: Axes,
    found: Mapping[tuple[float, float], Summary],
    slopes: Sequence[float],
    thresholds: Sequence[float],
    *,
    span: tuple[float, float],
    marked: tuple[float, float] | None,
) -> QuadMesh:
    means = np.array([[found[k, x0].mean if (k, x0) in found else np.nan for x0 in thresholds] for k in slopes])
    image = axes.pcolormesh(means, cmap=SEQUENTIAL, vmin=span[0], vmax=span[1], edgecolors="white", linewidth=1.5)
    for (row, k), (column, x0) in itertools.product(enumerate(slopes), enumerate(thresholds)):
        one = found.get((k, x0))
        if one is None:
            axes.text(column + 0.5, row + 0.5, "–", ha="center", va="center", color=MUTED)
            continue
        share = (one.mean - span[0]) / (span[1] - span[0])
        said = f"{one.mean:.2f}" + (" ★" if (k, x0) == marked else "")
        weight = "bold" if (k, x0) == marked else "normal"
        axes.text(
            column + 0.5, row + 0.5, said, ha="center", va="center", color="white" if share > 0.55 else INK, weight=weight, fontsize=8
        )
    axes.set_xticks(np.arange(len(thresholds)) + 0.5, [f"{x0:g}" for x0 in thresholds])
    axes.set_yticks(np.arange(len(slopes)) + 0.5, [f"{k:g}" for k in slopes])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image
