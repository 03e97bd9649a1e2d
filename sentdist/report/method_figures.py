"""Figures and tables of single methods: relations, link prediction, probes, geometry of embeddings, thresholds of regression losses."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sentdist.errors import counted
from sentdist.recipe.stage import as_number, slug
from sentdist.report.figures import curves, heat_map
from sentdist.report.style import Drawing
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord
from sentdist.tasks.kinds import TASK_KINDS

TITLES = {"translated_relu": "Translated ReLU", "smooth_k2": "Smooth K2", "l1": "L1", "mse": "MSE"}  # of regression losses
SCORE = "average STS score (Spearman × 100)"  # of weight curves
LINK_COLUMNS = ("MRR", "Hits@1", "Hits@3", "Hits@10")
LINK_HEADER = ("system", "relation", *LINK_COLUMNS, "seeds")
GEOMETRY_HEADER = ("system", "alignment ↓", "uniformity ↓", "mean cosine", "effective rank")
PROBES = {
    f"probes.{target}_from_{part}": f"{said} {words}"
    for target, said in {"tags": "tags (share of information) from", "words": "words (R²) from"}.items()
    for part, words in {"pos": "tag channels", "bow": "word channels"}.items()
}
Results = Mapping[str, Sequence[Mapping[str, object]]]  # cell -> results of its finished trials


def results_of(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, list[Mapping[str, object]]]:
    """Return cell -> results of its finished trials."""
    found: dict[str, list[Mapping[str, object]]] = {}
    for trial in sweep.trials:
        if trial.key in records:
            found.setdefault(trial.cell, []).append(records[trial.key].results)
    return found


def means_table(results: Results, names: Sequence[str], *, digits: int = 2) -> list[list[str]]:
    """Return a row per cell that has all of these results, with their means over trials."""
    rows = []
    for cell, trials in results.items():
        values = [[one for trial in trials if (one := as_number(trial.get(name))) is not None] for name in names]
        if all(values):
            rows.append([cell, *(f"{statistics.fmean(one):.{digits}f}" for one in values)])
    return rows


def geometry_rows(results: Results) -> list[list[str]]:
    """Return the rows under GEOMETRY_HEADER."""
    task = "geometry" if any("geometry.uniformity" in one for trials in results.values() for one in trials) else "geometry-stsb"
    return means_table(results, [f"{task}.{measure}" for measure in TASK_KINDS["geometry"].shown], digits=3)


def link_rows(results: Results) -> list[list[str]]:
    """Return the rows under LINK_HEADER (arXiv 2212.08802, Table 7), × 100."""
    rows: list[list[str]] = []
    for cell, trials in results.items():
        for relation in [key[len("links.") : -len(".mrr")] for key in trials[0] if key.startswith("links.") and key.endswith(".mrr")]:
            names = [f"links.{relation}.{measure}" for measure in ("mrr", "hits@1", "hits@3", "hits@10")]
            rows += [[cell, relation, *row[1:], str(len(trials))] for row in means_table({cell: trials}, names, digits=1)]
    return rows


def relation_drawings(sweep: SweepRecord, records: Mapping[str, Record]) -> Iterator[Drawing]:
    """Yield the cosines of relations of each method with one grid point, then the score over the weight of each varied relation.

    These are Figures 4 and 3 of arXiv 2212.08802.
    """
    trials = [trial for trial in sweep.trials if trial.key in records]
    drawn: set[str | None] = set()
    for method, count in Counter(method for method, _ in dict.fromkeys((trial.method, trial.cell) for trial in trials)).items():
        own = [trial for trial in trials if trial.method == method]
        found = [one for trial in own if isinstance(one := records[trial.key].results.get("relations"), dict)]
        if count > 1 or not found or {trial.train for trial in own} <= drawn:
            continue  # a grid, no relations, or an encoder that is drawn already
        drawn |= {trial.train for trial in own}
        names = [str(name) for name in found[0]["names"]]  # type: ignore[union-attr]
        cosines = {
            (row, column): [float(one["cosines"][place][at]) for one in found]  # type: ignore[arg-type, index]
            for place, row in enumerate(names)
            for at, column in enumerate(names)
        }
        caption = f"Cosines between the relation vectors of {own[0].cell}, mean over {counted(len(found), 'seed')}."
        titles = ("relation", "other")
        yield heat_map({"": cosines}, titles=titles, unit="cosine", name=f"relations-{method}", caption=caption, span=(-1.0, 1.0))
    for relation, series in _weights(sweep, records).items():
        caption = f"{SCORE[0].upper()}{SCORE[1:]} against the weight of {relation}, the other weights unchanged."
        yield curves({"": series}, x=f"weight of {relation}", unit=SCORE, name=f"weights-{slug(relation)}", caption=caption)


def _weights(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, dict[str, dict[float, list[float]]]]:
    """Relation -> cell -> weight -> scores of seeds."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for cell, trials in results_of(sweep, records).items():
        for curve in (one for trial in trials if isinstance(one := trial.get("weight_curve"), dict)):
            there = found.setdefault(str(curve["relation"]), {}).setdefault(cell, {})
            for weight, score in zip(curve["weights"], curve["scores"], strict=True):
                if isinstance(score, int | float):
                    there.setdefault(float(weight), []).append(float(score))
    return found
