"""Commands on recipes and sweeps: plan, sweep, submit, stop, report."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli import summary
from sentdist.cli.options import DataRoot, OutputFormat, Overrides, RecipeFile, StoreRoot, made_folder
from sentdist.cli.printing import empty_table, open_console, print_json, print_notes
from sentdist.cli.summary import INTERRUPTED, explain_interrupt, live_display, print_space, terminal_page
from sentdist.errors import RecipeError, counted, listed
from sentdist.files import drop_remedy, read_parquet
from sentdist.inference.opening import IN_A_JOB, open_store, store_root
from sentdist.recipe.shipped import PAPERS, check_paper
from sentdist.text import without_secrets, write_csv

if TYPE_CHECKING:
    from rich.table import Table

    from sentdist.recipe.suggestions import PlannedSearch
    from sentdist.recipe.unroll import Plan
    from sentdist.run.backend import Backend, BuiltPlan
    from sentdist.stages.context import Context
    from sentdist.store.garbage import Forecast
    from sentdist.store.store import ArtifactStore

DEFAULT_SERVER = "http://127.0.0.1:5001"


def plan(
    recipe: RecipeFile,
    overrides: Overrides = None,
    leaks: Annotated[bool, typer.Option("--leaks", help="Build the corpora, and count the test items in them.")] = False,
    output: OutputFormat = "table",
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Show what a recipe will build.

    Lists finished and missing stages and the work left; --format json also lists every trial. Writes the JSON schema that the recipe's
    first line names for editors.
    """
    from sentdist.recipe.schema import keep_schema_of
    from sentdist.recipe.unroll import Plan
    from sentdist.store.garbage import forecast, plan_facts

    is_json = output == "json"
    unrolled, context = _planned(recipe, overrides or [], store, data, is_quiet=is_json)
    if recipe.is_file():  # not a shipped recipe given by name
        keep_schema_of(recipe)
    if not isinstance(unrolled, Plan):
        if is_json or leaks:
            raise RecipeError(
                where="--format json" if is_json else "--leaks", found=f"{recipe}, a recipe with search",
                expected="a recipe whose trials are known before it runs", remedy="Leave it out: a search chooses its trials as it runs.",
            )  # fmt: skip
        print_space(unrolled, context)
        return
    ahead = forecast(unrolled, context.store)
    if is_json:
        print_json(plan_facts(unrolled, ahead))
        return
    console = open_console()
    console.print(_stage_table(unrolled, ahead))
    mentions, distinct = (sum(getattr(kind, name) for kind in ahead.kinds) for name in ("mentions", "distinct"))
    console.print(f"Trials mention {mentions} stages, {distinct} differ: sharing saves {ahead.saved}.")
    console.print(ahead.work_left, highlight=False)
    if fresh := unrolled.recipe.confirm_seeds:
        chosen = f"Then the cell chosen on dev and the baseline are trained with {counted(fresh, 'fresh seed')} (confirm_seeds)"
        console.print(f"{chosen}: not counted above.", markup=False, highlight=False)
    if leaks:
        _print_leaks(unrolled, context)


def _stage_table(unrolled: Plan, ahead: Forecast) -> Table:
    """A row for each kind of stage: how many there are, how many are built, and their sentences."""
    title = f"{unrolled.recipe.name}: {counted(len(unrolled.trials), 'trial')}"
    table = empty_table(title, "stage", "mentioned", "distinct", "in the store", "to build", "sentences")
    for kind in ahead.kinds:
        cells = (kind.mentions, kind.distinct, kind.finished, kind.missing, kind.sentences)
        table.add_row(kind.kind, *(f"{cell:,}" if cell else "–" for cell in cells))
    return table


def _print_leaks(unrolled: Plan, context: Context) -> None:
    """Count test items in the training data, print a table, and list the items in .sentdist/leaks/NAME.csv."""
    context.store.check_writable()

    from sentdist.recipe.evaluation import overlaps_of
    from sentdist.report.leaks import LEAKS_HEADER, LEAKS_NOTE, LEVEL_TITLES, leak_rows
    from sentdist.stages.local import build_here
    from sentdist.stages.text_stages import ITEMS, build_overlaps

    table = empty_table(f"{unrolled.recipe.name}: test items in training data", *LEAKS_HEADER)
    path = made_folder(Path(".sentdist") / "leaks") / f"{unrolled.recipe.name}.csv"
    with path.open("w", newline="", encoding="utf-8") as sheet:
        write_csv(sheet, [["training data", "task", "item", "level", "one", "other", "train_one", "train_other"]])
        for corpus in {corpus.key: corpus for overlap in overlaps_of(unrolled) for corpus in overlap.inputs}.values():
            build_here(corpus, context)
        for found in build_overlaps(unrolled, context):
            for row in leak_rows(found.record):
                table.add_row(*row)
            folder = context.store.folder(found, ITEMS)
            items = read_parquet(folder / ITEMS, remedy=drop_remedy(folder)).to_pylist()
            named = (item | {"level": LEVEL_TITLES.get(item["level"], item["level"])} for item in items)
            write_csv(sheet, ([found.record.label, *item.values()] for item in named))
    console = open_console()
    console.print(table)
    console.print(LEAKS_NOTE, highlight=False)
    typer.echo(f"All items: {path}")


def sweep(
    recipe: RecipeFile,
    overrides: Overrides = None,
    no_grid: Annotated[bool, typer.Option("--no-grid", help="Without the recipe's section sweep, and without a report.")] = False,
    local: Annotated[
        bool, typer.Option("--local", help="In this process, without Ray: one stage after another, with the same results.")
    ] = False,
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Build all trials of a recipe.

    On a Ray cluster, with a report and the best encoder registered in MLflow; or with --local in this process.
    """
    grid = ["sweep={}"] if no_grid else []
    # Before torch and Ray are loaded, so that mistakes are reported at once.
    asked, context = _planned(recipe, [*(overrides or []), *grid], store, data)
    with explain_interrupt(local=local):
        if local:
            build_within(asked, context, data)
        else:
            build_on_cluster(asked, context, data, reports=not no_grid)


def submit(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Submit a sweep to the cluster as a Ray job.

    With the store and data of SENTDIST_STORE and SENTDIST_DATA. Prints its output and ends with its exit code. Ctrl-C ends the output
    only; `sentdist stop` ends the sweep.
    """
    from sentdist.recipe.recipe import Recipe
    from sentdist.recipe.unroll import check_takes_effect
    from sentdist.run.jobs import follow, job_environment, submit_sweep, use_servers_of

    loaded = Recipe.load(recipe, overrides or [])  # it is planned on the cluster, with its data and store
    check_takes_effect(loaded, overrides or [])
    use_servers_of(Path.cwd(), os.environ)
    job = submit_sweep(job_command(recipe, overrides or []), loaded.name, job_environment(os.environ))
    typer.echo(f"Submitted as job {job.id}. Ctrl-C ends this output only; `sentdist stop {loaded.name}` ends the sweep.")
    try:
        raise typer.Exit(follow(job, typer.echo))
    except KeyboardInterrupt:
        typer.echo(f"The sweep goes on: `ray job logs --follow {job.id}` shows it, `sentdist stop {loaded.name}` ends it.")
        raise typer.Exit(INTERRUPTED) from None


def stop(
    sweep: Annotated[str | None, typer.Argument(help="Name of the sweep, that of its recipe.", show_default=False)] = None,
    all_sweeps: Annotated[bool, typer.Option("--all", help="All sweeps of the cluster.")] = False,
) -> None:
    """Stop a sweep on a cluster.

    Ends the stages that only this sweep needs, even if its driver is gone; finished stages are kept.
    Submitted again, trainings resume from their last checkpoints.
    """
    if (sweep is None) != all_sweeps:
        raise RecipeError(
            where="sentdist stop", found="no sweep" if sweep is None else f"{sweep} and --all", expected="one of them",
            remedy="Name a sweep, or use --all.",
        )  # fmt: skip

    from sentdist.run.client import stop_sweeps
    from sentdist.run.connection import check_auth_mode, connect

    check_auth_mode()
    connect()
    for stopped, num_ended in stop_sweeps(sweep).items():
        ended = counted(num_ended, "unfinished stage")
        typer.echo(f"{stopped}: stopped, with {ended} that nothing else needs. What is finished is kept.")


def job_command(recipe: Path, overrides: list[str]) -> str:
    """Return the module and arguments with which a job of the cluster drives the sweep.

    A job runs in a copy of the folder that it is submitted from, without .sentdist/ and with another parent folder.
    """
    stays = recipe.expanduser().absolute() if {".sentdist", "..", "~"} & {*recipe.parts} else recipe
    return shlex.join(("rayjobs.sweep", str(stays), *(word for override in overrides for word in ("--set", override))))


def _planned(
    recipe: Path, overrides: list[str], store: str | None, data: Path | None, *, is_quiet: bool = False
) -> tuple[Plan | PlannedSearch, Context]:
    """The plan of a recipe, or its search. is_quiet: print notes on stderr."""
    from sentdist.recipe.recipe import Recipe
    from sentdist.recipe.unroll import Plan, check_takes_effect
    from sentdist.stages.planned import requested

    loaded = Recipe.load(recipe, overrides)
    check_takes_effect(loaded, overrides)
    asked, context = requested(loaded, store=store_root(store), data=data)
    print_notes(*(asked.notes if isinstance(asked, Plan) else ()), err=is_quiet)
    return asked, context


def build_within(asked: Plan | PlannedSearch, context: Context, data: Path | None) -> None:
    """Build in this process and print the results. data: the data root, also for confirmations."""
    from sentdist.machine import end_on_sigterm
    from sentdist.run.backend import LocalBackend
    from sentdist.tracking.server import check_address

    end_on_sigterm()
    tracking = os.environ.get("MLFLOW_TRACKING_URI")
    if tracking:
        try:
            check_address(tracking)
        except RecipeError as error:
            typer.echo(f"MLflow is not used: {error}", err=True)
            tracking = None
    done = _built(asked, context, data, LocalBackend(), tracking=tracking)
    if tracking:
        summary.bring_to_mlflow(done, context.store, tracking)
    summary.print_end(done, context)


def _built(
    asked: Plan | PlannedSearch, context: Context, data: Path | None, workplace: Backend, *, tracking: str | None
) -> list[BuiltPlan]:
    """Run `build_recipe`, with progress and tables of results."""
    from sentdist.run.backend import build_recipe

    done = []
    for one in build_recipe(asked, context, data, workplace, print_line=typer.echo, display=live_display, tracking=tracking):
        summary.print_outcome(one, context.store)
        done.append(one)
    return done


def build_on_cluster(asked: Plan | PlannedSearch, context: Context, data: Path | None, *, reports: bool) -> None:
    """Build on the cluster, driven by this process: a job of the cluster, or a machine that sees the same files as its nodes.

    reports: write a report, and register the best encoder in MLflow.
    """
    from sentdist.run.backend import RayBackend
    from sentdist.run.connection import connect_to_drive

    if IN_A_JOB not in os.environ and "SLURM_JOB_ID" not in os.environ:
        typer.echo("This process drives the sweep; `sentdist submit` has the cluster drive it.")
    tracking = os.environ.get("MLFLOW_TRACKING_URI")
    connect_to_drive()
    done = _built(asked, context, data, RayBackend(tracking), tracking=tracking)
    if reports and done[0].summary.is_reportable:
        summary.publish_report(done[0].name, context.store, tracking)
    summary.print_end(done, context)


def report(
    sweep: Annotated[str | None, typer.Argument(help="The name of a sweep (the recipe's name).", show_default=False)] = None,
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

    Tables and figures, as Markdown and one HTML file.
    """
    opened = open_store(store)
    if rebuild:
        _rebuild(opened, os.environ.get("MLFLOW_TRACKING_URI", DEFAULT_SERVER), sweep)
        return
    if (sweep is None) == (paper is None):
        raise RecipeError(
            where="sentdist report", found="both a sweep and --paper" if paper else "neither a sweep nor --paper",
            expected="one of the two", remedy="`sentdist list sweeps` lists the sweeps.",
        )  # fmt: skip
    if sweep is not None:
        from sentdist.report.sweep_report import report_sweep

        made = report_sweep(opened, sweep)
    else:
        assert paper is not None, "checked above"
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

    for found in rebuild(store, server, sweep):
        scored = f"{found.num_scored} of {counted(found.num_trials, 'trial')} with scores"
        typer.echo(f"{found.name}: {scored}; {counted(found.num_runs, 'run')} up to date")
        if found.not_understood:
            typer.echo(f"Written by another version, with unknown fields, hence runs without parameters: {listed(found.not_understood)}")
    typer.echo(f"MLflow at {without_secrets(server)} is up to date with {store.shown}.")
