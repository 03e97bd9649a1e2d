"""Commands that train encoders on user files: train, tune."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from sentdist.cli.options import StoreRoot, by_commas, made_folder
from sentdist.cli.printing import print_notes
from sentdist.cli.summary import INTERRUPTED, bring_to_mlflow, explain_interrupt, publish_report
from sentdist.errors import DataError
from sentdist.inference.opening import data_root, open_store, parse_encoder, store_root

if TYPE_CHECKING:
    from sentdist.api.recipes import TrainedEncoder
    from sentdist.recipe.stage import Json
    from sentdist.run.tune import Tuning
    from sentdist.stages.planned import OwnRequest


START_KEYS = "ENCODER?key=value&… with keys revision, pooling, max_length (tokens of a text, by default 128)"
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Pairs, triplets, graded pairs or FAQ: a file, a folder of its parts, or hub:OWNER/NAME@COMMIT.",
        show_default=False,
    ),
]
DataColumns = Annotated[
    str,
    typer.Option(
        "--columns",
        help="anchor=COLUMN,positive=COLUMN; also negative (several times), score, group, split.  [default: by usual names]",
        show_default=False,
    ),
]
FileEncoding = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of the text, such as cp1252.  [default: UTF-8]", show_default=False)
]


def corpus_fields(*, columns: str, encoding: str | None) -> dict[str, Json]:
    """Return the options on the file as fields of a recipe's corpus; raise DataError for columns without a role."""
    from sentdist.recipe.specs import Role

    named: dict[str, list[Json]] = {}
    for one in by_commas(columns):
        role, equals, column = one.partition("=")
        if not equals or role not in get_args(Role):
            expected = f"ROLE=COLUMN with one of {', '.join(get_args(Role))}"
            raise DataError(where="--columns", found=one, expected=expected, remedy="Write anchor=COLUMN,positive=COLUMN.")
        named.setdefault(role, []).append(column)
    fields: dict[str, Json] = {"columns": {role: found if found[1:] else found[0] for role, found in named.items()}, "encoding": encoding}
    return {name: value for name, value in fields.items() if value}


def train(
    file: DataFile,
    encoder: Annotated[str, typer.Option("--encoder", help=f"To start from; {START_KEYS}.")] = "minilm-l6",
    columns: DataColumns = "",
    encoding: FileEncoding = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the encoder.  [default: .sentdist/trained/NAME]", show_default=False)
    ] = None,
    store: StoreRoot = None,
) -> None:
    """Train an encoder once on your own data.

    One training in this process, with default settings for the shape of the rows. Rows are held out by group for test; the last lines say
    whether the encoder is better on them than the untouched one. `tune` also tries other settings.
    """
    from sentdist.api.recipes import trained_here
    from sentdist.stages.planned import own_request

    data, fields = data_root(None), corpus_fields(columns=columns, encoding=encoding)
    request = own_request(file, command="train", fields=fields, encoders=[parse_encoder(encoder)], data=data)
    with explain_interrupt(local=True):
        found = trained_here(request, out=out, store=store, data=data, print_line=typer.echo)
    _print_trained(found, encoder)


def _print_trained(found: TrainedEncoder, start: str) -> None:
    """Print the verdict and how to use the encoder."""
    typer.echo(f"\n{found.verdict.line}")
    if found.verdict.outcome == "better":
        typer.echo(f"Encoder: {found.folder}, with its card. To use it: sentdist search, or SentenceTransformer(folder) in Python.")
    else:
        typer.echo(f"Keep {start}. The trained encoder is in {found.folder}.")


METHODS = (
    "Only these, separated by commas: contrastive, symmetric, margin (triplets only), rcl for pairs, FAQ and triplets; ranking (CoSENT), "
    "regression for graded pairs.  [default: all but rcl]"
)


def tune(
    file: DataFile,
    budget: Annotated[
        str,
        typer.Option("--budget", help="Time until the encoder is written, such as 30m or 2h; for this call, stages in the store are free."),
    ] = "30m",
    encoder: Annotated[
        list[str] | None,
        typer.Option("--encoder", help=f"To start from; {START_KEYS}; repeated: each gets as many trials.  [default: minilm-l6]"),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, help="Maximum trials of each method.  [default: until the budget ends]", show_default=False),
    ] = None,
    methods: Annotated[str, typer.Option("--methods", help=METHODS)] = "",
    columns: DataColumns = "",
    encoding: FileEncoding = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the search.  [default: tune-FILE]", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for recipe, report and encoder.  [default: .sentdist/tuned/NAME]", show_default=False),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="In this process, without Ray.")] = False,
    store: StoreRoot = None,
) -> None:
    """Find the best method and settings for your own data.

    Starts with the training of `train`, then searches method, learning rate, batch size, epochs and temperature on dev rows. The choice is
    trained with more seeds until the budget ends; the average of their weights is written, with its score on test rows. Ctrl-C writes the
    best finished encoder; the same command continues the search.
    """
    began = time.monotonic()
    from sentdist.api.recipes import can_show
    from sentdist.machine import end_on_sigterm
    from sentdist.recipe.recipe import recipe_text
    from sentdist.recipe.tune_recipe import hours_of, search_values
    from sentdist.run.backend import LocalBackend, RayBackend
    from sentdist.run.tune import Tuning
    from sentdist.stages.planned import own_request

    hours, encoders = hours_of(budget), [parse_encoder(one) for one in encoder or ["minilm-l6"]]
    data, fields = data_root(None), corpus_fields(columns=columns, encoding=encoding)
    request = own_request(
        file, command="tune", fields=fields, encoders=encoders, data=data, name=name, hours=hours, trials=trials, methods=by_commas(methods)
    )
    folder = out or Path(".sentdist") / "tuned" / request.asked.recipe_name
    search = folder / "search.yaml"
    if search.exists() and not search.read_text(encoding="utf-8").startswith(f"# sentdist tune {file} "):
        raise DataError(where=str(search), found="another search", expected=f"no search here, or one of {file}", remedy="Use --name NAME.")
    end = began + 3600 * hours

    def print_line(line: str) -> None:
        minutes, seconds = divmod(max(0, round(end - time.monotonic())), 60)
        typer.echo(f"{minutes}:{seconds:02} left  {line}")

    tracking = None if local else os.environ.get("MLFLOW_TRACKING_URI")
    tuning = Tuning(
        request, LocalBackend() if local else RayBackend(tracking), store=store_root(store), data=data, print_line=print_line,
        tracking=tracking, budget_s=3600 * hours, began=began,
    )  # fmt: skip
    tuning.check()
    print_notes(*request.pin.notes, *request.resolver.notes, can_show(request), err=False)
    made_folder(folder)
    search.write_text(f"# sentdist tune {file} --budget {budget}\n{recipe_text(search_values(request.asked))}", encoding="utf-8")
    if local:
        end_on_sigterm()
    else:
        from sentdist.run.connection import connect_to_drive

        connect_to_drive()
    is_stopped = False
    try:
        tuning.run()
    except KeyboardInterrupt:
        is_stopped = True
        print_line("Stopped: the best finished encoder is written. Ctrl-C again ends at once; the same command continues from here.")
    _hand_over(tuning, request, folder, local=local, store=store, data=data)
    if is_stopped:
        raise typer.Exit(INTERRUPTED)


def _hand_over(tuning: Tuning, request: OwnRequest, folder: Path, *, local: bool, store: str | None, data: Path | None) -> None:
    """Write the encoder with its card, the report and the recipe, and print the verdict."""
    from sentdist.api.recipes import hand_over
    from sentdist.recipe.recipe import recipe_text
    from sentdist.report.sweep_report import report_sweep
    from sentdist.run.backend import BuiltPlan

    trained, opened = tuning.finished(), open_store(store)
    if trained is None:
        typer.echo("Nothing is finished yet, so nothing is written; the same command continues from here.")
        return
    found = hand_over(trained, request, folder, store=store, data=data)
    choice, values = folder / "recipe.yaml", trained.plan.recipe.model_dump(mode="json", exclude_unset=True)
    choice.write_text(f"# The choice of sentdist tune.\n{recipe_text(values)}", encoding="utf-8")
    made = report_sweep(opened, request.asked.recipe_name)
    if tracking := os.environ.get("MLFLOW_TRACKING_URI"):
        if local:
            bring_to_mlflow([BuiltPlan(plan=trained.plan, summary=trained.summary)], opened, tracking)
        else:
            publish_report(request.asked.recipe_name, opened, tracking)
    typer.echo(f"\nRecipe: {choice}, search: {folder / 'search.yaml'}")
    typer.echo(f"Report: {made.write(folder / 'report')}")
    untouched = trained.untouched(request.asked.untouched_of(trained.settings.method)).scores.encoder
    _print_trained(found, getattr(untouched, "checkpoint", "the untouched encoder"))
