"""Notes on runs, addresses of MLflow's pages relative to the server, and saved views of an experiment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from jinja2 import Environment
from markupsafe import Markup

from sentdist.errors import counted
from sentdist.plan.corpora import CORPORA
from sentdist.plan.stage import Json
from sentdist.store.chosen import cells_by_dev
from sentdist.store.record import Record
from sentdist.store.searches import SearchRecord, SearchTrial
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.text import escaped, markdown_environment, markdown_table, merged
from sentdist.tracking.run_values import averages, main_scores
from sentdist.tracking.sweep_summary import (
    DEV_SCORE,
    difference_metric,
    distinct_trials,
    mean_columns,
    mean_score,
    summary_rows,
    sweep_metric,
)

MAX_LINES = 30  # of a table or list: a note may have 8000 characters, and a line with its link up to 200
KINDS = {
    **{corpus.kind: "corpus" for corpus in CORPORA},
    "targets": "tags and words",
    "train": "training",
    "bank": "bank of embeddings",
    "scores": "scores",
}


@dataclass(frozen=True, kw_only=True)
class Link:
    """A run to link to."""

    name: str
    kind: str
    url: str | None  # None: only the name is shown


def experiment_note(sweep: SweepRecord) -> str:
    """Return the note of a sweep's experiment; MLflow shows the first line and folds the rest."""
    return _rendered("experiment", sweep=sweep)


def method_note(sweep: SweepRecord, label: str, *, trials: Sequence[Link]) -> str:
    """Return the note of a method's means over `trials`."""
    return _rendered("method", label=label, trials=trials, deviation=mean_columns(sweep)[0], difference=difference_metric(sweep))


def trial_note(
    trial: TrialRecord,
    *,
    sweep: Link,
    train: Record | None,
    scores: Record | None,
    address: str | None,
    shared: Sequence[Link],
    reason: str | None,
) -> str:
    """Return the note of a trial.

    Args:
        address: Of the trained encoder.
        shared: Runs of the shared stages that it was made from.
        reason: Why it ended without scores.
    """
    found = None if scores is None else main_scores(scores)
    both = None if found is None else averages(found) | found
    return _rendered("trial", trial=trial, sweep=sweep, train=train, scores=both, address=address, shared=shared, reason=reason)


def stage_note(
    label: str,
    kind: str,
    *,
    sweep: Link,
    record: Record | None,
    address: str | None,
    trials: Sequence[Link],
    made_from: Sequence[Link],
    reason: str | None,
) -> str:
    """Return the note of a shared stage, with the address of its artifact and the trials that use it."""
    return _rendered(
        "stage", label=label, kind=kind, sweep=sweep, record=record, address=address, trials=trials, made_from=made_from, reason=reason
    )


def sweep_note(
    sweep: SweepRecord,
    records: Mapping[str, Record],
    *,
    trials: Mapping[str, Link],
    views: Sequence[Link],
    store: str,
    model: str | None = None,
) -> str:
    """Return the note of a sweep: result table, best first, and the number of shared stages."""
    rows, metric, cells = summary_rows(sweep, records), sweep_metric(sweep), cells_by_dev(sweep, records)
    return _rendered(
        "sweep", sweep=sweep, rows=rows, metric=metric, trials=trials, views=views, store=store, model=model,
        num_trials=len(distinct_trials(sweep)), num_mentions=sum(sweep.mentions.values()),
        chosen=cells[0] if cells else None, chosen_score=mean_score(cells[0], records, metric) if cells else None,
    )  # fmt: skip


def search_note(record: SearchRecord, *, pages: Mapping[str, str], best: Sequence[tuple[str, str, float]]) -> str:
    """Return the note of a search.

    Args:
        pages: Views of its trials, by name.
        best: Name, settings and dev score of the best trials.
    """
    counts = {state: sum(trial.state == state for trial in record.trials) for state in ("finished", "pruned", "failed", "running")}
    return _rendered(
        "search", num_trials=len(record.trials), states={state: count for state, count in counts.items() if count}, reason=record.reason,
        pages=pages, rows=[(name, settings, f"{dev:.2f}") for name, settings, dev in best],
    )  # fmt: skip


def search_trial_note(trial: SearchTrial, *, search: str, settings: str) -> str:
    """Return the note of a trial of the search with this name."""
    return _rendered("search_trial", trial=trial, search=search, settings=settings)


def _rendered(note: str, **values: object) -> str:
    return merged(_environment().get_template(f"{note}.md.jinja").render(**values))


@cache
def _environment() -> Environment:
    made = markdown_environment("sentdist.tracking")
    made.filters |= {"counted": counted, "score": _score, "short": _short}
    made.globals |= {"DEV_SCORE": DEV_SCORE, "KINDS": KINDS, "MAX_LINES": MAX_LINES, "spaced_table": _spaced_table}
    made.tests |= {"fact": lambda value: isinstance(value, int | float | str), "a_float": lambda value: isinstance(value, float)}
    return made


def _spaced_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    """A Markdown table, first column left-aligned; en spaces separate columns, since MLflow draws tables without padding."""
    spaced = [[escaped(row[0]), *(f"&ensp;&ensp;{escaped(cell)}" for cell in row[1:])] for row in (head, *rows)]
    return Markup(markdown_table(spaced[0], spaced[1:]))


def _score(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _short(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


LAYOUT = "workflowType=machine_learning"  # the default of a new browser is pages for language-model applications


def run_page(experiment_id: str, run_id: str) -> str:
    """Return the page of a run."""
    return f"#/experiments/{experiment_id}/runs/{run_id}?{LAYOUT}"


def artifact_page(experiment_id: str, run_id: str, path: str) -> str:
    """Return the page of a run with one of its artifacts open."""
    return f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{path}?{LAYOUT}"


def view_page(experiment_id: str, view_id: str, mode: str) -> str:
    """Return the page of an experiment's runs in a saved view; `mode` is TABLE or CHART."""
    return f"#/experiments/{experiment_id}/runs?{LAYOUT}&viewStateShareKey={view_id}&compareRunsMode={mode}"


def model_page(name: str, version: str) -> str:
    """Return the page of a version of a registered model."""
    return f"#/models/{name}/versions/{version}?{LAYOUT}"


TAG = "mlflow.sharedViewState."  # + id of the view: the tag in which MLflow saves the views of its menu
CURVES = ("dev_score", "loss")
MAX_VARIED = 8  # columns of parameters; a table wider than a screen hides its scores
SEARCHED_ONLY = "tags.`sentdist.search_trial` != ''"
STAGES_ONLY = "tags.`sentdist.key` != ''"
CELL = "sentdist.cell"  # a trial's method and grid values now: a new axis changes them, but MLflow's parameter `cell` cannot change
METHOD = "sentdist.method"  # a cell's name, on the run that has the means over its seeds
METHODS_ONLY = f"tags.`{METHOD}` != ''"
TRIALS_ONLY = f"tags.`{CELL}` != ''"  # trials of the current recipe: a removed trial is in no cell
PLACES = ("method", "seed", "fold")  # of a trial: no settings
Mode = Literal["TABLE", "CHART"]


@dataclass(frozen=True, kw_only=True)
class SavedView:
    """An entry of the menu; `state` is what MLflow 3.17 saves: search, columns and charts."""

    id: str
    name: str
    mode: Mode
    state: dict[str, Json]

    def tag(self, place: int) -> tuple[str, str]:
        """Return tag and value for the experiment; the menu lists the latest view first, so `place` sets the order."""
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
    """Return the views of a sweep: trials best first, methods over seeds, charts, and shared stages.

    Args:
        order: Metric that orders the trials.
        metric: Primary test score.
        scores: Scores that a table shows.
        trials: Parameters of each trial.
        means: Further metrics of methods; empty if each method has one trial.
        difference: Metric of a trial's difference from the baseline.
    """
    ranked = tuple(name for name in (order, metric, difference) if name)
    columns = _columns("metrics", tuple(dict.fromkeys((*ranked, *scores, "best_dev_score", "train_s"))))
    varied = varied_parameters(trials)
    table: dict[str, Json] = {"orderByKey": _metric(order), "orderByAsc": False, "searchFilter": TRIALS_ONLY, "runsHiddenMode": "SHOW_ALL"}
    # ordered by time, MLflow would fold the stages away below their sweep
    listed: dict[str, Json] = {"orderByKey": "params.`kind`", "orderByAsc": True, "searchFilter": STAGES_ONLY}
    methods = table | {"searchFilter": METHODS_ONLY} | _table(*_columns("metrics", tuple(dict.fromkeys((*ranked, *means, *scores)))))
    charts = _chart_state(_charts(metric, difference), metric, name="What the sweep compares", columns=2, height=360)
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
    """A view of what differs between trials of one method; MLflow shows only runs that have all of the parameters."""
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
    """Return the views of a search: trials, best on dev first, and parallel coordinates of every method that has fields.

    Args:
        fields: Title of a method -> parameters that differ between its trials.
        names: Title of a method -> its name.
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
    """MLflow shows only runs that have all of the parameters, so each method has a separate view."""
    own = f"tags.`sentdist.search_method` = '{name}'"
    metrics: list[Json] = ["share_trained", "best_dev_score"]
    cards: list[Json] = [
        _card("PARALLEL", f"{title}: settings and dev score", selectedParams=list(fields), selectedMetrics=metrics, showAllRuns=True),
        _card("LINE", "dev score by step", metricKey="dev_score", selectedMetricKeys=["dev_score"], **_LINE),
    ]
    state = {**table, "searchFilter": own} | _chart_state(cards, "best_dev_score")
    return SavedView(id=f"sentdist-search-{name}", name=f"Search: {title}, parallel coordinates", mode="CHART", state=state)


def _chart_state(
    cards: Sequence[Json], metric: str, *, name: str = "Which settings do well", columns: int = 1, height: int = 440
) -> dict[str, Json]:
    """A section of charts; MLflow's charts, one per metric, are folded below."""
    sections: list[Json] = [
        {"uuid": _SECTION, "name": name, "display": True, "isReordered": True, "columns": columns, "cardHeight": height},
        {"uuid": "sentdist-all", "name": "Model metrics", "display": False, "isReordered": False},
        {"uuid": "sentdist-system", "name": "System metrics", "display": False, "isReordered": False},
    ]
    return {
        "compareRunCharts": list(cards), "compareRunSections": sections, "isAccordionReordered": True,
        "selectedColumns": list(_columns("metrics", (metric,))),
    }  # fmt: skip


def varied_parameters(trials: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return parameters that differ between trials, the main ones first: at most MAX_VARIED, without `cell`."""
    names = list(dict.fromkeys(name for trial in trials for name in trial))
    differing = [name for name in names if len({trial[name] for trial in trials if name in trial}) > 1 and name != "cell"]
    first = [name for name in ("method", "seed", "phis", "training.batch_size") if name in differing]
    return tuple(dict.fromkeys((*first, *differing)))[:MAX_VARIED]


def _charts(metric: str, difference: str | None) -> list[Json]:
    """A bar per trial, the learning curves, and cost against score.

    MLflow draws bars from 0: bars of scores all look alike, bars of differences do not.
    """
    return [
        _card("BAR", f"score: {difference or metric} (× 100)", metricKey=difference or metric),
        *(_card("LINE", _CURVE_TITLES[name], metricKey=name, selectedMetricKeys=[name], **_LINE) for name in CURVES),
        _card(
            "SCATTER", "score against seconds of training",
            xaxis={"key": "train_s", "type": "METRIC"}, yaxis={"key": metric, "type": "METRIC"},
        ),
    ]  # fmt: skip


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
    """Columns in the given order (MLflow would sort them by name), after a column wide enough for names."""
    compared: dict[str, Json] = {name: 200 for name in columns if "_vs_" in name}
    widths: dict[str, Json] = compared | {"attributes.`Run Name`": 320, "metrics.`best_dev_score`": 150, "params.`objective.name`": 130,
                               "metrics.`share_trained`": 130, "tags.`sentdist.state`": 130,
                               "params.`log10 learning_rate`": 160}  # fmt: skip
    order: list[Json] = ["attributes.`Run Name`", *columns, "runDateAndNestInfo", "duration"]
    return {"selectedColumns": list(columns), "columnOrder": order, "columnWidths": widths}


def _metric(name: str) -> str:
    return f"metrics.`{name}`"
