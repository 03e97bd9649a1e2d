"""The figures and the table of relations: how alike they are, the score over a relation's weight, link prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sentdist.errors import DataError, counted
from sentdist.evaluation.summary import summarize
from sentdist.plan.stage import as_number, slug
from sentdist.report.style import DIVERGING, INK, Drawing, SystemStyles, canvas, check_drawable, house_style, quiet, save, styles_of
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord

SCORE = "average STS score (Spearman × 100)"  # what weights are scored by
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
    """The matrix of every method that has relations and stands at one grid point only,
    then the score over a weight for each relation that was varied."""
    trials = [trial for trial in sweep.trials if trial.key in records]
    cells = Counter(method for method, _ in dict.fromkeys((trial.method, trial.cell) for trial in trials))
    drawn: set[str | None] = set()
    for method, count in cells.items():
        own = [trial for trial in trials if trial.method == method]
        found = [one for trial in own if isinstance(one := records[trial.key].results.get("relations"), dict)]
        if count > 1 or not found or {trial.train for trial in own} <= drawn:
            continue  # a grid, no relations, or another reading of an encoder that is drawn already
        drawn |= {trial.train for trial in own}
        names = [str(name) for name in found[0]["names"]]  # type: ignore[union-attr]
        yield relation_matrix(names, [np.array(one["cosines"]) for one in found], system=own[0].cell, name=f"relations-{method}")
    for relation, scores in _curves(trials, records).items():
        yield weight_curves(scores, relation=relation, name=f"weights-{slug(relation)}", styles=styles)


def link_table(sweep: SweepRecord, records: Mapping[str, Record], *, printed: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Rows under LINK_HEADER of every cell that was asked for links, and those printed for the relations among them; empty where none was.

    printed: of a paper, by relation, in the order of LINK_COLUMNS.
    """
    results: dict[str, list[Mapping[str, object]]] = {}
    for trial in sweep.trials:
        if trial.key in records:
            results.setdefault(trial.cell, []).append(records[trial.key].results)
    rows = link_rows(results, task="links")
    asked = dict.fromkeys(row.relation for row in rows)
    return [row.cells for row in (*rows, *printed_link_rows(printed, asked))]


def _curves(trials: Sequence[TrialRecord], records: Mapping[str, Record]) -> dict[str, dict[str, dict[float, list[float]]]]:
    """relation -> cell -> weight -> scores of seeds."""
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
    """Cosines between relation vectors, (K, K) of each seed, as a map of their means;
    sd over seeds in the table (arXiv 2212.08802, Figure 4)."""
    if not cosines or any(np.shape(matrix) != (len(names), len(names)) for matrix in cosines):
        raise DataError(
            where="relation matrix",
            found=f"matrices of shapes {sorted({np.shape(matrix) for matrix in cosines})} for {len(names)} relations",
            expected="at least one matrix with a row and a column a relation",
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
    scores: Mapping[str, Mapping[float, Sequence[float]]],
    *,
    relation: str,
    name: str,
    styles: SystemStyles | None = None,
) -> Drawing:
    """The score against the weight of one relation, a line a system: mean and band of ± 1 sd over seeds (arXiv 2212.08802, Figure 3)."""
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
            f"{SCORE[0].upper()}{SCORE[1:]} against the weight of {relation}, the other weights as they are; band: ± 1 "
            "standard deviation over seeds."
        )
        return save(figure, name=name, caption=caption, header=["system", "weight", "mean", "sd", "seeds"], records=records)


def link_rows(results: Mapping[str, Sequence[Mapping[str, object]]], *, task: str) -> list[LinkRow]:
    """The rows of a link-prediction table from the results of each system's trials (arXiv 2212.08802, Table 7);
    systems without any are left out.

    results: of each system, one mapping a seed, with "{task}.{relation}.mrr" and so on, × 100.
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
    """What a paper prints for these relations."""
    return [
        LinkRow(system="paper (BERT-base)", relation=relation, means=tuple(map(float, printed[relation])), num_seeds=1)
        for relation in relations
        if relation in printed
    ]
