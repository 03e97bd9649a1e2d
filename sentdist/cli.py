"""The command line: what each command is called, what it takes, and how its answer is printed."""

# Everything heavier than typer is imported inside the commands: `sentdist --help` and `sentdist plan` must not wait for torch or Ray.

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sentdist.errors import SentdistError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sentdist.plan.unroll import Plan
    from sentdist.stages.context import Context
    from sentdist.store.store import ArtifactStore

DEFAULT_STORE = ".sentdist/store"
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it for what `ray job submit` starts


class _Commands(TyperGroup):
    """Tells a SentdistError in one sentence and ends with exit code 2; `--debug` shows where it came from."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SentdistError as error:
            if ctx.params.get("debug"):
                raise
            _console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train sentence encoders on Ray: recipes in, shared stages, honest comparisons out.",
)
store_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at and tidy the artifact store.")
bank_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Banks of embeddings in the object store of a Ray cluster.")
app.add_typer(store_app, name="store")
app.add_typer(bank_app, name="bank")

RecipeFile = Annotated[Path, typer.Argument(help="A recipe, such as rayjobs/recipes/demo.yaml.", show_default=False)]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a field of the recipe; may be repeated.")]
StoreRoot = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="SENTDIST_STORE", help=f"Where artifacts are kept: a folder, s3:// or gs://.  [default: {DEFAULT_STORE}]"
    ),
]
DataRoot = Annotated[Path | None, typer.Option("--data", envvar="SENTDIST_DATA", help="Folder of the data sets.")]


@app.callback()
def main(debug: Annotated[bool, typer.Option("--debug", help="Show a traceback for errors.")] = False) -> None: ...


@app.command()
def plan(
    recipe: RecipeFile,
    overrides: Overrides = None,
    store: StoreRoot = None,
    data: DataRoot = None,
    trials: Annotated[bool, typer.Option("--trials", help="Also list every trial.")] = False,
) -> None:
    """Show what a recipe comes to: what is in the store, what will be built, how much work that is."""
    from sentdist.store.forecast import forecast

    unrolled, context = _unrolled(recipe, overrides, store, data)
    ahead = forecast(unrolled, context.store)
    console = _console()
    table = _table(
        f"{unrolled.recipe.name}: {len(unrolled.trials)} trials", "stage", "mentioned", "distinct", "in the store", "to build", "sentences"
    )
    for kind in ahead.kinds:
        cells = (kind.mentions, kind.distinct, kind.finished, kind.missing, kind.sentences)
        table.add_row(kind.kind, *(f"{cell:,}" if cell else "–" for cell in cells))
    console.print(table)
    mentions, distinct = (sum(getattr(kind, name) for kind in ahead.kinds) for name in ("mentions", "distinct"))
    console.print(f"Trials mention {mentions} stages, {distinct} differ: sharing spares {ahead.saved}.")
    console.print(ahead.work_left, highlight=False)
    if trials:
        for trial in unrolled.trials:
            mark = "in the store" if trial.key in ahead.finished else "to build"
            console.print(f"{trial.scores.place}  {trial.name}  ({mark})", markup=False, highlight=False, soft_wrap=True)


@app.command()
def run(
    recipe: RecipeFile,
    overrides: Overrides = None,
    store: StoreRoot = None,
    data: DataRoot = None,
    local: Annotated[bool, typer.Option("--local", help="In this process, without Ray: for debugging.")] = False,
) -> None:
    """Build what a recipe needs without its grid (as `--set sweep={}`): on a Ray cluster, or with --local in this process."""
    overrides = [*(overrides or []), "sweep={}"]
    if not local:
        _on_cluster("run", recipe, overrides, store, data)
        return
    unrolled, context = _unrolled(recipe, overrides, store, data)  # before torch is loaded: a mistake is told at once
    context.store.check_writable()

    from sentdist.execution.local_lines import local_listener
    from sentdist.stages.local import run_local
    from sentdist.store.sweep import save_sweep, sweep_record

    save_sweep(context.store, sweep_record(unrolled))
    run_local(unrolled, context, listen=local_listener(typer.echo))
    _print_scores(unrolled.recipe.name, context.store)


@app.command()
def sweep(recipe: RecipeFile, overrides: Overrides = None, store: StoreRoot = None, data: DataRoot = None) -> None:
    """Run all trials of a recipe on a Ray cluster, write the report, register the best encoder in MLflow."""
    _on_cluster("sweep", recipe, overrides, store, data)


@app.command()
def evaluate(
    encoder: Annotated[
        str, typer.Argument(help="A folder, a packaged name (minilm-l6), a hub id, or the key of a train artifact.", show_default=False)
    ],
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", help="Tasks or groups; may be repeated.  [default: sts]", show_default=False)
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Commit of a hub checkpoint.")] = None,
    pooling: Annotated[str, typer.Option(help="mean, cls, cls_mlp, cls_mlp_train_only or first_last.")] = "mean",
    max_length: Annotated[int | None, typer.Option(help="Tokens; the encoder's own limit if left out.")] = None,
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Score any encoder, ours or not."""
    from sentdist.plan.unroll import evaluation_of
    from sentdist.stages.resolve import FileResolver

    opened = _store(store)
    checkpoint = _encoder_folder(encoder, opened)
    resolver = FileResolver(data_root=data)
    stage = evaluation_of(
        checkpoint, revision=revision, pooling=pooling, tasks=tuple(tasks or ["sts"]), max_length=max_length, resolver=resolver
    )

    from sentdist.stages.context import Context
    from sentdist.stages.local import build_here

    context = Context(store=opened, data_root=None if data is None else str(data), folders=tuple(resolver.folders.items()))
    artifact = build_here(stage, context)
    table = _table(encoder, "task", "score × 100")
    for task in stage.tasks:
        table.add_row(task.name, _number(artifact.record.results[task.name]))
    scores = [float(value) for task in stage.tasks if isinstance(value := artifact.record.results[task.name], int | float)]
    table.add_row("average", _number(sum(scores) / len(scores)) if scores else "–")
    _console().print(table)
    typer.echo(f"All measures and items: {opened.folder(artifact)}")


@app.command()
def report(
    sweep: Annotated[str, typer.Argument(help="The name of a sweep (the recipe's name).", show_default=False)],
    store: StoreRoot = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for report.md, report.html and figures.")] = None,
) -> None:
    """Write the tables and figures of a sweep as Markdown and HTML."""
    from sentdist.report.sweep_report import report_sweep

    made = report_sweep(_store(store), sweep)
    folder = out or Path(".sentdist") / "reports" / sweep
    page = made.write(folder)
    typer.echo(made.markdown)
    typer.echo(f"Written: {page} and {folder / 'report.md'}")


@app.command()
def explain(
    first: Annotated[str, typer.Argument(help="The beginning of a key, or a place.", show_default=False)],
    second: Annotated[str, typer.Argument(show_default=False)],
    store: StoreRoot = None,
) -> None:
    """Show the fields in which two stages differ."""
    opened = _store(store)
    one, other = opened.find(first), opened.find(second)
    differences = opened.explain(one, other)
    if not differences:
        typer.echo(f"{one.record.place} and {other.record.place} are one stage.")
        return
    table = _table(None, "field", one.record.place, other.record.place)
    for difference in differences:
        table.add_row(difference.field, str(difference.first), str(difference.second))
    _console().print(table)


@app.command()
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
    """Bring MLflow up to date from the records in the store."""
    if not rebuild:
        typer.echo("Nothing done: `sentdist track --rebuild` writes the store's records into MLflow.")
        raise typer.Exit(1)
    from sentdist.tracking.rebuild import rebuild as rebuild_runs

    for found in rebuild_runs(_store(store), uri, sweep):
        typer.echo(f"{found.name}: {found.num_scored} of {found.num_trials} trials have scores; {found.num_runs} runs are up to date")
    typer.echo(f"MLflow at {uri} shows what is in {_root(store)}.")


@app.command()
def doctor(store: StoreRoot = None, data: DataRoot = None) -> None:
    """Check this machine: versions, compiler, ports, data, store, Ray and MLflow."""
    from sentdist.execution.health import examine

    console, sound = _console(), True
    for finding in examine(_root(store), data):
        sound = sound and finding.state != "bad"
        mark = {"good": "[green]ok[/]  ", "note": "[yellow]note[/]", "bad": "[red]bad[/] "}[finding.state]
        console.print(f"{mark}  {finding.subject:<22}", end="")
        console.print(finding.text, markup=False, highlight=False, soft_wrap=True)
    if not sound:
        raise typer.Exit(1)


@store_app.command("list")
def store_list(kind: Annotated[str | None, typer.Argument(help="corpus, train, bank or scores.")] = None, store: StoreRoot = None) -> None:
    """List the artifacts with their size and the time they took."""
    for artifact in _store(store).artifacts(kind):  # no table: a narrow terminal would break the keys
        record = artifact.record
        megabytes = sum(record.files.values()) / 1e6
        typer.echo(f"{record.created_at}  {record.seconds:9.1f} s  {megabytes:9.1f} MB  {record.place}")


@store_app.command("show")
def store_show(key: Annotated[str, typer.Argument(help="The beginning of a key, or a place.")], store: StoreRoot = None) -> None:
    """Print the record of an artifact."""
    artifact = _store(store).find(key)
    typer.echo(artifact.record.model_dump_json(indent=2))
    typer.echo(artifact.uri)


@store_app.command("gc")
def store_gc(
    older_than_hours: Annotated[float, typer.Option(min=0.0, help="Leave alone what was touched since.")] = 1.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list.")] = False,
    store: StoreRoot = None,
) -> None:
    """Remove folders that hold data but no record: what crashed writers left."""
    opened = _store(store)
    seconds = older_than_hours * 3600
    places = opened.orphans(older_than_s=seconds) if dry_run else opened.collect_garbage(older_than_s=seconds)
    for place in places:
        typer.echo(place)
    typer.echo(f"{len(places)} orphan{'' if len(places) == 1 else 's'} {'found' if dry_run else 'removed'}.")


@bank_app.command("list")
def bank_list() -> None:
    """List the banks that the cluster holds in memory."""
    from sentdist.execution.bank_owner import list_banks
    from sentdist.execution.run import connect

    connect()
    table = _table("banks in the object store", "bank", "key", "sentences", "width", "dtype", "MB", "shards", "on disk", "idle s", "nodes")
    for bank in list_banks():
        sizes = (f"{bank.num_sentences:,}", str(bank.width), bank.dtype, f"{bank.num_bytes / 1e6:.1f}", str(bank.num_shards))
        table.add_row(bank.label, bank.key, *sizes, str(bank.num_spilled), f"{bank.idle_s:.0f}", ", ".join(bank.nodes))
    _console().print(table)


@bank_app.command("drop")
def bank_drop(name: Annotated[str, typer.Argument(help="Label or beginning of the key, as `sentdist bank list` shows them.")]) -> None:
    """Free a bank's memory; its artifact stays in the store, and the next training that needs it loads it again."""
    from sentdist.execution.bank_owner import drop_bank
    from sentdist.execution.run import connect

    connect()
    typer.echo(f"{drop_bank(name).label} dropped.")


def _unrolled(recipe: Path, overrides: list[str] | None, store: str | None, data: Path | None) -> tuple[Plan, Context]:
    from sentdist.stages.planned import planned

    return planned(recipe, overrides=overrides or [], store=_root(store), data=data)


def _root(store: str | None) -> str:
    """Where artifacts are kept if nobody said; a job's working directory is a copy that Ray throws away, so there it is the home folder."""
    default = Path.home() / DEFAULT_STORE if IN_A_JOB in os.environ else Path(DEFAULT_STORE)
    return store or str(default.absolute())


def _store(store: str | None) -> ArtifactStore:
    from sentdist.store.store import ArtifactStore

    root = _root(store)
    return ArtifactStore(root if "://" in root else str(Path(root).absolute()))


def _encoder_folder(encoder: str, store: ArtifactStore) -> str:
    """A key of a train artifact becomes its folder; all else is a checkpoint as it stands."""
    is_key = len(encoder) >= 6 and all(letter in "0123456789abcdef" for letter in encoder) and not Path(encoder).exists()
    return str(store.folder(store.find(encoder))) if is_key or encoder.startswith("train/") else encoder


def _on_cluster(command: str, recipe: Path, overrides: list[str] | None, store: str | None, data: Path | None) -> None:
    """Drive a recipe from this process: as a job of the cluster, or from a machine that sees the same files as its nodes."""
    plan, context = _unrolled(recipe, overrides, store, data)  # before Ray is loaded: a mistake is told at once

    from sentdist.execution.run import run_recipe

    if IN_A_JOB not in os.environ:
        options = "".join(f" --set '{override}'" for override in overrides or [] if override != "sweep={}")
        typer.echo(f"To let the cluster drive it: ray job submit --working-dir . -- python -m rayjobs.{command} {recipe}{options}")
    tracking = os.environ.get("MLFLOW_TRACKING_URI")
    summary = run_recipe(recipe, overrides=overrides or [], store=_root(store), data=data, tracking=tracking, speak=typer.echo)
    _print_scores(plan.recipe.name, context.store)
    if command == "sweep" and len(summary.failures) < summary.num_trials:
        _publish_report(plan.recipe.name, context.store, tracking)
    if summary.failures:
        raise typer.Exit(1)


def _print_scores(name: str, store: ArtifactStore) -> None:
    from sentdist.report.brief import brief_table
    from sentdist.store.sweep import load_sweep

    sweep = load_sweep(store, name)
    brief = brief_table(sweep, sweep.records(store))
    table = _table(f"{name}: main score × 100, mean ± standard deviation", *brief.columns)
    for row in brief.rows:
        table.add_row(*row)
    _console().print(table)


def _publish_report(name: str, store: ArtifactStore, tracking: str | None) -> None:
    """Write the report beside the artifacts, tell the tracker of it and of the best encoder."""
    from sentdist.report.sweep_report import report_sweep
    from sentdist.store.sweep import load_sweep
    from sentdist.tracking.mlflow_tracker import make_tracker

    with tempfile.TemporaryDirectory() as scratch:
        report_sweep(store, name).write(Path(scratch))
        typer.echo(f"Report: {store.write_folder(Path(scratch), f'reports/{name}')}/report.html")
        tracker, sweep = make_tracker(tracking, store), load_sweep(store, name)
        tracker.log_report(sweep, Path(scratch))
        model = tracker.register_best(sweep)
    if model:
        typer.echo(f"Best encoder, registered: {model}")
    for warning in tracker.warnings:
        typer.echo(f"MLflow: {warning}", err=True)


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _table(title: str | None, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", min_width=len(title or "") + 2)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    return table


if __name__ == "__main__":
    app()
