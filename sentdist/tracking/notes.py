"""What a person reads at the top of a run's page, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sentdist.errors import counted
from sentdist.plan.chosen_tasks import named_task, task_names
from sentdist.plan.corpora import CORPORA
from sentdist.plan.corpora.own import OWN, own_test_names
from sentdist.plan.specs import Shape
from sentdist.store.chosen import DevCell, cells_by_dev, dev_chooses, dev_score
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.table_text import csv_text, markdown_link, markdown_table, markdown_text
from sentdist.tracking.figures import averages, main_scores, metric_name, primary_metric, shown

DEV_SCORE = "best_dev_score"
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

    def __str__(self) -> str:
        return markdown_link(self.name, self.url) if self.url else markdown_text(self.name)


def experiment_note(sweep: SweepRecord, *, views: Sequence[Link]) -> str:
    """`views`: the experiment's saved views. MLflow shows the first line and folds the rest away."""
    about = markdown_text(sweep.about) or "No `about` in the recipe."
    return f"{about} {_menu(views)}\n\nRecipe `{sweep.name}`. One run a sweep; its trials and the stages they share are its children. Trials carry `scores`, stages a `kind`."


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
    lines = [f"**{markdown_text(trial.name)}**, a trial of {sweep}."]
    if reason:
        lines.append(f"Ended without scores: {markdown_text(reason)}")
    if scores is not None:
        lines.append(_score_table(scores))
    if train is not None:
        lines.append(_training_line(train))
    if address is not None:
        lines.append(f"Encoder: `{address}`; it loads with `SentenceTransformer(path)`.")
    if shared:
        lines.append("Made from:\n\n" + _list([f"{KINDS[link.kind]} {link}" for link in shared]))
    return "\n\n".join(lines)


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
    number = len(trials)
    lines = [
        f"**{markdown_text(label)}**, a {KINDS[kind]} that {counted(number, 'trial')} of {sweep} {'use' if number != 1 else 'uses'}; made once."
    ]
    if reason:
        lines.append(f"Ended without an artifact: {markdown_text(reason)}")
    if record is not None and record.kind == "train":
        lines.append(_training_line(record))
    elif record is not None:
        facts = ", ".join(
            f"{name} {markdown_text(_short(value))}" for name, value in record.results.items() if isinstance(value, int | float | str)
        )
        lines.append(f"Made in {record.seconds:.1f} s: {facts}." if facts else f"Made in {record.seconds:.1f} s.")
    if address is not None:
        lines.append(f"Artifact: `{address}`")
    if made_from:
        lines.append("Made from:\n\n" + _list([f"{KINDS[link.kind]} {link}" for link in made_from]))
    if trials:
        lines.append("Used by:\n\n" + _list(list(map(str, trials))))
    return "\n\n".join(lines)


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
    rows, metric = summary_rows(sweep, records), sweep_metric(sweep)
    # MLflow folds a note after a few lines: what matters most comes first.
    lines = [f"**{len(rows)} of {len(distinct_trials(sweep))} trials are scored.** {choice(sweep, records)}".strip(), _menu(views)]
    if rows:
        cells = [(str(trials[row.trial.key]), _score(row.dev), _score(row.scores.get(metric))) for row in rows[:MAX_LINES]]
        lines.append(_table(("trial", "dev score", metric), cells))
        rest = f" The other {len(rows) - MAX_LINES} stand in `summary.csv`." if len(rows) > MAX_LINES else ""
        order = "best on dev first" if any(row.dev is not None for row in rows) else "highest first"
        lines.append(f"Scores × 100, {order}.{rest} Means over seeds and tests of significance stand in the report.")
    if sweep.about.strip():
        lines.append(markdown_text(sweep.about))
    lines.append(_sharing(sweep))
    if model:
        lines.append(f"Registered: {model}")
    lines.append(f"Artifacts: `{store}`")
    return "\n\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """A scored trial: its scores with their averages, and the dev score that chose its checkpoint."""

    trial: TrialRecord
    scores: dict[str, float]
    dev: float | None


def choice(sweep: SweepRecord, records: Mapping[str, Record]) -> str:
    """What dev chooses and what that is worth on the test sets, as a sentence; "" where dev chooses nothing."""
    cells = cells_by_dev(sweep, records)
    if not cells:
        return ""
    chosen, metric = cells[0], sweep_metric(sweep)
    value = mean_score(chosen, records, metric)
    test = "" if value is None else f" On the test sets it has {metric} {_score(value)}."
    return f"Best on dev: {markdown_text(chosen.told)}.{test}"


def choice_metrics(sweep: SweepRecord, records: Mapping[str, Record]) -> dict[str, float]:
    """For the sweep's own run: mean dev score of what dev chooses, and its mean test scores."""
    cells = cells_by_dev(sweep, records)
    if not cells:
        return {}
    names = sweep_scores(sweep)
    tests = {metric_name(name): value for name in names if (value := mean_score(cells[0], records, name)) is not None}
    return {name: shown(value) for name, value in ({DEV_SCORE: cells[0].dev} | tests).items()}


def mean_score(cell: DevCell, records: Mapping[str, Record], metric: str) -> float | None:
    """Mean of a main score or average over the trials of a cell; None where one of them lacks it."""
    found = [main_scores(records[trial.key]) for trial in cell.trials]
    values = [(averages(scores) | scores).get(metric) for scores in found]
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if len(present) == len(values) else None


def summary_rows(sweep: SweepRecord, records: Mapping[str, Record]) -> list[SummaryRow]:
    """The scored trials, best on dev first; those of which dev knows nothing follow, by the primary metric."""
    rows = []
    for trial in distinct_trials(sweep):
        if trial.key in records:
            scores = main_scores(records[trial.key])
            by = dev_score(trial, records)
            rows.append(SummaryRow(trial=trial, scores=averages(scores) | scores, dev=None if by is None else by[1]))
    metric = sweep_metric(sweep)
    lowest = float("-inf")
    return sorted(rows, key=lambda row: (lowest if row.dev is None else row.dev, row.scores.get(metric, lowest)), reverse=True)


def summary_csv(rows: Sequence[SummaryRow]) -> str:
    """One line a trial, for the artifact tab."""
    tasks = list(dict.fromkeys(task for row in rows for task in row.scores))
    lines: list[list[str]] = [["trial", "method", "seed", "fold", "dev_score", *tasks, "key"]]
    for row in rows:
        trial = row.trial
        cells = [trial.name, trial.method, _cell(trial.seed), _cell(trial.fold), _cell(row.dev)]
        lines.append([*cells, *(_cell(row.scores.get(task)) for task in tasks), trial.key])
    return csv_text(lines)


def sweep_metric(sweep: SweepRecord) -> str:
    """The test score that stands first: it is shown, and chooses nothing."""
    return primary_metric(_asked(sweep))


def order_metric(sweep: SweepRecord) -> str:
    """The metric that orders the trials of a sweep: the dev score where dev chooses, else the test score that stands first."""
    return DEV_SCORE if dev_chooses(sweep) else sweep_metric(sweep)


def sweep_scores(sweep: SweepRecord) -> tuple[str, ...]:
    """Averages and tasks under which the main scores of its trials stand, in the order of the recipe."""
    tasks = _asked(sweep)
    return (*averages(dict.fromkeys(tasks, 0.0)), *tasks)


def distinct_trials(sweep: SweepRecord) -> list[TrialRecord]:
    """One trial a key: two methods that come to the same stages are one run."""
    return list({trial.key: trial for trial in reversed(sweep.trials)}.values())[::-1]


def _asked(sweep: SweepRecord) -> list[str]:
    """The names under which the tasks of the recipe are scored."""
    evaluation = sweep.recipe["evaluation"]
    assert isinstance(evaluation, dict) and isinstance(evaluation["tasks"], list)
    names = task_names([str(task) for task in evaluation["tasks"]])
    return [name for task in names for name in (_own_names(sweep) if task == OWN else (named_task(task).name,))]


def _own_names(sweep: SweepRecord) -> tuple[str, ...]:
    corpus = sweep.recipe["corpus"]
    assert isinstance(corpus, dict)
    return own_test_names(str(corpus["file"]), cast(Shape, corpus["shape"]))


def _menu(links: Sequence[Link]) -> str:
    return " · ".join(map(str, links))


def _sharing(sweep: SweepRecord) -> str:
    mentions = sum(sweep.mentions.values())
    built = len(sweep.places)
    return (
        f"{built} stages stand for the {mentions} that the trials need; {mentions - built} are shared."
        if mentions > built
        else f"{counted(built, 'stage')}."
    )


def _list(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return "\n".join(f"- {line}" for line in [*lines[:MAX_LINES], *more])


def _score_table(record: Record) -> str:
    scores = main_scores(record)
    both = averages(scores) | scores
    return f"{_table(tuple(both), [tuple(map(_score, both.values()))])}\n\nScores × 100 on the test sets."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, first column to the left; en spaces keep the columns apart, for MLflow draws tables without padding."""
    spaced = [(row[0], *(f"&ensp;&ensp;{cell}" for cell in row[1:])) for row in (head, *rows)]
    return markdown_table(spaced[0], spaced[1:])


def _training_line(record: Record) -> str:
    results = record.results
    steps = f"Trained {results.get('num_steps')} steps in {record.seconds:.0f} s"
    stopped = " and stopped early" if results.get("stopped_early") else ""
    best = results.get(DEV_SCORE)
    chosen = f"; the weights of step {results.get('best_step')} were kept (dev score {_score(best)})" if isinstance(best, float) else ""
    return f"{steps}{stopped}{chosen}."


def _score(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _short(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
