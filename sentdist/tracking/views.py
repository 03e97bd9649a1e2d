"""The saved views of an experiment's page: which runs, columns and charts its menu *Views* offers, trials and their scores first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sentdist.plan.stage import Json

TAG = "mlflow.sharedViewState."  # + id of the view: where MLflow's own menu keeps what a person saves
CURVES = ("dev_score", "loss")
MAX_VARIED = 8  # columns of parameters; a table wider than a screen hides its scores
SEARCHED_ONLY = "tags.`sentdist.search_trial` != ''"
STAGES_ONLY = "tags.`sentdist.key` != ''"
CELL = "sentdist.cell"  # a trial's method and grid values today: an axis more changes them, and MLflow's parameter `cell` stays
METHOD = "sentdist.method"  # a cell's name, on the run that has the means over its seeds
METHODS_ONLY = f"tags.`{METHOD}` != ''"
TRIALS_ONLY = f"tags.`{CELL}` != ''"  # those that the recipe has today: a trial that it had before is in no cell
PLACES = ("method", "seed", "fold")  # of a trial: no settings
Mode = Literal["TABLE", "CHART"]


@dataclass(frozen=True, kw_only=True)
class SavedView:
    """One entry of the menu; `state` is what MLflow 3.17 itself saves: search, columns and charts."""

    id: str
    name: str
    mode: Mode
    state: dict[str, Json]

    def tag(self, place: int) -> tuple[str, str]:
        """Tag and value on the experiment; the menu lists views by time, latest first, so the `place` makes their order."""
        made_ms = 1000 - place
        return TAG + self.id, json.dumps({"name": self.name, "createdAt": made_ms, "updatedAt": made_ms, "state": json.dumps(self.state)})


def views(
    *,
    order: str,
    metric: str,
    scores: Sequence[str],
    trials: Sequence[Mapping[str, str]],
    means: Sequence[str] = (),
    difference: str | None = None,
) -> tuple[SavedView, ...]:
    """The views of a sweep: its trials best first, its methods over seeds, their charts, and the stages that trials share.

    order: the metric that orders the trials. metric: the test score that stands first. scores: those that a table shows.
    trials: the parameters of each. means: further metrics of methods; none where each method has one trial. difference: the metric of a
    trial that says how far its score lies from that of the baseline.
    """
    ranked = tuple(name for name in (order, metric, difference) if name)
    columns = _columns("metrics", tuple(dict.fromkeys((*ranked, *scores, "best_dev_score", "train_s"))))
    varied = varied_parameters(trials)
    table: dict[str, Json] = {"orderByKey": _metric(order), "orderByAsc": False, "searchFilter": TRIALS_ONLY, "runsHiddenMode": "SHOW_ALL"}
    # ordered by time, MLflow would fold the stages away below their sweep
    listed: dict[str, Json] = {"orderByKey": "params.`kind`", "orderByAsc": True, "searchFilter": STAGES_ONLY}
    methods = table | {"searchFilter": METHODS_ONLY} | _table(*_columns("metrics", tuple(dict.fromkeys((*ranked, *means, *scores)))))
    charts = _charts(metric, difference)
    stages = _columns("params", ("kind", "objective.name", "phi", "seed")) + _columns("metrics", ("loss", "train_s", "bank_s"))
    return (
        SavedView(id="sentdist-trials", name="Trials, best first", mode="TABLE",
            state=table | _table(*columns, *_columns("params", varied))),
        *([SavedView(id="sentdist-methods", name="Methods, mean over seeds", mode="TABLE", state=methods)] if means else []),
        SavedView(id="sentdist-charts", name="Charts of the trials", mode="CHART", state=table | charts),
        *_parallel_of_grid(trials, order, metric, table),
        SavedView(
            id="sentdist-stages", name="Shared stages", mode="TABLE",
            state=listed | _table(*stages),
        ),
    )  # fmt: skip


def _parallel_of_grid(trials: Sequence[Mapping[str, str]], order: str, metric: str, table: Mapping[str, Json]) -> Iterator[SavedView]:
    """Over what differs between trials of one method: MLflow shows the runs that have all of the parameters."""
    of_method: dict[str, list[Mapping[str, str]]] = {}
    for trial in trials:
        of_method.setdefault(trial.get("method", ""), []).append(trial)
    differing = [
        [name for name in varied_parameters(own) if name not in PLACES and all(name in one for one in own)] for own in of_method.values()
    ]
    longest: list[str] = max(differing, key=len, default=[])
    fields: list[Json] = [*longest]
    if fields:
        metrics: list[Json] = list(dict.fromkeys((order, metric)))
        card = _card("PARALLEL", "what differs, and the scores", selectedParams=fields, selectedMetrics=metrics, showAllRuns=True)
        yield SavedView(id="sentdist-parallel", name="Parallel coordinates", mode="CHART", state=dict(table) | _chart_state([card], metric))


def search_views(fields: Mapping[str, Sequence[str]], *, names: Mapping[str, str]) -> tuple[SavedView, ...]:
    """The views of a search: its trials, best on dev first with how each ended, and parallel coordinates of every method that has fields.

    fields: title of a method -> parameters that its trials differ in; names: title -> the method's name.
    """
    every = tuple(dict.fromkeys(name for own in fields.values() for name in own))
    columns = (
        *_columns("metrics", ("best_dev_score", "share_trained", "sentences")),
        "tags.`sentdist.state`",
        *_columns("params", ("method", *every)),
    )
    table: dict[str, Json] = {
        "orderByKey": _metric("best_dev_score"), "orderByAsc": False, "searchFilter": SEARCHED_ONLY, "runsHiddenMode": "SHOW_ALL",
    }  # fmt: skip
    return (
        SavedView(id="sentdist-search", name="Search: trials, best on dev first", mode="TABLE", state=table | _table(*columns)),
        *(_parallel(title, names[title], own, table) for title, own in fields.items() if own),
    )


def _parallel(title: str, name: str, fields: Sequence[str], table: Mapping[str, Json]) -> SavedView:
    """MLflow shows the runs that have all of the parameters, so each method has a view of its own."""
    own = f"tags.`sentdist.search_method` = '{name}'"
    metrics: list[Json] = ["share_trained", "best_dev_score"]
    cards: list[Json] = [
        _card("PARALLEL", f"{title}: settings and dev score", selectedParams=list(fields), selectedMetrics=metrics, showAllRuns=True),
        _card("LINE", "dev score by step", metricKey="dev_score", selectedMetricKeys=["dev_score"], **_LINE),
    ]
    state = {**table, "searchFilter": own} | _chart_state(cards, "best_dev_score")
    return SavedView(id=f"sentdist-search-{name}", name=f"Search: {title}, parallel coordinates", mode="CHART", state=state)


def _chart_state(cards: Sequence[Json], metric: str) -> dict[str, Json]:
    """One wide column of charts; MLflow's own, one a metric, are folded below."""
    sections: list[Json] = [
        {"uuid": _SECTION, "name": "Which settings do well", "display": True, "isReordered": True, "columns": 1, "cardHeight": 440},
        {"uuid": "sentdist-all", "name": "Model metrics", "display": False, "isReordered": False},
        {"uuid": "sentdist-system", "name": "System metrics", "display": False, "isReordered": False},
    ]
    return {
        "compareRunCharts": list(cards), "compareRunSections": sections, "isAccordionReordered": True,
        "selectedColumns": list(_columns("metrics", (metric,))),
    }  # fmt: skip


def varied_parameters(trials: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Parameters that differ between trials, most telling first: at most MAX_VARIED, and none that says what `cell` says."""
    names = list(dict.fromkeys(name for trial in trials for name in trial))
    differing = [name for name in names if len({trial[name] for trial in trials if name in trial}) > 1 and name != "cell"]
    first = [name for name in ("method", "seed", "phis", "training.batch_size") if name in differing]
    return tuple(dict.fromkeys((*first, *differing)))[:MAX_VARIED]


def _charts(metric: str, difference: str | None) -> dict[str, Json]:
    """A bar of every trial, the learning curves, and cost against score; MLflow's own charts, one a metric, are folded below.

    MLflow draws bars from 0: those of scores look all alike, those of differences do not.
    """
    cards: list[Json] = [
        _card("BAR", f"score: {difference or metric} (× 100)", metricKey=difference or metric),
        *(_card("LINE", _CURVE_TITLES[name], metricKey=name, selectedMetricKeys=[name], **_LINE) for name in CURVES),
        _card(
            "SCATTER", "score against seconds of training",
            xaxis={"key": "train_s", "type": "METRIC"}, yaxis={"key": metric, "type": "METRIC"},
        ),
    ]  # fmt: skip
    sections: list[Json] = [
        {"uuid": _SECTION, "name": "What the sweep compares", "display": True, "isReordered": True, "columns": 2, "cardHeight": 360},
        {"uuid": "sentdist-all", "name": "Model metrics", "display": False, "isReordered": False},
        {"uuid": "sentdist-system", "name": "System metrics", "display": False, "isReordered": False},
    ]
    return {
        "compareRunCharts": cards,
        "compareRunSections": sections,
        "isAccordionReordered": True,
        "selectedColumns": list(_columns("metrics", (metric,))),
    }


_SECTION = "sentdist-compared"
_CURVE_TITLES = {"dev_score": "dev score (× 100) by step", "loss": "training loss by step"}
_LINE: dict[str, Json] = {
    "lineSmoothness": 0, "xAxisScaleType": "linear", "scaleType": "linear", "range": {}, "xAxisKey": "step", "selectedXAxisMetricKey": "",
    "yAxisKey": "metric", "yAxisExpressions": [], "ignoreOutliers": False, "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True,
}  # fmt: skip


def _card(kind: str, title: str, **values: Json) -> dict[str, Json]:
    own: dict[str, Json] = {
        "uuid": f"sentdist-{kind.lower()}-{title.partition(' ')[0]}", "type": kind, "displayName": title, "metricSectionId": _SECTION,
        "runsCountToCompare": 100, "deleted": False, "isGenerated": False,
    }  # fmt: skip
    return own | values


def _columns(kind: Literal["metrics", "params"], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{kind}.`{name}`" for name in names)


def _table(*columns: str) -> dict[str, Json]:
    """Columns in the order given (MLflow would take that of the alphabet), after names that can be read whole."""
    compared: dict[str, Json] = {name: 200 for name in columns if "_vs_" in name}
    widths: dict[str, Json] = compared | {"attributes.`Run Name`": 320, "metrics.`best_dev_score`": 150, "params.`objective.name`": 130,
                               "metrics.`share_trained`": 130, "tags.`sentdist.state`": 130,
                               "params.`log10 learning_rate`": 160}  # fmt: skip
    order: list[Json] = ["attributes.`Run Name`", *columns, "runDateAndNestInfo", "duration"]
    return {"selectedColumns": list(columns), "columnOrder": order, "columnWidths": widths}


def _metric(name: str) -> str:
    return f"metrics.`{name}`"
