"""Arguments and options shared by commands: declarations, shell completion and checks."""

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

MOST_BYTES = 1 << 20  # of a recipe that completion reads for its methods
METHOD = re.compile(r"^  ([a-z0-9][a-z0-9_-]*):", re.MULTILINE)


def recipes(incomplete: str) -> list[str]:
    """Complete recipes: shipped ones by name and path, and YAML files and folders."""
    files = shipped_recipes()
    shipped = (*(file.stem for file in files), *map(str, files))
    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    beside = (f"{path}/" if path.is_dir() else str(path) for path in _entries(folder) if path.is_dir() or path.suffix in (".yaml", ".yml"))
    return _fitting(incomplete, (*beside, *shipped))


def papers(incomplete: str) -> list[str]:
    """Complete papers whose tables are known."""
    from sentdist.plan.shipped import PAPERS

    return _fitting(incomplete, PAPERS)


def tasks(incomplete: str) -> list[str]:
    """Complete tasks and groups; in a list with commas the last one."""
    from sentdist.plan.task_names import OWN, OWN_KINDS
    from sentdist.plan.tasks import TASK_GROUPS, TASKS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _fitting(last, (*TASK_GROUPS, *TASKS, *(f"{kind}=" for kind in (*OWN_KINDS, OWN))))]


def sweeps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete sweeps in a local store."""
    return _fitting(incomplete, (path.stem for path in _entries(_store(ctx) / "sweeps") if path.suffix == ".json"))


def trainings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete keys of trainings in a local store."""
    return _fitting(incomplete, (path.name.rpartition("-")[2] for path in _entries(_store(ctx) / "train")))


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete dotted fields of a recipe, with the method names of the recipe on the command line; sections end with a dot."""
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
    # click does not parse what precedes an open --set
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
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
    """The data root as a folder; an address becomes a local mirror, filled when files are named."""
    if "://" not in place:
        return Path(place)  # the common case, without heavier imports
    from sentdist.data.sources.mirror import data_folder

    return data_folder(place)


RecipeFile = Annotated[
    Path, typer.Argument(help="A recipe file, or the name of a shipped recipe, such as demo.", show_default=False, autocompletion=recipes)
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a field of the recipe; may be repeated.", autocompletion=fields)
]
StoreRoot = Annotated[
    str | None,
    typer.Option("--store", envvar="SENTDIST_STORE", help=f"Store of artifacts: a folder, s3:// or gs://.  [default: {DEFAULT_STORE}]"),
]
_DATA = {"envvar": "SENTDIST_DATA", "metavar": "DIR", "help": "Folder of the data sets, or s3://, gs:// or hf://."}
DataRoot = Annotated[Path | None, typer.Option("--data", parser=_data_root, **_DATA)]
DataPlace = Annotated[str | None, typer.Option("--data", **_DATA)]  # unchanged, for a job
EncoderName = Annotated[
    str, typer.Argument(help="A folder, a packaged name (minilm-l6), a hub id, or the key of a train artifact.", show_default=False)
]
EncoderRevision = Annotated[str | None, typer.Option("--revision", help="Commit of a hub checkpoint.")]
TextColumn = Annotated[str | None, typer.Option("--column", help="Column of sentences in a table; not needed if it has one column.")]
POOLING_NAMES = f"{', '.join(POOLINGS)}.  [default: what the encoder declares, else mean]"
OwnPooling = Annotated[str | None, typer.Option("--pooling", metavar="TEXT", help=POOLING_NAMES)]
MaxLength = Annotated[int | None, typer.Option("--max-length", min=3, help="Tokens a sentence.  [default: the encoder's limit]")]
SentencePrompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        help="Prompt before each sentence: a name of a prompt of the encoder, or a text; '' for none.  "
        "[default: the encoder's default prompt, if it has one]",
        show_default=False,
    ),
]
QueryPrompt = Annotated[
    str | None,
    typer.Option(
        "--query-prompt",
        help="Prompt before each query: a name of a prompt of the encoder, or a text; '' for none.  "
        "[default: its prompt named query, if it has one]",
        show_default=False,
    ),
]
DocumentPrompt = Annotated[  # of tasks; `search` has another, bound to --embeddings
    str | None,
    typer.Option(
        "--document-prompt", help="The same for documents.  [default: its prompt named document, if it has one]", show_default=False
    ),
]
RelationWeights = Annotated[
    list[str] | None, typer.Option("--relation", metavar="NAME[=WEIGHT]", help="Score by this relation of the encoder; may be repeated.")
]
GpusPerWorker = Annotated[
    float | None, typer.Option("--gpus-per-worker", min=0.0, help="GPUs of a worker; 0 for none.  [default: 1 if there are enough]")
]
GpuType = Annotated[
    str | None, typer.Option("--gpu-type", help="Only GPUs of this Ray type, such as A100 or H100.  [default: any]", show_default=False)
]
EncodingPrecision = Annotated[str, typer.Option("--precision", help="fp32; tf32 on an NVIDIA GPU; bf16 for products in bfloat16.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")]


def check_choice(where: str, found: str, choices: Iterable[str]) -> None:
    """Raise DataError unless an option has one of its values."""
    if found not in choices:
        remedy = did_you_mean(found, choices, "Choose one of them.")
        raise DataError(where=where, found=found, expected=f"one of {', '.join(choices)}", remedy=remedy)


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


@contextmanager
def named_file(where: str) -> Iterator[None]:
    """Turn errors of writing a user's output file into a DataError; a failing disk is reported as elsewhere."""
    try:
        yield
    except OSError as error:
        if words_for(error) is not None:
            raise
        kinds = {FileNotFoundError: "no such folder", IsADirectoryError: "a folder"}
        found = kinds.get(type(error), error.strerror or first_line(error))
        raise DataError(where=where, found=found, expected="a file that can be written", remedy="Name another.") from None


def given_names(*columns: str | None) -> list[str]:
    """Return the names that are not None."""
    return [column for column in columns if column is not None]


def named_gpus(gpus_per_worker: float | None, gpu_type: str | None) -> dict[str, float | str]:
    """Return the given GPU options as fields of a runtime.

    Raises:
        DataError: a GPU type with 0 GPUs, or an impossible share such as 1.5.
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
