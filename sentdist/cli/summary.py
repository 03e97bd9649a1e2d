"""Print progress, reports, results and next steps of a recipe, and write them to MLflow."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sentdist.cli.printing import KEY_LETTERS, empty_table, open_console, print_notes
from sentdist.errors import SentdistError, counted, duration
from sentdist.inference.opening import open_store
from sentdist.text import PrintLine

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.markdown import Markdown

    from sentdist.recipe.suggestions import PlannedSearch
    from sentdist.run.backend import BuiltPlan, FinishedSearch
    from sentdist.run.progress import Show, SweepProgress
    from sentdist.stages.context import Context
    from sentdist.store.store import ArtifactStore


MOST_ROWS = 8
BAR_WIDTH = 40


@contextmanager
def live_display() -> Iterator[tuple[PrintLine, Show | None]]:
    """Yield a function that prints a line, and one that shows a sweep's progress in place, which is None in a pipe or log."""
    console = open_console()
    if not console.is_terminal:
        yield typer.echo, None
        return

    from rich.live import Live

    with Live(console=console, transient=True, refresh_per_second=4) as live:

        def print_line(line: str) -> None:
            live.console.print(line, markup=False, highlight=False, soft_wrap=True)

        def show(progress: SweepProgress) -> None:
            live.update(progress_table(progress))

        yield print_line, show


def progress_table(progress: SweepProgress) -> RenderableType:
    """Return a progress bar of finished stages and the running stages."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2))
    left = progress.left or ("" if progress.num_finished == progress.total else "time left: known after the first training")
    bar = ProgressBar(total=1.0, completed=progress.share, width=BAR_WIDTH)
    head.add_row(f"{progress.num_finished} of {progress.total} stages", bar, f"{100 * progress.share:.0f} %", left)
    rows = Table.grid(padding=(0, 2))
    for running in list(progress.running.values())[:MOST_ROWS]:
        rows.add_row(Text(running.stage), running.said, duration(progress.now - running.since))
    others = len(progress.running) - MOST_ROWS
    return Group(head, rows, f"and {others} more") if others > 0 else Group(head, rows)


END = re.compile(r"^## (Details|Citations)$", re.MULTILINE)  # not printed, only in files
NOT_PRINTED = re.compile(r"^((## .*\n\n)?!\[.*\n\n.*|<sub>.*)$", re.MULTILINE)  # pictures with caption, notes on marks in tables


def terminal_page(markdown: str) -> Markdown:
    """Return the part of a Markdown report above its details, for a console."""
    from rich.markdown import Markdown

    return Markdown(NOT_PRINTED.sub("", END.split(markdown, maxsplit=1)[0]))


def print_space(planned: PlannedSearch, context: Context) -> None:
    """Print a search's space, and the number and size of trials of each method."""
    from sentdist.recipe.stage import topological
    from sentdist.store.searches import find_search

    search, console = planned.search, open_console()
    table = empty_table(f"{planned.recipe.name}: a search by {search.suggest}", "method", "trials", "fields", "values")
    for method in planned.methods:
        trials = planned.num_trials(method)
        fields = [(path, axis.line) for path, axis in planned.axes(method).items()] or [("–", "–")]
        table.add_row(method, "until the budget ends" if trials is None else str(trials), *fields[0])
        for path, values in fields[1:]:
            table.add_row("", "", path, values)
    console.print(table)
    if search.halving is not None:
        rungs = " and ".join(f"{100 * share:g} %" for share in search.shares)
        console.print(f"Trainings are compared after {rungs}; the best {100 * search.halving.keep:.0f} % go on.", highlight=False)
    for method in planned.methods:
        trainings = [stage for stage in topological((planned.train(method, planned.first(method)),)) if stage.kind == "train"]
        sentences = sum(stage.num_sentences(planned.rows) for stage in trainings)
        console.print(f"One trial of {method}: {sentences:,} sentences to train on.", highlight=False, soft_wrap=True)
    for note in planned.notes:
        console.print(note, highlight=False, soft_wrap=True)
    before = find_search(context.store, planned.recipe.name)
    if before is not None and before.identity == planned.identity:
        console.print(f"In the store: {counted(len(before.trials), 'trial')} of this search; it continues from there.", highlight=False)


def print_choice(found: FinishedSearch) -> None:
    """Print the settings chosen on dev for each method, and their cost."""
    from sentdist.recipe.suggestions import suggestion_text

    planned, record = found.planned, found.record
    table = empty_table(
        f"{record.name}: chosen on dev ({record.reason})", "method", "place", "settings", "dev", "time", "trials", "time of all"
    )
    trials = {trial.number: trial for trial in record.trials}
    for finalist in record.finalists:
        of_method = record.of_method(finalist.method)
        ended = [f"{sum(one.state == state for one in of_method)} {state}" for state in ("finished", "pruned", "failed")]
        table.add_row(
            planned.recipe.methods[finalist.method].title or finalist.method,
            str(finalist.place),
            suggestion_text(finalist.suggestion),
            f"{finalist.dev:.2f}",
            f"{trials[finalist.number].seconds:.0f} s",
            ", ".join(one for one in ended if not one.startswith("0 ")) if finalist.place == 1 else "",
            f"{sum(one.seconds for one in of_method):.0f} s" if finalist.place == 1 else "",
        )
    open_console().print(table)
    for method in planned.methods:
        if not any(finalist.method == method for finalist in record.finalists):
            typer.echo(f"{method}: no trial came to its end, so nothing is chosen, and it is not compared.")


def print_outcome(done: BuiltPlan, store: ArtifactStore) -> None:
    """Print the scores of a finished plan, and the choice of a search."""
    from sentdist.report.leaks import sweep_leaks
    from sentdist.report.tables import brief_table
    from sentdist.store.sweep import load_sweep

    if done.search is not None:
        print_choice(done.search)
    sweep = load_sweep(store, done.name)
    records = sweep.records(store)
    brief = brief_table(sweep, records, leaked=sweep_leaks(sweep, store, records).leaked)
    table = empty_table(f"{done.name}: main score × 100, mean ± standard deviation over seeds", *brief.columns)
    for row in brief.rows:
        table.add_row(*row)
    open_console().print(table)


def print_end(done: Sequence[BuiltPlan], context: Context) -> None:
    """Print next steps and an example of the gain; exit with code 1 if anything failed."""
    print_next(done[0].name, context.store)
    if not all(one.is_well for one in done):
        raise typer.Exit(1)


def print_next(name: str, store: ArtifactStore) -> None:
    """Print the choice on dev, its encoder, warnings (no gain, no test) and the next commands."""
    from sentdist.report.page_head import no_gain, no_tests
    from sentdist.store.sweep import cells_by_dev, load_sweep

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
    print_notes(worse, no_tests(sweep, records), err=False)
    if key is not None and not worse:
        short = key[:KEY_LETTERS]
        commands += [
            f'sentdist encode {short} --pairs "A dog runs." "A puppy is running."',
            f'sentdist search {short} "what you look for" --corpus SENTENCES.txt',
            f"sentdist export {short} --out my-encoder",
        ]
    where = "" if open_store(None).shown == store.shown else f" --store {shlex.quote(store.shown)}"
    print_notes("Next:" if commands else "", *(f"  {command}{where}" for command in commands), err=False)


def bring_to_mlflow(done: Sequence[BuiltPlan], store: ArtifactStore, tracking: str) -> None:
    """Write finished and failed trials to MLflow; an unreachable server costs a line, not the run."""
    from sentdist.tracking.tracker import rebuild

    try:
        for one in done:
            rebuild(store, tracking, one.name, failures={failure.key: failure.message for failure in one.summary.failures})
    except SentdistError as error:
        typer.echo(f"MLflow: {error} Later, `sentdist report --rebuild-mlflow` writes it there.", err=True)
        return
    if done[0].summary.is_reportable:
        publish_report(done[0].name, store, tracking)


def publish_report(name: str, store: ArtifactStore, tracking: str | None) -> None:
    """Write the report to the store and the tracker, and register the best encoder unless its gain over the untouched one is not shown."""
    from sentdist.report.page_head import gain_over_untouched
    from sentdist.report.sweep_report import keep_report
    from sentdist.store.sweep import load_sweep
    from sentdist.tracking.tracker import Tracker

    tracker = Tracker(tracking, store)
    with tempfile.TemporaryDirectory() as scratch:
        typer.echo(f"Report: {keep_report(store, name, Path(scratch))}")
        sweep = load_sweep(store, name)
        tracker.log_report(sweep, Path(scratch))
        gain = gain_over_untouched(sweep, store)
        model = tracker.register_best(sweep) if gain is None or gain.is_shown else None
    if tracker.trials_page:
        typer.echo(f"MLflow, trials best first: {tracker.trials_page}")
    if model:
        typer.echo(f"Registered, chosen on dev: {model} (@best)")
    elif tracking and gain is not None and not gain.is_shown:
        typer.echo(f"Not registered as @best: {gain.line}")
    print_notes(*(f"MLflow: {warning}" for warning in tracker.warnings))


INTERRUPTED = 130  # exit code, as shells have it


@contextmanager
def explain_interrupt(*, local: bool) -> Iterator[None]:
    """Turn Ctrl-C into a message on what is kept and how to continue. local: in this process, where trainings write no checkpoints."""
    try:
        yield
    except KeyboardInterrupt:
        unfinished = "an unfinished training starts over" if local else "unfinished trainings resume from their last checkpoints"
        typer.echo(f"Stopped. What is finished is kept: the same command continues from there; {unfinished}.")
        raise typer.Exit(INTERRUPTED) from None
