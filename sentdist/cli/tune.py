"""The command that finds the best encoder for a person's own file within a budget: tune."""

from __future__ import annotations

import csv
import re
import unicodedata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from sentdist.cli.building import carry_out, job_command
from sentdist.cli.options import DataRoot, StoreRoot, check_choice
from sentdist.cli.printing import KEY_LETTERS, store_option
from sentdist.encoder_export import card_of, export_encoder
from sentdist.errors import DataError, RecipeError
from sentdist.inference.opening import encoder_use, open_store, store_root
from sentdist.table_files import suffix_of

if TYPE_CHECKING:
    from sentdist.plan.stage import Json
    from sentdist.plan.suggestions import PlannedSearch
    from sentdist.stages.planning.resolve import FileResolver
    from sentdist.store.store import ArtifactStore

METHODS = (
    "Only these, separated by commas: contrastive, symmetric, margin (triplets alone), rcl for pairs, FAQ and triplets; ranking (CoSENT), "
    "regression for graded pairs.  [default: all but rcl]"
)


QUICK_BYTES = 1 << 18  # of a file that is looked through in a few seconds
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Pairs, triplets, graded pairs or FAQ: a file, a folder of its parts, or hub:OWNER/NAME@COMMIT.",
        show_default=False,
    ),
]
TimeBudget = Annotated[
    str,
    typer.Option(
        "--budget",
        help="Time for trials and for the trainings of what dev chose, such as 30m or 2h. The trainings are forecast by the speed of the "
        "trials: on a machine that slows down they take longer. The very first trial may take half the budget more. Starting and writing "
        "the report take some seconds on top.",
    ),
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
DataShape = Annotated[
    str | None, typer.Option("--shape", help="pairs, triplets, graded or faq.  [default: recognised]", show_default=False)
]
DataColumns = Annotated[
    str,
    typer.Option(
        "--columns", help="Columns of the texts, then of the score, separated by commas.  [default: recognised]", show_default=False
    ),
]
HasHeader = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line names the columns.  [default: recognised]", show_default=False),
]
FileEncoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Encoding of the text, such as cp1251 or mac-roman.  [default: recognised]", show_default=False),
]
TextLength = Annotated[int, typer.Option("--max-length", min=3, help="Tokens of a text.")]
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

    Dev and test are held out by group; learning rate, batch size, temperature and method are searched on dev until the budget ends. What
    dev chose is trained with six seeds, or as many as the budget has time for, and scored on test. Ctrl-C keeps all that is finished;
    the same command goes on.
    """
    from sentdist.plan.corpora.own import own_section
    from sentdist.plan.recipe import recipe_from_values, recipe_text
    from sentdist.plan.tune_recipe import TuneRequest, hours_of, tuning_values
    from sentdist.stages.planning.planned import planned_search
    from sentdist.stages.planning.resolve import FileResolver

    hours = hours_of(budget)
    _check_words(shape, name)
    place, revision = _place_of(file)
    _check_header(header, place)
    given = _fields_of_file(shape=shape, revision=revision, columns=_by_commas(columns), header=header, encoding=encoding)
    resolver = FileResolver(data_root=data, needs_hub=True)
    _tell_of_a_while(place)
    pin = resolver.own(own_section({"kind": "own", "file": place, **given}, where="DATA"), where="DATA")
    encoders = [_split_commit(one) for one in encoder or ["minilm-l6"]]
    request = TuneRequest(
        name=name or _as_name(f"tune-{Path(place).name.partition('.')[0]}"), file=place, shape=pin.rows.shape, num_rows=pin.num_rows,
        num_apart=pin.num_apart, corpus=given,
        encoders=encoders, poolings=_poolings(encoders, resolver), hours=hours, trials=trials,
        methods=[one for one in _by_commas(methods) if one],
        max_length=max_length,
    )  # fmt: skip
    values = tuning_values(request)
    recipe = recipe_from_values(values, where=f"sentdist tune {file}")
    folder = out or Path(".sentdist") / "tuned" / recipe.name
    _check_folder(folder / "recipe.yaml", place)
    asked, context = planned_search(recipe, store=store_root(store), data=data)  # what is wrong is reported before a file is written
    path = _write(folder / "recipe.yaml", f"# sentdist tune {file} --budget {budget}\n{recipe_text(values)}")
    typer.echo(f"Recipe: {path}")
    _warn_of_another(asked, context.store)
    carry_out(asked, context, data, local=local, job=job_command("sweep", path, store=store, data=data))
    _print_winner(recipe.name, open_store(store), folder, store)


def _tell_of_a_while(place: str) -> None:
    """Say what is done with a file of many rows, of which the look for texts that are alike takes longer than a person waits."""
    path = Path(place)
    files = [path] if path.is_file() else [*path.iterdir()] if path.is_dir() else []
    if sum(file.stat().st_size for file in files if file.is_file()) > QUICK_BYTES:
        typer.echo(f"Looking through {Path(place).name} for texts that are alike, which are held out together.", err=True)


def _check_words(shape: str | None, name: str | None) -> None:
    """Refuse a shape that there is not, and a name that no recipe may have."""
    from sentdist.frozen import NAME
    from sentdist.plan.specs import Shape

    if shape is not None:
        check_choice("--shape", shape, get_args(Shape))
    if name is not None and not re.fullmatch(NAME, name):
        raise RecipeError(
            where="--name", found=name, expected="small letters, digits, - and _", remedy=f"Say --name {_as_name(name) or 'mine'}."
        )


def _place_of(file: str) -> tuple[str, str | None]:
    """Where the data are, as a recipe in another folder names them, and the commit of what the hub has."""
    if file.startswith("hub:"):
        return _split_commit(file)
    path = Path(file).expanduser()
    return (str(path.absolute()) if path.exists() else file), None


def _check_header(header: bool | None, place: str) -> None:
    """Refuse what only separated values have, where there are none."""
    from sentdist.data.sources.separated import MAY_BE_SEPARATED

    if header is not None and not Path(place).is_dir() and suffix_of(PurePath(place)) not in MAY_BE_SEPARATED:
        raise DataError(
            where="--header" if header else "--no-header",
            found=f"{Path(place).name}, whose columns have names",
            expected=f"one of {', '.join(MAY_BE_SEPARATED)}",
            remedy="It has no effect: leave it out.",
        )


def _fields_of_file(
    *, shape: str | None, revision: str | None, columns: list[str], header: bool | None, encoding: str | None
) -> dict[str, Json]:
    """What a person said of the file, as fields of the corpus; the rest is recognised."""
    fields: dict[str, Json] = {"shape": shape, "revision": revision, "columns": [*columns] or None, "header": header, "encoding": encoding}
    return {name: value for name, value in fields.items() if value is not None}


def _by_commas(given: str) -> list[str]:
    """What commas separate; in quotation marks they stand in a name."""
    return [one.strip() for one in next(csv.reader([given], skipinitialspace=True))] if given else []


def _poolings(encoders: list[tuple[str, str | None]], resolver: FileResolver) -> dict[str, str]:
    """The poolings of those encoders that declare another than the mean. EncoderError for an encoder that is not there."""
    found = {}
    for checkpoint, commit in encoders:
        resolver.encoder(checkpoint, revision=commit, where="--encoder")
        if (pooling := resolver.declared_pooling(checkpoint, revision=commit)) not in (None, "mean"):
            found[checkpoint] = str(pooling)
    return found


def _warn_of_another(asked: PlannedSearch, store: ArtifactStore) -> None:
    """Say so where the store has another search of that name."""
    from sentdist.store.searches import find_search

    name = asked.recipe.name
    before = find_search(store, name)
    if before is not None and before.identity != asked.identity:
        typer.echo(
            f"An earlier search {name}, of other data or options, gives way to this one in recipe and report; its trainings are kept. "
            "--name NAME keeps both."
        )


def _print_winner(name: str, opened: ArtifactStore, folder: Path, store: str | None) -> None:
    """Who won, by how much and how certainly; the report and the encoder with its card, in files."""
    from sentdist.report.sweep_ending import no_gain
    from sentdist.report.sweep_report import report_sweep
    from sentdist.store.chosen import challengers
    from sentdist.store.sweep import load_sweep

    made = report_sweep(opened, name)
    page = made.write(folder / "report")
    sweep = load_sweep(opened, name)
    records = sweep.records(opened)
    cells = challengers(sweep, records)
    typer.echo("")
    typer.echo(made.lead)
    if made.rests_on:
        typer.echo(made.rests_on)
    typer.echo(f"Report: {page}")
    if not cells:
        typer.echo("No training came to its end within the budget: with a larger one the same command goes on from here.")
        return

    trained = opened.find(str(cells[0].best.train), kind="train")
    target = folder / f"encoder-{trained.key[:KEY_LETTERS]}"
    if not target.exists():
        use = encoder_use(str(opened.folder(trained)), store, revision=None, pooling=None, max_length=None, precision="fp32")
        export_encoder(use, target, opened)
    _write(target / "README.md", card_of(trained, opened, name=target.name))  # scores may have come since
    push = f"`sentdist push {trained.key[:KEY_LETTERS]} OWNER/NAME{store_option(opened)}` shows what the hub would get."
    typer.echo(f"Encoder: {target}, with its card; {'it is no better than the untouched one.' if no_gain(sweep, records) else push}")


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


def _as_name(text: str) -> str:
    """The nearest name that a recipe may have."""
    from sentdist.frozen import MOST_LETTERS

    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()  # ü is u
    return re.sub("[^a-z0-9_-]+", "-", plain)[:MOST_LETTERS].strip("-_")


def _split_commit(name: str) -> tuple[str, str | None]:
    """A name and the commit behind its @."""
    plain, _, commit = name.partition("@") if "/" in name and not Path(name).exists() else (name, "", "")
    return plain, commit or None


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(
            where=str(path), found=error.strerror or "no file", expected="a place that can be written", remedy="Name another: --out."
        ) from None
    return path
