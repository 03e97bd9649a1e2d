"""The command report: the page of a sweep or a paper, and MLflow's runs from the records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import StoreRoot, check_folder, made_folder, sweeps
from sentdist.cli.printing import open_console
from sentdist.cli.summary import terminal_page
from sentdist.errors import DataError, counted, listed
from sentdist.inference.opening import open_store
from sentdist.recipe.shipped import PAPERS, check_paper
from sentdist.text import without_secrets

if TYPE_CHECKING:
    from sentdist.store.store import ArtifactStore

DEFAULT_SERVER = "http://127.0.0.1:5001"


def report(
    sweep: Annotated[
        str | None, typer.Argument(help="The name of a sweep (the recipe's name).", show_default=False, autocompletion=sweeps)
    ] = None,
    paper: Annotated[str | None, typer.Option("--paper", help=f"All tables of a paper, with ours below: {', '.join(PAPERS)}.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for report.md, report.html and figures.  [default: .sentdist/reports/NAME]")
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild-mlflow", help="Instead: write the runs of this sweep, or of all, into MLflow; existing runs are kept."),
    ] = False,
    store: StoreRoot = None,
) -> None:
    """Write the report of a sweep or a paper.

    Tables and figures, as Markdown and one HTML file. The report of a search links to MLflow's pages if MLFLOW_TRACKING_URI names a server.
    """
    opened, server = open_store(store), os.environ.get("MLFLOW_TRACKING_URI")
    if rebuild:
        _rebuild(opened, server or DEFAULT_SERVER, sweep)
        return
    if (sweep is None) == (paper is None):
        raise DataError(
            where="sentdist report", found="neither a sweep nor --paper" if sweep is None else f"{sweep} and --paper {paper}",
            expected="one of the two", remedy=_sweeps_there(opened) if sweep is None else "Leave one of them out.",
        )  # fmt: skip
    if out is not None:
        check_folder(out)
    if sweep is not None:
        _check_started(opened, sweep)  # before plotting is imported, which takes seconds

        from sentdist.report.sweep_report import report_sweep

        made = report_sweep(opened, sweep)
    else:
        assert paper is not None
        check_paper(paper)

        from sentdist.report.paper_page import report_paper

        made = report_paper(opened, paper)
    folder = out or Path(".sentdist") / "reports" / made.name
    page = made.write(made_folder(folder))
    open_console().print(terminal_page(made.markdown), highlight=False)
    more = "" if sweep is None else ", with figures, details and citations"
    typer.echo(f"Written: {page} and {folder / 'report.md'}{more}")


def _rebuild(store: ArtifactStore, server: str, sweep: str | None) -> None:
    from sentdist.tracking.tracker import rebuild

    if not (written := rebuild(store, server, sweep)):
        typer.echo(f"{store.shown} has no sweep: nothing was written.")
        return
    for found in written:
        typer.echo(
            f"{found.name}: {found.num_scored} of {counted(found.num_trials, 'trial')} with scores; "
            f"{counted(found.num_runs, 'run')} up to date"
        )
        if found.not_understood:
            typer.echo(f"Written by another version, with unknown fields, hence runs without parameters: {listed(found.not_understood)}")
    typer.echo(f"MLflow at {without_secrets(server)} is up to date with {store.shown}.")


def _check_started(store: ArtifactStore, name: str) -> None:
    """Raise StoreError unless it names a sweep or a search."""
    from sentdist.store.searches import find_search
    from sentdist.store.sweep import load_sweep

    if find_search(store, name) is None:
        load_sweep(store, name)


def _sweeps_there(store: ArtifactStore) -> str:
    from sentdist.store.sweep import sweep_names

    names = sweep_names(store)
    return f"Name a sweep: {listed(names)}." if names else "Run `sentdist sweep RECIPE` first."
