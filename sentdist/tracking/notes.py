"""What a person reads at the top of a run's page, in Markdown; the texts stand in `templates/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from sentdist.errors import counted
from sentdist.plan.corpora import CORPORA
from sentdist.store.chosen import DevCell, cells_by_dev
from sentdist.store.record import Record
from sentdist.store.searches import SearchRecord, SearchTrial
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.table_text import markdown_table
from sentdist.templates import escaped, markdown_environment, merged
from sentdist.tracking.shown_metrics import averages, main_scores
from sentdist.tracking.sweep_summary import (
    DEV_SCORE,
    difference_metric,
    distinct_trials,
    mean_columns,
    mean_score,
    summary_rows,
    sweep_metric,
)

MAX_LINES = 30  # of a table or list: a note may have 8000 letters, and a line with its link has up to 200
KINDS = {
    **{corpus.kind: "corpus" for corpus in CORPORA},
    "targets": "tags and words",
    "train": "training",
    "bank": "bank of embeddings",
    "scores": "scores",
}


@dataclass(frozen=True, kw_only=True)
class Link:
    """A run to point to; without an address its name alone is shown."""

    name: str
    kind: str
    url: str | None


def experiment_note(sweep: SweepRecord) -> str:
    """What the sweep asks. MLflow shows the first line and folds the rest away."""
    return _rendered("experiment", sweep=sweep)


def method_note(sweep: SweepRecord, label: str, *, trials: Sequence[Link]) -> str:
    """`trials`: those whose means the run has."""
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
    """`address`: where the trained encoder lies; `shared`: runs of the stages that it did not build alone."""
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
    """`address`: where the artifact lies; `trials`: those that use it."""
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
    """The result table, best first, and what sharing saved."""
    rows, metric, cells = summary_rows(sweep, records), sweep_metric(sweep), cells_by_dev(sweep, records)
    return _rendered(
        "sweep", sweep=sweep, rows=rows, metric=metric, trials=trials, views=views, store=store, model=model,
        num_trials=len(distinct_trials(sweep)), num_mentions=sum(sweep.mentions.values()),
        chosen=cells[0] if cells else None, chosen_score=_chosen_score(cells, records, metric),
    )  # fmt: skip


def search_note(record: SearchRecord, *, pages: Mapping[str, str], best: Sequence[tuple[str, str, float]]) -> str:
    """pages: views of its trials. best: name, settings and dev score of the best trials."""
    counts = {state: sum(trial.state == state for trial in record.trials) for state in ("finished", "pruned", "failed", "running")}
    return _rendered(
        "search", num_trials=len(record.trials), states={state: count for state, count in counts.items() if count}, reason=record.reason,
        pages=pages, rows=[(name, settings, f"{dev:.2f}") for name, settings, dev in best],
    )  # fmt: skip


def search_trial_note(trial: SearchTrial, *, search: str, settings: str) -> str:
    """search: the name of the search of which it is a trial."""
    return _rendered("search_trial", trial=trial, search=search, settings=settings)


def _chosen_score(cells: Sequence[DevCell], records: Mapping[str, Record], metric: str) -> float | None:
    return mean_score(cells[0], records, metric) if cells else None


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
    """A Markdown table, first column to the left; en spaces keep the columns apart, for MLflow draws tables without padding."""
    spaced = [[escaped(row[0]), *(f"&ensp;&ensp;{escaped(cell)}" for cell in row[1:])] for row in (head, *rows)]
    return Markup(markdown_table(spaced[0], spaced[1:]))


def _score(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _short(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
