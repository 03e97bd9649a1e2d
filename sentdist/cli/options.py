"""Arguments and options shared by commands: declarations, shell completion and checks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from sentdist.errors import DataError, first_line
from sentdist.inference.encoder_value import ENCODER_KEYS
from sentdist.inference.opening import DEFAULT_STORE
from sentdist.recipe.shipped import shipped_recipes


def recipes(incomplete: str) -> list[str]:
    """Complete recipes: shipped ones by name and path, and YAML files and folders."""
    files = shipped_recipes()
    shipped = (*(file.stem for file in files), *map(str, files))
    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    beside = (f"{path}/" if path.is_dir() else str(path) for path in _entries(folder) if path.is_dir() or path.suffix in (".yaml", ".yml"))
    return _fitting(incomplete, (*beside, *shipped))


def tasks(incomplete: str) -> list[str]:
    """Complete tasks and groups; in a list with commas the last one."""
    from sentdist.tasks.cards import TASK_GROUPS, TASKS
    from sentdist.tasks.kinds import OWN_KINDS
    from sentdist.tasks.names import OWN

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _fitting(last, (*TASK_GROUPS, *TASKS, *(f"{kind}=" for kind in (*OWN_KINDS, OWN))))]


def sweeps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete sweeps in a local store."""
    return _fitting(incomplete, (path.stem for path in _entries(_store(ctx) / "sweeps") if path.suffix == ".json"))


def _store(ctx: typer.Context) -> Path:
    return Path(str(ctx.params.get("store") or os.environ.get("SENTDIST_STORE") or ".sentdist/store"))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def _fitting(incomplete: str, names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name.startswith(incomplete)))


def _data_root(place: str) -> Path | None:
    """The data root as a folder; an address becomes a local mirror, filled when files are named."""
    if "://" not in place:
        return Path(place)  # the common case, without heavier imports
    from sentdist.data.sources.mirror import data_folder

    return data_folder(place)


RecipeFile = Annotated[
    Path, typer.Argument(help="A recipe file, or the name of a shipped recipe, such as demo.", show_default=False, autocompletion=recipes)
]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a field of the recipe; may be repeated.")]
StoreRoot = Annotated[
    str | None,
    typer.Option("--store", envvar="SENTDIST_STORE", help=f"Store of artifacts: a folder, s3:// or gs://.  [default: {DEFAULT_STORE}]"),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data",
        parser=_data_root,
        envvar="SENTDIST_DATA",
        metavar="DIR",
        help="Folder of the data sets, or s3://, gs:// or hf://.",
    ),
]
EncoderName = Annotated[
    str,
    typer.Argument(
        help="A folder, a packaged name (minilm-l6), a hub id, or the key of a training; with ?key=value&… how it is opened "
        f"({', '.join(ENCODER_KEYS)}); or a YAML file with checkpoint and these keys.",
        show_default=False,
    ),
]
TaskNames = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        help="Tasks, groups (sts, transfer, retrieval, …) or KIND=SOURCE@SPLIT for data of your own, such as sts=pairs.tsv; "
        "own=faq.csv: the test rows that tune holds out of a file; separated by commas, or repeated.  [default: sts]",
        show_default=False,
        autocompletion=tasks,
    ),
]
RelationWeights = Annotated[
    list[str] | None, typer.Option("--relation", metavar="NAME[=WEIGHT]", help="Score by this relation of the encoder; may be repeated.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Workers of the Ray cluster that embed.  [default: this process]")]
OutputFormat = Annotated[
    Literal["table", "json"], typer.Option("--format", help="table, or json for other programs, with notes on stderr.")
]


def print_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def check_in_use(options: Mapping[str, object], *, needs: str, is_given: bool) -> None:
    """Raise DataError for an option (None, False: not given) that has no effect without `needs`."""
    for option, value in options.items():
        if value is not None and value is not False and not is_given:
            raise DataError(
                where=option, found=f"no {needs}", expected=f"{needs} beside it", remedy=f"{option} has no effect: leave it out."
            )


def check_folder(path: Path) -> None:
    """Raise DataError if the path or a parent exists and is no folder."""
    there = next((one for one in (path, *path.parents) if os.path.lexists(one)), None)
    if there is not None and not there.is_dir():
        raise DataError(
            where=f"--out {path}", found="a file of that name" if there == path else f"{there}, which is no folder",
            expected="a folder, which is made if missing", remedy="Name another.",
        )  # fmt: skip


def made_folder(path: Path) -> Path:
    """Make the folder and its parents, if missing, and return it; DataError if that fails."""
    check_folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            where=f"--out {path}", found=error.strerror or first_line(error), expected="a writable folder", remedy="Name another."
        ) from None
    return path


def weights_of(relations: list[str]) -> dict[str, float]:
    """Parse NAME or NAME=WEIGHT into a map from relation to weight; DataError for anything else."""
    weights: dict[str, float] = {}
    for given in relations:
        name, _, weight = given.partition("=")
        try:
            value = float(weight or 1.0)
        except ValueError:
            value = -1.0
        if not name or not 0 <= value < float("inf") or name in weights:
            raise DataError(
                where="--relation", found=f"{given}{' twice' if name in weights else ''}",
                expected="NAME or NAME=WEIGHT, a weight of at least 0, each name once",
                remedy="For example --relation entailment --relation duplicate-question=0.5",
            )  # fmt: skip
        weights[name] = value
    return weights
