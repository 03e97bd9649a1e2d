"""Arguments and options that several commands take, with what is checked of them at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sentdist.errors import DataError, did_you_mean, first_line, words_for
from sentdist.families import POOLINGS
from sentdist.inference.opening import DEFAULT_STORE
from sentdist.machine import SHARES, is_share
from sentdist.plan.shipped import shipped_recipes

MOST_BYTES = 1 << 20  # of a recipe that is looked at for its methods
METHOD = re.compile(r"^  ([a-z0-9][a-z0-9_-]*):", re.MULTILINE)


def recipes(incomplete: str) -> list[str]:
    """Shipped recipes, by name and by path, and files and folders as a path goes on."""
    files = shipped_recipes()
    shipped = (*(file.stem for file in files), *map(str, files))
    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    beside = (f"{path}/" if path.is_dir() else str(path) for path in _entries(folder) if path.is_dir() or path.suffix in (".yaml", ".yml"))
    return _fitting(incomplete, (*beside, *shipped))


def papers(incomplete: str) -> list[str]:
    """Papers whose printed tables are known."""
    from sentdist.plan.shipped import PAPERS

    return _fitting(incomplete, PAPERS)


def tasks(incomplete: str) -> list[str]:
    """Tasks and groups; of a list with commas the last."""
    from sentdist.plan.task_names import OWN, OWN_KINDS
    from sentdist.plan.tasks import TASK_GROUPS, TASKS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _fitting(last, (*TASK_GROUPS, *TASKS, *(f"{kind}=" for kind in (*OWN_KINDS, OWN))))]


def sweeps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Sweeps of the store, where that is a folder."""
    return _fitting(incomplete, (path.stem for path in _entries(_store(ctx) / "sweeps") if path.suffix == ".json"))


def trainings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Keys of the store's trainings, where that is a folder."""
    return _fitting(incomplete, (path.name.rpartition("-")[2] for path in _entries(_store(ctx) / "train")))


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Dotted fields of a recipe, `methods` with the names that the recipe on the line has; a field that holds others ends with a point."""
    from sentdist.plan.recipe import fields_beside

    if "=" in incomplete:
        return []
    before, _, last = incomplete.rpartition(".")
    parts = before.split(".") if before else []
    prefix = f"{before}." if before else ""
    if parts == ["methods"]:
        return [f"{prefix}{name}." for name in _fitting(last, _methods(ctx))]
    names = _fitting(last, fields_beside(parts))
    return [f"{prefix}{name}{'.' if fields_beside([*parts, name]) else '='}" for name in names]


def _methods(ctx: typer.Context) -> list[str]:
    words = (
        os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    ).split()  # what precedes an open --set is not parsed
    given = ctx.params.get("recipe") or next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    path = None if given is None else Path(str(given))
    if path is None or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return []
    return METHOD.findall(path.read_text(encoding="utf-8", errors="replace").partition("\nmethods:\n")[2].partition("\nruntime:")[0])


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
    """Where data lie on this machine; an address becomes a mirror, into which files come when they are named."""
    if "://" not in place:
        return Path(place)  # nothing heavier for what most people give
    from sentdist.data.sources.mirror import data_folder

    return data_folder(place)


RecipeFile = Annotated[
    Path, typer.Argument(help="A recipe's file, or the name of one that ships, such as demo.", show_default=False, autocompletion=recipes)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Change a field of the recipe; may be repeated.", autocompletion=fields),
]
StoreRoot = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="SENTDIST_STORE", help=f"Where artifacts are kept: a folder, s3:// or gs://.  [default: {DEFAULT_STORE}]"
    ),
]
_DATA = {"envvar": "SENTDIST_DATA", "metavar": "DIR", "help": "Folder of the data sets, or s3://, gs:// or hf://."}
DataRoot = Annotated[Path | None, typer.Option("--data", parser=_data_root, **_DATA)]
DataPlace = Annotated[str | None, typer.Option("--data", **_DATA)]  # as it is given: of a job, which looks there itself
EncoderName = Annotated[
    str, typer.Argument(help="A folder, a packaged name (minilm-l6), a hub id, or the key of a train artifact.", show_default=False)
]
EncoderRevision = Annotated[str | None, typer.Option("--revision", help="Commit of a hub checkpoint.")]
TextColumn = Annotated[str | None, typer.Option("--column", help="Where a table has its sentences; not needed if it has one column.")]
POOLING_NAMES = f"{', '.join(POOLINGS)}.  [default: what the encoder declares, else mean]"
OwnPooling = Annotated[str | None, typer.Option("--pooling", metavar="TEXT", help=POOLING_NAMES)]
MaxLength = Annotated[int | None, typer.Option("--max-length", min=3, help="Tokens; the encoder's own limit if left out.")]
# Of what stands before sentences, in encode and similarity.
SentencePrompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        help="What stands before each sentence: the name of a prompt of the encoder, or a text; '' for nothing.  "
        "[default: the encoder's default prompt, if it has one]",
        show_default=False,
    ),
]
QueryPrompt = Annotated[
    str | None,
    typer.Option(
        "--query-prompt",
        help="What stands before each query: the name of a prompt of the encoder, or a text; '' for nothing.  "
        "[default: its prompt named query, if it has one]",
        show_default=False,
    ),
]
DocumentPrompt = Annotated[  # of tasks; that of a corpus is bound to the embeddings that are given
    str | None,
    typer.Option(
        "--document-prompt", help="The same of documents.  [default: its prompt named document, if it has one]", show_default=False
    ),
]
RelationWeights = Annotated[
    list[str] | None,
    typer.Option("--relation", metavar="NAME[=WEIGHT]", help="Score by this relation of the encoder; may be repeated."),
]
GpusPerWorker = Annotated[
    float | None, typer.Option("--gpus-per-worker", min=0.0, help="GPUs of a worker; 0 for none.  [default: 1 where there are enough]")
]
GpuType = Annotated[
    str | None, typer.Option("--gpu-type", help="Only GPUs that Ray calls so, such as A100 or H100.  [default: any]", show_default=False)
]
EncodingPrecision = Annotated[str, typer.Option("--precision", help="fp32; tf32 on an NVIDIA GPU; bf16 for products in bfloat16.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it is there.")]


def check_choice(where: str, found: str, choices: Iterable[str]) -> None:
    """DataError unless an option has one of its values."""
    if found not in choices:
        remedy = did_you_mean(found, choices, "Choose one of them.")
        raise DataError(where=where, found=found, expected=f"one of {', '.join(choices)}", remedy=remedy)


def check_in_use(options: Mapping[str, object], *, needs: str, is_given: bool) -> None:
    """DataError for an option that is given without what it needs to have an effect. options: their values; None, False: not given."""
    for option, value in options.items():
        if value is not None and value is not False and not is_given:
            raise DataError(
                where=option, found=f"no {needs}", expected=f"{needs} beside it", remedy=f"{option} has no effect: leave it out."
            )


def check_folder(path: Path) -> None:
    """DataError where there is something that is no folder, at the path or above it."""
    there = next((one for one in (path, *path.parents) if os.path.lexists(one)), None)
    if there is not None and not there.is_dir():
        raise DataError(
            where=f"--out {path}", found="a file of that name" if there == path else f"{there}, which is no folder",
            expected="a folder, which is made", remedy="Name another.",
        )  # fmt: skip


def made_folder(path: Path) -> Path:
    """The folder, made with its parents where it is not there; DataError where it cannot be."""
    check_folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            where=f"--out {path}", found=error.strerror or first_line(error), expected="a folder, which is made", remedy="Name another."
        ) from None
    return path


@contextmanager
def named_file(where: str) -> Iterator[None]:
    """DataError where a file that a user names for output cannot be written; a disk that fails is reported as everywhere."""
    try:
        yield
    except OSError as error:
        if words_for(error) is not None:
            raise
        kinds = {FileNotFoundError: "no such folder", IsADirectoryError: "a folder"}
        found = kinds.get(type(error), error.strerror or first_line(error))
        raise DataError(where=where, found=found, expected="a file that can be written", remedy="Name another.") from None


def given_names(*columns: str | None) -> list[str]:
    """The names that were given."""
    return [column for column in columns if column is not None]


def named_gpus(gpus_per_worker: float | None, gpu_type: str | None) -> dict[str, float | str]:
    """The fields of a runtime that were given.

    Raises:
        DataError: GPUs of a kind where there are to be none, or one and a half for each worker.
    """
    if gpus_per_worker is not None and not is_share(gpus_per_worker):
        found, remedy = f"{gpus_per_worker:g}", "Set --gpus-per-worker 1."
        raise DataError(where="--gpus-per-worker", found=found, expected=SHARES, remedy=remedy)
    if gpu_type is not None and gpus_per_worker == 0:
        remedy = "Leave one of them out."
        raise DataError(where="--gpu-type", found=f"{gpu_type} with --gpus-per-worker 0", expected="workers that have GPUs", remedy=remedy)
    given = {"gpus_per_worker": gpus_per_worker, "gpu_type": gpu_type}
    return {name: value for name, value in given.items() if value is not None}


def weights_of(relations: list[str]) -> dict[str, float]:
    """Relations with their weights; DataError for what is not NAME or NAME=WEIGHT."""
    weights: dict[str, float] = {}
    for given in relations:
        name, _, weight = given.partition("=")
        try:
            value = float(weight or 1.0)
        except ValueError:
            value = -1.0
        if not name or not 0 <= value < float("inf") or name in weights:
            raise DataError(
                where="--relation",
                found=f"{given}{' twice' if name in weights else ''}",
                expected="NAME or NAME=WEIGHT, a weight from 0 up, each name once",
                remedy="For example --relation entailment --relation duplicate-question=0.5",
            )
        weights[name] = value
    return weights
