"""What is printed once a recipe has been carried out: scores, what to type next, and what an MLflow server is given."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sentdist.cli.printing import KEY_LETTERS, empty_table, open_console, store_option
from sentdist.cli.searches import print_choice
from sentdist.errors import SentdistError

if TYPE_CHECKING:
    from sentdist.execution.build_recipe import BuiltPlan
    from sentdist.stages.context import Context
    from sentdist.store.store import ArtifactStore

MOST_SEARCHED = 1000  # texts that are embedded twice to show hits: seconds on a laptop's CPU
NUM_HITS = 3


def print_outcome(done: BuiltPlan, store: ArtifactStore) -> None:
    """The scores of a plan that has been built, and of a search what dev chose."""
    if done.search is not None:
        print_choice(done.search)
    _print_scores(done.name, store)


def _print_scores(name: str, store: ArtifactStore) -> None:
    from sentdist.report.brief_table import brief_table
    from sentdist.report.leaks import sweep_leaks
    from sentdist.store.sweep import load_sweep

    sweep = load_sweep(store, name)
    records = sweep.records(store)
    brief = brief_table(sweep, records, leaked=sweep_leaks(sweep, store, records).leaked)
    table = empty_table(f"{name}: main score × 100, mean ± standard deviation over seeds", *brief.columns)
    for row in brief.rows:
        table.add_row(*row)
    open_console().print(table)


def print_end(done: Sequence[BuiltPlan], context: Context) -> None:
    """How to go on, and what training has changed; exit code 1 if anything has failed."""
    print_next(done[0].name, context.store)
    print_hits(done[0].name, context)
    if not all(one.is_well for one in done):
        raise typer.Exit(1)


def print_next(name: str, store: ArtifactStore) -> None:
    """What dev chose, where its encoder lies, whether training has helped and anything is tested, and what to type next."""
    from sentdist.report.sweep_ending import no_gain, no_tests
    from sentdist.store.chosen import cells_by_dev
    from sentdist.store.sweep import load_sweep

    sweep = load_sweep(store, name)
    records = sweep.records(store)
    cells = cells_by_dev(sweep, records)
    keys = {trial.train for trial in sweep.trials if trial.train in records and trial.key in records}
    key = cells[0].best.train if cells else keys.pop() if len(keys) == 1 else None
    worse = no_gain(sweep, records)
    if cells:
        typer.echo(f"Best on dev: {cells[0].line}.")
    commands = [f"sentdist report {name}"] if any(trial.key in records for trial in sweep.trials) else []
    if key is not None:
        found = store.at(sweep.places[key])
        assert found is not None, "its record was read"
        typer.echo(f"Encoder: {found.uri}")
    for said in (worse, no_tests(sweep, records)):
        if said:
            typer.echo(said)
    if key is not None and not worse:
        short = key[:KEY_LETTERS]
        commands += [
            f'sentdist similarity {short} "A dog runs." "A puppy is running."',
            f'sentdist search {short} "what you look for" --corpus SENTENCES.txt',
            f"sentdist export {short} --to my-encoder",
        ]
    where = store_option(store)
    for number, command in enumerate(commands):
        typer.echo(f"  {command}{where}" if number else f"Next:\n  {command}{where}")


def print_hits(name: str, context: Context) -> None:
    """The texts nearest to one test query before and after training, if the gain is shown and a small collection was searched.

    The first query whose nearest text is relevant after training and was not before: an example, no evidence.
    """
    from sentdist.plan.stages import Scores
    from sentdist.report.sweep_ending import gain_over_untouched
    from sentdist.store.restored import restored
    from sentdist.store.sweep import load_sweep

    sweep = load_sweep(context.store, name)
    gain = gain_over_untouched(sweep, context.store)
    if gain is None or not gain.is_shown:
        return

    from sentdist.stages.scores.shown_hits import shown_hits

    trials = {gain.untouched.cell: gain.untouched, gain.chosen.label: gain.chosen.best}
    records = sweep.records(context.store)
    stages = {label: stage for label, trial in trials.items() if isinstance(stage := restored(trial.key, records), Scores)}
    hits = shown_hits(stages, context, num_hits=NUM_HITS, most_documents=MOST_SEARCHED)
    if hits is not None:
        typer.echo(f"An example of {hits.task}, nearest first, * is a right answer: {hits.query}")
        for label, found in hits.found.items():
            typer.echo(f"  {label}")
            for text, is_relevant in found:
                typer.echo(f"    {'*' if is_relevant else ' '} {text}")


def bring_to_mlflow(done: Sequence[BuiltPlan], store: ArtifactStore, tracking: str) -> None:
    """Write what this process has built, and what failed, into MLflow; a server that is away costs a line, not the run."""
    from sentdist.tracking.rebuild import rebuild

    try:
        for one in done:
            rebuild(store, tracking, one.name, failures={failure.key: failure.message for failure in one.summary.failures})
    except SentdistError as error:
        typer.echo(f"MLflow: {error} `sentdist track --rebuild` brings it there later.", err=True)
        return
    if done[0].summary.is_reportable:
        publish_report(done[0].name, store, tracking)


def publish_report(name: str, store: ArtifactStore, tracking: str | None) -> None:
    """Write the report beside the artifacts, tell the tracker of it and of the best encoder, unless it is not shown to be better than the
    untouched one of the same sweep."""
    from sentdist.report.kept_report import keep_report
    from sentdist.report.sweep_ending import gain_over_untouched
    from sentdist.store.searches import find_search
    from sentdist.store.sweep import load_sweep
    from sentdist.tracking.mlflow_tracker import make_tracker

    tracker, search = make_tracker(tracking, store), find_search(store, name)
    pages = tracker.log_search(search) if search is not None else {}
    with tempfile.TemporaryDirectory() as scratch:
        typer.echo(f"Report: {keep_report(store, name, Path(scratch), links=pages)}")
        sweep = load_sweep(store, name)
        tracker.log_report(sweep, Path(scratch))
        gain = gain_over_untouched(sweep, store)
        model = tracker.register_best(sweep) if gain is None or gain.is_shown else None
    if tracker.trials_page:
        typer.echo(f"MLflow, trials best first: {tracker.trials_page}")
    for title, page in pages.items():
        typer.echo(f"MLflow, {title}: {page}")
    if model:
        typer.echo(f"Registered, as dev chose: {model} (@best)")
    elif tracking and gain is not None and not gain.is_shown:
        typer.echo(f"Not registered as @best: {gain.line}")
    for warning in tracker.warnings:
        typer.echo(f"MLflow: {warning}", err=True)
