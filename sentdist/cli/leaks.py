"""The command that looks for test items in training data: leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentdist.cli.options import DataRoot, Overrides, RecipeFile, StoreRoot, made_folder, named_file
from sentdist.cli.printing import empty_table, open_console
from sentdist.inference.opening import store_root
from sentdist.reading import drop_remedy, read_parquet
from sentdist.table_text import write_csv


def leaks(
    recipe: RecipeFile,
    overrides: Overrides = None,
    store: StoreRoot = None,
    data: DataRoot = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="CSV of all items found.  [default: .sentdist/leaks/NAME.csv]", show_default=False)
    ] = None,
) -> None:
    """Count what a recipe's training data hold of its test sets.

    Whole items as written, folded or nearly, and sentences alone.

    Builds the corpora that the store lacks, and keeps what it finds there: reports of the recipe's sweep then mark the scores concerned.
    """
    from sentdist.stages.planning.planned import planned

    plan, context = planned(recipe, overrides=overrides or [], store=store_root(store), data=data)
    context.store.check_writable()

    from sentdist.plan.leaks import overlaps_of
    from sentdist.report.leaks import LEAKS_HEADER, LEAKS_NOTE, LEVEL_TITLES, leak_rows
    from sentdist.stages.local import build_here
    from sentdist.stages.overlaps import ITEMS, build_overlaps

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
