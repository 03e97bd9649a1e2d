"""Commands that train encoders on user files: train, tune."""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from sentdist.cli.options import StoreRoot
from sentdist.cli.summary import INTERRUPTED, bring_to_mlflow, explain_interrupt, publish_report
from sentdist.errors import DataError, RecipeError
from sentdist.inference.encoder_value import parse_encoder
from sentdist.inference.opening import open_store, store_root

if TYPE_CHECKING:
    from sentdist.api.recipes import TrainedEncoder
    from sentdist.recipe.stage import Json
    from sentdist.run.backend import Backend
    from sentdist.run.tune import Tuning
    from sentdist.stages.planning.planned import OwnRequest


START_KEYS = "ENCODER?key=value&… with keys revision, pooling, max_length (tokens of a text, by default 128)"
QUICK_BYTES = 1 << 18  # of files that are checked in a few seconds
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


def say_that_it_takes_a_while(file: str) -> None:
    """Print that a large file is searched for similar texts, which takes a while."""
    path = Path(file).expanduser()
    files = [path] if path.is_file() else [*path.iterdir()] if path.is_dir() else []
    if sum(one.stat().st_size for one in files if one.is_file()) > QUICK_BYTES:
        typer.echo(f"Searching {path.name} for similar texts, which are held out together.", err=True)


def by_commas(given: str) -> list[str]:
    """Split at commas, except within quotation marks."""
    return [one.strip() for one in next(csv.reader([given], skipinitialspace=True))] if given else []


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
    from sentdist.inference.arguments import given_data
    from sentdist.stages.planning.planned import own_request

    say_that_it_takes_a_while(file)
    data = given_data(None)
    fields = corpus_fields(columns=columns, encoding=encoding)
    request = own_request(file, command="train", fields=fields, encoders=[parse_encoder(encoder)], data=data)
    with explain_interrupt(local=True):
        found = trained_here(request, out=out, store=store, data=data, print_line=typer.echo)
    print_trained(found, encoder)


def print_trained(found: TrainedEncoder, start: str) -> None:
    """Print the verdict and how to use the encoder."""
    typer.echo("")
    typer.echo(found.verdict.line)
    if found.verdict.outcome == "better":
        typer.echo(f"Encoder: {found.folder}, with its card. To use it: sentdist search, or SentenceTransformer(folder) in Python.")
    else:
        typer.echo(f"Keep {start}. The trained encoder is in {found.folder}.")


METHODS = (
    "Only these, separated by commas: contrastive, symmetric, margin (triplets only), rcl for pairs, FAQ and triplets; ranking (CoSENT), "
    "regression for graded pairs.  [default: all but rcl]"
)
TimeBudget = Annotated[
    str, typer.Option("--budget", help="Time until the encoder is written, such as 30m or 2h; for this call, stages in the store are free.")
]
Encoders = Annotated[
    list[str] | None,
    typer.Option("--encoder", help=f"To start from; {START_KEYS}; repeated: each gets as many trials.  [default: minilm-l6]"),
]
MostTrials = Annotated[
    int | None, typer.Option("--trials", min=1, help="Maximum trials of each method.  [default: until the budget ends]", show_default=False)
]
OnlyMethods = Annotated[str, typer.Option("--methods", help=METHODS)]
SearchName = Annotated[str | None, typer.Option("--name", help="Name of the search.  [default: tune-FILE]", show_default=False)]
OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder for recipe, report and encoder.  [default: .sentdist/tuned/NAME]", show_default=False)
]
IsLocal = Annotated[bool, typer.Option("--local", help="In this process, without Ray.")]


def tune(
    file: DataFile,
    budget: TimeBudget = "30m",
    encoder: Encoders = None,
    trials: MostTrials = None,
    methods: OnlyMethods = "",
    columns: DataColumns = "",
    encoding: FileEncoding = None,
    name: SearchName = None,
    out: OutFolder = None,
    local: IsLocal = False,
    store: StoreRoot = None,
) -> None:
    """Find the best method and settings for your own data.

    Starts with the training of `train`, then searches method, learning rate, batch size, epochs and temperature on dev rows. The choice is
    trained with more seeds until the budget ends; the average of their weights is written, with its score on test rows. Ctrl-C writes the
    best finished encoder; the same command continues the search.
    """
    began = time.monotonic()
    from sentdist.api.recipes import can_show
    from sentdist.inference.arguments import given_data
    from sentdist.recipe.recipe import recipe_text
    from sentdist.recipe.tune_recipe import hours_of, search_values
    from sentdist.run.tune import Tuning
    from sentdist.stages.planning.planned import own_request

    hours, encoders = hours_of(budget), [parse_encoder(one) for one in encoder or ["minilm-l6"]]
    say_that_it_takes_a_while(file)
    data = given_data(None)
    fields = corpus_fields(columns=columns, encoding=encoding)
    request = own_request(
        file, command="tune", fields=fields, encoders=encoders, data=data, name=name, hours=hours, trials=trials,
        methods=[one for one in by_commas(methods) if one],
    )  # fmt: skip
    folder = out or Path(".sentdist") / "tuned" / request.asked.recipe_name
    _check_folder(folder / "search.yaml", request.asked.file)
    end = began + 3600 * hours

    def print_line(line: str) -> None:
        minutes, seconds = divmod(max(0, round(end - time.monotonic())), 60)
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
        print_line("Stopped: the best finished encoder is written. Ctrl-C again ends at once; the same command continues from here.")
    _hand_over(tuning, request, folder, local=local, store=store, data=data)
    if is_stopped:
        raise typer.Exit(INTERRUPTED)


def _workplace(*, local: bool, tracking: str | None) -> Backend:
    from sentdist.run.backend import LocalBackend, RayBackend

    return LocalBackend() if local else RayBackend(tracking)


def _connect(*, local: bool) -> None:
    if local:
        from sentdist.machine import end_on_sigterm

        end_on_sigterm()
    else:
        from sentdist.run.cluster.connection import connect_to_drive

        connect_to_drive()


def _hand_over(tuning: Tuning, request: OwnRequest, folder: Path, *, local: bool, store: str | None, data: Path | None) -> None:
    """Write the encoder with its card, the report and the recipe, and print the verdict."""
    from sentdist.api.recipes import hand_over
    from sentdist.recipe.recipe import recipe_text
    from sentdist.report.sweep_report import report_sweep
    from sentdist.run.backend import BuiltPlan

    trained = tuning.finished()
    if trained is None:
        typer.echo("Nothing is finished yet, so nothing is written; the same command continues from here.")
        return
    found = hand_over(trained, request, folder, store=store, data=data)
    _write(
        folder / "recipe.yaml",
        f"# The choice of sentdist tune.\n{recipe_text(trained.plan.recipe.model_dump(mode='json', exclude_unset=True))}",
    )
    made = report_sweep(open_store(store), request.asked.recipe_name)
    if tracking := os.environ.get("MLFLOW_TRACKING_URI"):
        if local:
            bring_to_mlflow([BuiltPlan(plan=trained.plan, summary=trained.summary)], open_store(store), tracking)
        else:
            publish_report(request.asked.recipe_name, open_store(store), tracking)
    typer.echo("")
    typer.echo(f"Recipe: {folder / 'recipe.yaml'}, search: {folder / 'search.yaml'}")
    typer.echo(f"Report: {made.write(folder / 'report')}")
    untouched = trained.untouched(request.asked.untouched_of(trained.settings.method)).scores.encoder
    print_trained(found, getattr(untouched, "checkpoint", "the untouched encoder"))


def _check_folder(path: Path, file: str) -> None:
    """Raise DataError if the path holds the search of another file, or no search."""
    from sentdist.recipe.corpora.own import OwnSection
    from sentdist.recipe.recipe import load_recipe

    if not path.exists():
        return
    try:
        corpus = load_recipe(path).corpus
        other = corpus.file if isinstance(corpus, OwnSection) else "a corpus of another kind"
    except RecipeError:
        other = "a file that is no recipe"
    if other != file:
        raise DataError(
            where=str(path), found=f"a search of {other}", expected=f"no search here, or one of {file}",
            remedy="Name this one: --name NAME.",
        )  # fmt: skip


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(
            where=str(path), found=error.strerror or "no file", expected="a writable path", remedy="Name another: --out."
        ) from None
    return path
