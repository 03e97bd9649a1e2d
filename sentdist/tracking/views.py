"""Saved views of an experiment, and addresses of MLflow's pages relative to the server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sentdist.recipe.stage import Json
from sentdist.store.sweep import SweepRecord
from sentdist.tracking.values import DEV_SCORE, difference_metric, mean_columns, order_metric, score_names, sweep_metric

LAYOUT = "workflowType=machine_learning"  # the default of a new browser is pages for language-model applications
TAG = "mlflow.sharedViewState."  # + id of the view: the tag in which MLflow 3.17 saves the views of its menu
CELL = "sentdist.cell"  # a trial's method and grid values; a trial that the recipe no longer has is in no cell
METHOD = "sentdist.method"  # a cell's name, on the run that has the means over its seeds
SEARCH = "sentdist.search"  # identity of the search that a trial belongs to
MAX_VARIED = 8  # columns of parameters; a table wider than a screen hides its scores


@dataclass(frozen=True, kw_only=True)
class SavedView:
    """An entry of the menu; `state` is what MLflow saves: search, columns and charts."""

    id: str
    name: str
    mode: Literal["TABLE", "CHART"]
    state: dict[str, Json]

    def tag(self, place: int) -> tuple[str, str]:
        """Return tag and value for the experiment; the menu lists the latest view first, so `place` sets the order."""
        made_ms = 1000 - place
        return TAG + self.id, json.dumps({"name": self.name, "createdAt": made_ms, "updatedAt": made_ms, "state": json.dumps(self.state)})


def run_page(experiment: str, run_id: str, artifact: str = "") -> str:
    """Return the page of a run, with one of its artifacts open."""
    return f"#/experiments/{experiment}/runs/{run_id}{f'/artifacts/{artifact}' if artifact else ''}?{LAYOUT}"


def view_pages(experiment: str, views: Sequence[SavedView]) -> dict[str, str]:
    """Return the page of each view of an experiment's runs, by its name."""
    return {view.name: view_page(experiment, view.id, view.mode) for view in views}


def view_page(experiment: str, view: str, mode: str) -> str:
    """Return the page of a view, by its id."""
    return f"#/experiments/{experiment}/runs?{LAYOUT}&viewStateShareKey={view}&compareRunsMode={mode}"


def model_page(name: str, version: str) -> str:
    """Return the page of a version of a registered model."""
    return f"#/models/{name}/versions/{version}?{LAYOUT}"


def sweep_views(sweep: SweepRecord, trials: Sequence[Mapping[str, str]]) -> tuple[SavedView, ...]:
    """Return the views of a sweep: trials best first, methods over seeds (if there are several), and charts.

    Args:
        trials: Parameters of each trial.
    """
    order, metric, difference, means = order_metric(sweep), sweep_metric(sweep), difference_metric(sweep), mean_columns(sweep)
    ranked = [name for name in (order, metric, difference) if name]
    columns = _columns("metrics", [*ranked, *score_names(sweep), DEV_SCORE, "train_s"]) + _columns("params", varied_parameters(trials))
    best_first = {"orderByKey": _column("metrics", order), "orderByAsc": False, "runsHiddenMode": "SHOW_ALL"}
    table: dict[str, Json] = best_first | {"searchFilter": f"tags.`{CELL}` != ''"}  # type: ignore[assignment]
    of_methods = table | {"searchFilter": f"tags.`{METHOD}` != ''"} | _table(_columns("metrics", [*ranked, *means, *score_names(sweep)]))
    scatter: dict[str, Json] = {"xaxis": {"key": "train_s", "type": "METRIC"}, "yaxis": {"key": metric, "type": "METRIC"}}
    cards = [  # MLflow draws bars from 0: bars of scores all look alike, bars of differences do not
        *([_card("BAR", f"score: {difference} (× 100)", metricKey=difference)] if difference else []),
        _line("dev_score", "dev score (× 100) by step"),
        _line("loss", "training loss by step"),
        _card("SCATTER", "score against seconds of training", **scatter),
    ]
    methods = [SavedView(id="sentdist-methods", name="Methods, mean over seeds", mode="TABLE", state=of_methods)] if means else []
    return (
        SavedView(id="sentdist-trials", name="Trials, best first", mode="TABLE", state=table | _table(columns)),
        *methods,
        SavedView(id="sentdist-charts", name="Charts of the trials", mode="CHART", state=table | _charts(cards, "What the sweep compares")),
    )


def search_views(identity: str, fields: Mapping[str, Sequence[str]]) -> tuple[SavedView, ...]:
    """Return the views of a search: trials, best on dev first, and a card of parallel coordinates for each method.

    Args:
        fields: Title of a method -> parameters that differ between its trials; MLflow draws only runs that have all of them.
    """
    every = list(dict.fromkeys(name for own in fields.values() for name in own))
    results = _columns("metrics", [DEV_SCORE, "share_trained", "sentences"])
    columns = (*results, "tags.`sentdist.state`", *_columns("params", ["method", *every]))
    table: dict[str, Json] = {
        "orderByKey": _column("metrics", DEV_SCORE), "orderByAsc": False, "searchFilter": f"tags.`{SEARCH}` = '{identity}'",
        "runsHiddenMode": "SHOW_ALL",
    }  # fmt: skip
    shown: list[Json] = ["share_trained", DEV_SCORE]
    cards = [
        _card("PARALLEL", f"{title}: settings and dev score", selectedParams=list(own), selectedMetrics=shown, showAllRuns=True)
        for title, own in fields.items()
        if own
    ]
    charts = table | _charts([*cards, _line("dev_score", "dev score by step")], "Which settings do well", columns=1, height=440)
    return (
        SavedView(id="sentdist-search", name="Search: trials, best on dev first", mode="TABLE", state=table | _table(columns)),
        SavedView(id="sentdist-search-charts", name="Search: charts", mode="CHART", state=charts),
    )


def varied_parameters(trials: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return parameters that differ between trials, the main ones first: at most MAX_VARIED, without `cell`."""
    names = list(dict.fromkeys(name for trial in trials for name in trial))
    differing = [name for name in names if len({trial[name] for trial in trials if name in trial}) > 1 and name != "cell"]
    first = [name for name in ("method", "seed", "phis", "training.batch_size") if name in differing]
    return tuple(dict.fromkeys((*first, *differing)))[:MAX_VARIED]


SECTION = "sentdist-compared"


def _charts(cards: Sequence[dict[str, Json]], name: str, *, columns: int = 2, height: int = 360) -> dict[str, Json]:
    """A section of charts; MLflow's charts, one per metric, are folded below."""
    sections: list[Json] = [
        {"uuid": SECTION, "name": name, "display": True, "isReordered": True, "columns": columns, "cardHeight": height},
        {"uuid": "sentdist-all", "name": "Model metrics", "display": False, "isReordered": False},
        {"uuid": "sentdist-system", "name": "System metrics", "display": False, "isReordered": False},
    ]
    return {"compareRunCharts": list(cards), "compareRunSections": sections, "isAccordionReordered": True}


def _line(metric: str, title: str) -> dict[str, Json]:
    return _card(
        "LINE", title, metricKey=metric, selectedMetricKeys=[metric], lineSmoothness=0, xAxisScaleType="linear", scaleType="linear",
        range={}, xAxisKey="step", selectedXAxisMetricKey="", yAxisKey="metric", yAxisExpressions=[], ignoreOutliers=False,
        useGlobalXaxisKey=True, useGlobalLineSmoothing=True,
    )  # fmt: skip


def _card(kind: str, title: str, **values: Json) -> dict[str, Json]:
    own: dict[str, Json] = {
        "uuid": f"sentdist-{kind.lower()}-{title.partition(' ')[0]}", "type": kind, "displayName": title, "metricSectionId": SECTION,
        "runsCountToCompare": 100, "deleted": False, "isGenerated": False,
    }  # fmt: skip
    return own | values


def _column(kind: Literal["metrics", "params"], name: str) -> str:
    return f"{kind}.`{name}`"


def _columns(kind: Literal["metrics", "params"], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_column(kind, name) for name in dict.fromkeys(names))


def _table(columns: Sequence[str]) -> dict[str, Json]:
    """Columns in the given order (MLflow would sort them by name), each as wide as its name."""
    widths: dict[str, Json] = {name: max(110, 8 * len(name.partition("`")[2]) + 20) for name in columns}
    order: list[Json] = ["attributes.`Run Name`", *columns, "runDateAndNestInfo", "duration"]
    return {"selectedColumns": list(columns), "columnOrder": order, "columnWidths": widths | {"attributes.`Run Name`": 320}}
