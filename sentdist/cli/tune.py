"""The command that finds the best encoder for a person's own file within a budget: tune."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.endings import bring_to_mlflow, publish_report
from sentdist.cli.options import DataRoot, StoreRoot
from sentdist.cli.own_data import (
    DataColumns,
    DataFile,
    DataShape,
    FileEncoding,
    HasHeader,
    TextLength,
    by_commas,
    corpus_fields,
    say_that_it_takes_a_while,
)
from sentdist.cli.train import print_trained
from sentdist.errors import DataError, RecipeError
from sentdist.inference.opening import open_store, store_root

if TYPE_CHECKING:
    from sentdist.execution.tuning import Tuning
    from sentdist.execution.workplaces import Workplace
    from sentdist.stages.planning.own_request import OwnRequest

METHODS = (
    "Only these, separated by commas: contrastive, symmetric, margin (triplets alone), rcl for pairs, FAQ and triplets; ranking (CoSENT), "
    "regression for graded pairs.  [default: all but rcl]"
)
INTERRUPTED = 130  # exit code, as shells have it
TimeBudget = Annotated[
    str,
    typer.Option("--budget", help="Time until the encoder is handed over, such as 30m or 2h. Of this call: what the store has is free."),
]
Encoders = Annotated[
    list[str] | None,
    typer.Option("--encoder", help="minilm-l6, a folder, or OWNER/NAME@COMMIT; repeated: each gets as many trials.  [default: minilm-l6]"),
]
MostTrials = Annotated[
    int | None,
    typer.Option("--trials", min=1, help="Trials of each method at most.  [default: until the budget ends]", show_default=False),
]
OnlyMethods = Annotated[str, typer.Option("--methods", help=METHODS)]
SearchName = Annotated[str | None, typer.Option("--name", help="Name of the search.  [default: tune-FILE]", show_default=False)]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for recipe, report and encoder.  [default: .sentdist/tuned/NAME]", show_default=False),
]
IsLocal = Annotated[bool, typer.Option("--local", help="In this process, without Ray.")]


def tune(
    file: DataFile,
    budget: TimeBudget = "30m",
    encoder: Encoders = None,
    trials: MostTrials = None,
    methods: OnlyMethods = "",
    shape: DataShape = None,
    columns: DataColumns = "",
    header: HasHeader = None,
    encoding: FileEncoding = None,
    max_length: TextLength = 128,
    name: SearchName = None,
    out: OutFolder = None,
    local: IsLocal = False,
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Find the best method and settings for data of your own.

    Begins with the training of `train`; then method, learning rate, batch size, epochs and temperature are searched on dev rows. What dev
    chose is trained with more seeds until the budget ends, and their average is handed over with its score on test rows. Ctrl-C hands
    over the best that is finished; the same command goes on.
    """
    began = time.time()
    from sentdist.api.training import can_show
    from sentdist.execution.tuning import Tuning
    from sentdist.plan.recipe import recipe_text
    from sentdist.plan.tune_recipe import hours_of, search_values
    from sentdist.stages.planning.own_request import own_request

    hours, encoders = hours_of(budget), encoder or ["minilm-l6"]
    say_that_it_takes_a_while(file)
    fields = corpus_fields(file, shape=shape, columns=columns, header=header, encoding=encoding)
    request = own_request(
        file, command="tune", fields=fields, encoders=encoders, data=data, name=name, hours=hours, trials=trials,
        methods=[one for one in by_commas(methods) if one], max_length=max_length,
    )  # fmt: skip
    folder = out or Path(".sentdist") / "tuned" / request.asked.recipe_name
    _check_folder(folder / "search.yaml", request.asked.file)
    end = began + 3600 * hours

    def print_line(line: str) -> None:
        minutes, seconds = divmod(max(0, round(end - time.time())), 60)
        typer.echo(f"{minutes}:{seconds:02} left  {line}")

    tracking = None if local else os.environ.get("MLFLOW_TRACKING_URI")
    tuning = Tuning(
        request, _workplace(local=local, tracking=tracking), store=store_root(store), data=data, print_line=print_line,
        tracking=tracking, budget_s=3600 * hours, began=began,
    )  # fmt: skip
    tuning.check()
    for line in (*request.pin.notes, *request.resolver.notes, can_show(request)):
        typer.echo(line)
    _write(folder / "search.yaml", f"# sentdist tune {file} --budget {budget}\n{recipe_text(search_values(request.asked))}")
    _connect(local=local)
    is_stopped = False
    try:
        tuning.run()
    except KeyboardInterrupt:
        is_stopped = True
        print_line("Stopped: the best that is finished is handed over. Ctrl-C again ends at once; the same command goes on from here.")
    _hand_over(tuning, request, folder, local=local, store=store, data=data)
    if is_stopped:
        raise typer.Exit(INTERRUPTED)


def _workplace(*, local: bool, tracking: str | None) -> Workplace:
    from sentdist.execution.workplaces import Cluster, ThisProcess

    return ThisProcess() if local else Cluster(tracking)


def _connect(*, local: bool) -> None:
    if local:
        from sentdist.execution.sigterm import end_on_sigterm

        end_on_sigterm()
    else:
        from sentdist.execution.cluster.connection import connect_to_drive

        connect_to_drive()


def _hand_over(tuning: Tuning, request: OwnRequest, folder: Path, *, local: bool, store: str | None, data: Path | None) -> None:
    """The encoder with its card and verdict, the report and the recipe, in files."""
    from sentdist.api.training import hand_over
    from sentdist.execution.build_recipe import BuiltPlan
    from sentdist.plan.recipe import recipe_text
    from sentdist.report.sweep_report import report_sweep

    trained = tuning.finished()
    if trained is None:
        typer.echo("Nothing is finished yet, so there is nothing to hand over; the same command goes on from here.")
        return
    found = hand_over(trained, request, folder, store=store, data=data)
    _write(
        folder / "recipe.yaml",
        f"# What sentdist tune hands over.\n{recipe_text(trained.plan.recipe.model_dump(mode='json', exclude_unset=True))}",
    )
    made = report_sweep(open_store(store), request.asked.recipe_name)
    if tracking := os.environ.get("MLFLOW_TRACKING_URI"):
        if local:
            bring_to_mlflow([BuiltPlan(plan=trained.plan, summary=trained.summary)], open_store(store), tracking)
        else:
            publish_report(request.asked.recipe_name, open_store(store), tracking)
    typer.echo("")
    typer.echo(f"Recipe: {folder / 'recipe.yaml'}, what was tried: {folder / 'search.yaml'}")
    typer.echo(f"Report: {made.write(folder / 'report')}")
    untouched = trained.untouched(request.asked.untouched_of(trained.settings.method)).scores.encoder
    print_trained(found, getattr(untouched, "checkpoint", "the untouched encoder"))


def _check_folder(path: Path, file: str) -> None:
    """Refuse to write over the recipe of another file's search, or over what no search has written."""
    from sentdist.plan.corpora.own import OwnSection
    from sentdist.plan.recipe import load_recipe

    if not path.exists():
        return
    try:
        corpus = load_recipe(path).corpus
        other = corpus.file if isinstance(corpus, OwnSection) else "a corpus of another kind"
    except RecipeError:
        other = "something that is no recipe"
    if other != file:
        raise DataError(
            where=str(path),
            found=f"a search of {other}",
            expected=f"no search here, or one of {file}",
            remedy="Name this one: --name NAME.",
        )


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(
            where=str(path), found=error.strerror or "no file", expected="a place that can be written", remedy="Name another: --out."
        ) from None
    return path
