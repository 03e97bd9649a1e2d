"""The figure of USEB's four tasks by each relation alone (RSE, arXiv 2212.08802, Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from sentdist.evaluation.summary import Summary, summarize
from sentdist.report.score_rows import ResultRow
from sentdist.report.style import Drawing, SystemStyles, canvas, check_drawable, house_style, legend_columns, quiet, save, styles_of
from sentdist.report.useb import FOUR, RELATION

WIDTH_IN = 7.4
TaskSummaries = Mapping[str, Mapping[str, Summary]]  # relation -> task -> over seeds


def relations_alone(rows: Sequence[ResultRow], others: Sequence[ResultRow] = (), *, styles: SystemStyles | None = None) -> Drawing:
    """A panel a task, a line a relation, a mark a system: mean over seeds ± 1 standard deviation, filled for the best relation of each.

    rows: of systems that were scored by each relation, under `params[RELATION]`. others: of systems that know no relation, each a
    dashed line.
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
            f"which is seen on its test data, as in the paper.{dashed}"
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
    """Task -> over seeds, of tasks that all rows have."""
    values = {task: [row.scores.get(task) for row in rows] for task in FOUR}
    return {task: summarize(np.array(scores, dtype=float).tolist()) for task, scores in values.items() if scores and None not in scores}
