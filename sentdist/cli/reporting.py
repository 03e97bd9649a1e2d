"""Commands that tell what was built and found: report, explain, track."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.addresses import without_secrets
from sentdist.cli.completing import papers, sweeps
from sentdist.cli.options import StoreRoot, check_folder, made_folder
from sentdist.cli.printing import empty_table, open_console
from sentdist.cli.terminal_page import terminal_page
from sentdist.errors import DataError, counted, listed
from sentdist.inference.opening import open_store
from sentdist.plan.papers import PAPERS, check_paper

if TYPE_CHECKING:
    from sentdist.store.store import ArtifactStore


def report(
    sweep: Annotated[
        str | None, typer.Argument(help="The name of a sweep (the recipe's name).", show_default=False, autocompletion=sweeps)
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option("--paper", help=f"All tables of a paper, ours under theirs: {', '.join(PAPERS)}.", autocompletion=papers),
    ] = None,
    store: StoreRoot = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for report.md, report.html and figures.  [default: .sentdist/reports/NAME]")
    ] = None,
    tracking: Annotated[
        str | None, typer.Option("--uri", envvar="MLFLOW_TRACKING_URI", help="MLflow server that the report of a search links to.")
    ] = None,
) -> None:
    """Write the tables and figures of a sweep, or those of a paper.

    As Markdown and as one HTML file.
    """
    _check_one_of(sweep, paper, store)
    if out is not None:
        check_folder(out)
    if sweep is not None:
        opened = open_store(store)
        _check_started(opened, sweep)  # before what draws is loaded, which takes seconds

        from sentdist.report.sweep_report import report_sweep

        made = report_sweep(opened, sweep, links=_search_pages(opened, sweep, tracking))
    else:
        assert paper is not None
        check_paper(paper)

        from sentdist.report.paper_page import report_paper

        made = report_paper(open_store(store), paper)
    folder = out or Path(".sentdist") / "reports" / made.name
    page = made.write(made_folder(folder))
    console = open_console()
    for part in terminal_page(made.markdown, width=console.width):
        console.print(part, highlight=False)
    more = "" if sweep is None else ", with figures, details and citations"
    typer.echo(f"Written: {page} and {folder / 'report.md'}{more}")


def _check_one_of(sweep: str | None, paper: str | None, store: str | None) -> None:
    if (sweep is None) == (paper is None):
        found = "neither a sweep nor --paper" if sweep is None else f"{sweep} and --paper {paper}"
        raise DataError(
            where="sentdist report",
            found=found,
            expected="one of the two",
            remedy=_sweeps_there(open_store(store)) if sweep is None else "Leave one of them out.",
        )


def _check_started(store: ArtifactStore, name: str) -> None:
    """Refuse a name that is neither a sweep's nor a search's: StoreError."""
    from sentdist.store.searches import find_search
    from sentdist.store.sweep import load_sweep

    if find_search(store, name) is None:
        load_sweep(store, name)


def _sweeps_there(store: ArtifactStore) -> str:
    from sentdist.store.sweep import sweep_names

    names = sweep_names(store)
    return f"Name a sweep: {listed(names)}." if names else "Run `sentdist sweep RECIPE` first."


def _search_pages(store: ArtifactStore, name: str, tracking: str | None) -> dict[str, str]:
    """Pages of the tracker that show a search; none without a server, or of a sweep."""
    from sentdist.store.searches import find_search

    search = find_search(store, name) if tracking else None
    if search is None:
        return {}
    from sentdist.tracking.mlflow_tracker import make_tracker

    return make_tracker(tracking, store).search_pages(search)


def explain(
    first: Annotated[str, typer.Argument(help="The beginning of a key, or a place.", show_default=False)],
    second: Annotated[str, typer.Argument(help="The other one, named in the same way.", show_default=False)],
    store: StoreRoot = None,
) -> None:
    """Show the fields in which two stages differ."""
    from sentdist.store.differences import explained

    opened = open_store(store)
    one, other = opened.find(first), opened.find(second)
    differences = explained(one, other, opened.artifacts())
    if not differences:
        typer.echo(f"{one.record.shown_place} and {other.record.shown_place} are one stage.")
        return
    table = empty_table(None, "field", one.record.shown_place, other.record.shown_place)
    for difference in differences:
        table.add_row(difference.field, str(difference.first), str(difference.second))
    open_console().print(table)


def track(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Write what the store knows into MLflow; runs that are there stay as they are.")
    ] = False,
    sweep: Annotated[str | None, typer.Argument(help="Only this sweep.")] = None,
    store: StoreRoot = None,
    uri: Annotated[
        str, typer.Option("--uri", envvar="MLFLOW_TRACKING_URI", help="Address of the MLflow server.")
    ] = "http://127.0.0.1:5001",
) -> None:
    """Bring MLflow up to date from the records in the store.

    With --rebuild; without it nothing is done.
    """
    if not rebuild:
        typer.echo("Nothing done: `sentdist track --rebuild` writes the store's records into MLflow.", err=True)
        raise typer.Exit(2)
    from sentdist.tracking.rebuild import rebuild as rebuild_runs

    opened = open_store(store)
    if not (sweeps := rebuild_runs(opened, uri, sweep)):
        typer.echo(f"{opened.shown} has no sweep: nothing was written.")
        return
    for found in sweeps:
        typer.echo(
            f"{found.name}: {found.num_scored} of {counted(found.num_trials, 'trial')} with scores; "
            f"{counted(found.num_runs, 'run')} up to date"
        )
        if found.not_understood:
            typer.echo(
                f"Of another version, with fields that this one does not know, so runs without parameters: {listed(found.not_understood)}"
            )
    typer.echo(f"MLflow at {without_secrets(uri)} shows what is in {opened.shown}.")
