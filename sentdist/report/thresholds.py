"""The figures of the regression losses: the score over slope and threshold, and the losses' shapes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from sentdist.evaluation.summary import Summary, summarize
from sentdist.palette import PALETTE
from sentdist.report.style import INK, MARKERS, MUTED, SEQUENTIAL, Drawing, canvas, check_drawable, house_style, quiet, save

TITLES = {
    "translated_relu": "Translated ReLU",
    "smooth_k2": "Smooth K2",
    "l1": "L1",
    "mse": "MSE",
}


@dataclass(frozen=True, kw_only=True)
class LossShape:
    """A regression loss: one of TITLES with slope k and threshold x0 (label units); l1 and mse are at k = 1 and x0 = 0."""

    loss: str
    slope: float = 1.0
    threshold: float = 0.0

    @property
    def title(self) -> str:
        return TITLES[self.loss] + (
            f" (k = {self.slope:g}, x0 = {self.threshold:g})" if self.loss in ("translated_relu", "smooth_k2") else ""
        )

    def values(self, errors: np.ndarray) -> np.ndarray:
        """Loss of each error |p − y|: k·max(0, x − x0), or its square times k."""
        beyond = np.maximum(errors - self.threshold, 0.0)
        return self.slope * (beyond if self._is_linear else beyond**2)

    def slopes(self, errors: np.ndarray) -> np.ndarray:
        """Derivative at each error; at the threshold itself that from the right."""
        beyond = errors - self.threshold
        return np.where(beyond >= 0, self.slope * (1.0 if self._is_linear else 2 * beyond), 0.0)

    @property
    def _is_linear(self) -> bool:
        return self.loss in ("translated_relu", "l1")


@dataclass(frozen=True, kw_only=True)
class ThresholdCell:
    """Where a run stands in the search: its loss, how it treats predictions outside the range, slope k and threshold x0."""

    loss: str
    boundary: str
    slope: float
    threshold: float


def threshold_surfaces(scores: Mapping[ThresholdCell, Sequence[float]], *, unit: str, name: str) -> Drawing:
    """The mean score over k and x0: one panel a loss (rows) and boundary mode (columns), one scale for all; the best cell is marked."""
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
    """Each loss and its derivative against the error |p − y|, from 0 to 1, the distance of two labels;
    dashed: half of it, the next label's side."""
    check_drawable(shapes, "loss shapes")
    errors = np.linspace(0.0, 1.0, 201)
    with house_style():
        figure, axes = canvas(width=7.2, height=3.1, columns=2)
        records: list[list[object]] = []
        for place, shape in enumerate(shapes):
            color, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
            for one, values in ((axes[0], shape.values(errors)), (axes[1], shape.slopes(errors))):
                # A jump is drawn as a gap: the derivative has no values between.
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
