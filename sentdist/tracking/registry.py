"""Register the best encoder of a sweep as a version of a model, and download registered models with verified files."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentdist.errors import RecipeError, ResourceError, StoreError, counted
from sentdist.store.chosen import DevCell, cells_by_dev
from sentdist.store.local_storage import scratch_folder
from sentdist.store.record import OWN_FILES, FileChecksum, Record, checksums_below, damage_of
from sentdist.store.sweep import SweepRecord
from sentdist.tracking.pages import model_page
from sentdist.tracking.run_update import add_tags
from sentdist.tracking.server import Server, add_model_metrics, despite_collisions, patience
from sentdist.tracking.sweep_runs import MODEL, SweepRuns
from sentdist.tracking.sweep_summary import SummaryRow, summary_rows, sweep_metric

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion


FILES = "mlflow.sentdist.files"  # tag of a version: the uploaded files, {path: [bytes, sha256]}; pages hide tags with this prefix
ADDRESS = re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>\d+))")


def files_tag(folder: Path) -> str:
    """Return size and digest of every file of a model, for its version's tag."""
    return json.dumps({name: [one.num_bytes, one.sha256] for name, one in checksums_below(folder).items()})


def verified_copy(model: str, uri: str, target: Path) -> Path:
    """Download a registered model and compare every file with its registered digest, before anything of it is loaded.

    An MLflow model names the code that loads it, so changed files run code where it is served. Digests are in the database, files are not.

    Args:
        model: `models:/NAME@ALIAS` or `models:/NAME/VERSION`.
        target: An empty folder that only this user may open.

    Raises:
        RecipeError: not an address of a model.
        ResourceError: the server is away, or has no such model.
        StoreError: a file is damaged, missing or foreign, or the version has no digests.
    """
    parts = ADDRESS.fullmatch(model)
    if parts is None:
        raise RecipeError(
            where="the model", found=f'"{model}"', expected="models:/NAME@ALIAS or models:/NAME/VERSION",
            remedy="For example models:/demo@best.",
        )  # fmt: skip
    server = Server(uri)
    with patience():
        version = server.attempt(f"find {model}", lambda client: _version(client, parts))
        if version is None:
            raise _away(model, server)
        expected = _expected(model, version)
        if server.attempt(f"download {model}", lambda client: _download(client, version, target)) is None:
            raise _away(model, server)
    _check(f"models:/{version.name}/{version.version}", target, expected)
    return target


def _version(client: MlflowClient, parts: re.Match[str]) -> ModelVersion:
    if parts["alias"] is not None:
        return client.get_model_version_by_alias(parts["name"], parts["alias"])
    return client.get_model_version(parts["name"], parts["version"])


def _expected(model: str, version: ModelVersion) -> dict[str, FileChecksum]:
    if FILES not in version.tags:
        raise StoreError(
            where=model, found=f"version {version.version} without digests of its files", expected="a version that this release registered",
            remedy="Delete the version and submit the sweep again, which registers the encoder again.",
        )  # fmt: skip
    return {name: FileChecksum(num_bytes=size, sha256=sha256) for name, (size, sha256) in json.loads(version.tags[FILES]).items()}


def _download(client: MlflowClient, version: ModelVersion, target: Path) -> Path:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    place = client.get_model_version_download_uri(version.name, version.version)
    repository = get_artifact_repository(place, tracking_uri=client.tracking_uri)
    repository.download_artifacts("", str(target))
    return target


def _check(model: str, folder: Path, expected: dict[str, FileChecksum]) -> None:
    foreign = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    foreign = [name for name in foreign if name not in expected]
    wrong = damage_of(folder, expected, expected) or (f"{foreign[0]}: not registered" if foreign else None)
    if wrong is not None:
        raise StoreError(
            where=model, found=wrong, expected="the files that were registered",
            remedy="Do not load it. Delete the version and submit the sweep again, which registers the encoder again from the store.",
        )  # fmt: skip


def _away(model: str, server: Server) -> ResourceError:
    remedy = (
        "Start it (`sentdist up`), or name another: `sentdist serve MODEL --uri ADDRESS`."
        if server.is_away
        else "The server's page Models lists its models."
    )
    return ResourceError(where=model, found=server.trouble, expected="a registered model on a server that answers", remedy=remedy)


ALIAS = "best"
KEY = "sentdist.key"
WEIGHTS = "model.sentence_transformer"  # where MLflow's flavor looks for them
LOADER = Path(__file__).with_name("checked_sentences.py")  # copied into the model, which must not need sentdist
LIBRARIES = ("sentence-transformers", "transformers", "torch")


def register_best_encoder(client: MlflowClient, runs: SweepRuns) -> str | None:
    """Register the encoder that dev chooses; return `models:/NAME/VERSION`, or None if dev chose none.

    It is the best encoder on dev of the cell with the highest mean dev score; test scores are shown, not used. Each encoder is registered
    once, even by concurrent drivers: an existing version gets the alias `best`. Dev chooses none if no cell is complete, or the recipe has
    no `selection`.
    """
    runs.open(client, is_running=False)
    sweep, store = runs.sweep, runs.store
    records = sweep.records(store)
    cells = cells_by_dev(sweep, records)
    if not cells:
        return None
    trial = cells[0].best
    row = next(row for row in summary_rows(sweep, records) if row.trial.key == trial.key)
    train = records[str(trial.train)]
    _ensure_model(client, sweep)
    version = _first_version(client, sweep.name, train.key)
    if version is None:
        about = _description(sweep, row, cells)
        version = _register(client, runs, row, about=about, folder=store.folder(store.finished(train.place)), train=train)
    if client.get_registered_model(sweep.name).aliases.get(ALIAS) != version.version:
        number = version.version
        despite_collisions(lambda: client.set_registered_model_alias(sweep.name, ALIAS, number), table="registered_model_aliases")
    address = f"models:/{sweep.name}/{version.version}"
    assert runs.parent is not None
    note = f"[{address}]({model_page(sweep.name, version.version)}), alias `{ALIAS}`: {trial.name}"
    add_tags(client, client.get_run(runs.parent), {MODEL: note})
    runs.summarize(client, records)
    return address


def _ensure_model(client: MlflowClient, sweep: SweepRecord) -> None:
    from mlflow.exceptions import MlflowException

    if any(model.name == sweep.name for model in client.search_registered_models(f"name = '{sweep.name}'")):
        return
    about = f"{sweep.about.strip()}\n\nThe encoders of the recipe `{sweep.name}` that dev chose; test scores are shown, but were not used."
    try:
        client.create_registered_model(sweep.name, description=about.strip())
    except MlflowException:  # another process created it first
        client.get_registered_model(sweep.name)


def _first_version(client: MlflowClient, name: str, key: str) -> ModelVersion | None:
    """The version of an encoder; of several the lowest number, on which all drivers agree."""
    found = [version for version in client.search_model_versions(f"name = '{name}'") if version.tags.get(KEY) == key]
    return min(found, key=lambda version: int(version.version), default=None)


def _register(client: MlflowClient, runs: SweepRuns, best: SummaryRow, *, about: str, folder: Path, train: Record) -> ModelVersion:
    """Upload an encoder and make it a version, unless another driver does so at the same time.

    MLflow cannot create a version only if there is none, but its database assigns every number once. So each driver creates its version,
    looks, and deletes its own if the same encoder has a lower number; the driver with the lowest never does.
    """
    from mlflow.exceptions import MlflowException

    model, files = _upload(client, runs, best, folder=folder, train=train)
    first = _first_version(client, runs.sweep.name, train.key)
    if first is None:
        try:
            made = _make_version(client, runs, best, about=about, model=model, tags=_identity(best, train) | {FILES: files})
        except MlflowException:  # raised if several drivers request the same number three times in a row
            made = None
            if _first_version(client, runs.sweep.name, train.key) is None:
                raise
        first = _first_version(client, runs.sweep.name, train.key)
        assert first is not None
        if made is not None and made.version == first.version:
            return made
        if made is not None:
            client.delete_model_version(runs.sweep.name, made.version)
    client.delete_logged_model(model.model_id)
    return first


def _upload(client: MlflowClient, runs: SweepRuns, best: SummaryRow, *, folder: Path, train: Record) -> tuple[LoggedModel, str]:
    """Upload the encoder's files as a model of its trial's run; return it with the files' sizes and digests."""
    run_id = runs.run_of(client, best.trial.key)
    model = client.create_logged_model(
        runs.experiment,
        name=re.sub(r"[^\w-]", "_", train.label),
        source_run_id=run_id,
        tags=_identity(best, train),
        params=runs.layout.parameters(best.trial.key),
        model_type="encoder",
    )
    with scratch_folder(Path(tempfile.gettempdir()), "model") as copy:
        write_model(copy, folder, run_id=run_id, model_id=model.model_id)
        files = files_tag(copy / "model")
        client.log_model_artifacts(model.model_id, str(copy / "model"))
    return client.finalize_logged_model(model.model_id, "READY"), files


def _make_version(
    client: MlflowClient, runs: SweepRuns, best: SummaryRow, *, about: str, model: LoggedModel, tags: dict[str, str]
) -> ModelVersion:
    run_id = model.source_run_id
    assert run_id is not None
    add_model_metrics(client, run_id, model.model_id, best.scores)
    scores = {name: f"{value:.4f}" for name, value in best.scores.items()}
    return client.create_model_version(
        runs.sweep.name,
        source=f"models:/{model.model_id}",
        run_id=run_id,
        model_id=model.model_id,
        tags=tags | scores,
        description=about,
        await_creation_for=0,  # usual servers create it at once; waiting only prints to stderr
    )


def _identity(best: SummaryRow, train: Record) -> dict[str, str]:
    return {KEY: train.key, "sentdist.trial": best.trial.key, "sentdist.trial_name": best.trial.name}


def write_model(target: Path, encoder: Path, *, run_id: str, model_id: str) -> None:
    """Write an MLflow model of a sentence-transformers folder, for the flavors `sentence_transformers` and `pyfunc`.

    The flavor's `save_model` would load and rewrite the encoder; here its files are copied. Requirements and signature are given, because
    inferring them takes a minute, and the flavor knows sentence-transformers only up to 6.1. In a column of strings MLflow would turn null
    into "None": so the column has any type, and `checked_sentences` refuses what is not text.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Any type hint is inferred", UserWarning)  # about mlflow's own classes, as they are imported
        warnings.filterwarnings("ignore", ".*An input example was not", UserWarning)  # an example would load the encoder
        import mlflow.pyfunc
        from mlflow.models import Model, ModelSignature
        from mlflow.types import ColSpec, Schema, TensorSpec
        from mlflow.types.schema import AnyType

        width_unknown = TensorSpec(np.dtype("float32"), (-1, -1))
        signature = ModelSignature(inputs=Schema([ColSpec(AnyType())]), outputs=Schema([width_unknown]))
        requirements = [f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in ("mlflow", *LIBRARIES)]
        folder = target / "model"
        mlflow.pyfunc.save_model(
            str(folder),
            loader_module=LOADER.stem,
            code_paths=[str(LOADER)],
            data_path=str(encoder),
            signature=signature,
            pip_requirements=requirements,
        )
    (folder / "data" / encoder.name).rename(folder / WEIGHTS)
    (folder / "data").rmdir()
    for name in OWN_FILES:
        (folder / WEIGHTS / name).unlink(missing_ok=True)
    model = Model.load(str(folder))
    model.run_id, model.model_id = run_id, model_id
    model.flavors["python_function"]["data"] = WEIGHTS
    model.add_flavor("sentence_transformers", sentence_transformers_version=importlib.metadata.version("sentence-transformers"), code=None)
    model.save(str(folder / "MLmodel"))


def _description(sweep: SweepRecord, best: SummaryRow, cells: Sequence[DevCell]) -> str:
    """What was chosen, how, and from how many; MLflow's list shows only the first line, as plain text."""
    metric, chosen = sweep_metric(sweep), cells[0]
    others = f", the highest of {counted(len(cells), 'cell')}" if cells[1:] else ""
    of_several = f"; of its {len(chosen.trials)} encoders this one has the highest ({best.dev:.2f})" if chosen.trials[1:] else ""
    score = best.scores.get(metric)
    lines = [
        f"{best.trial.name}, chosen on dev by {chosen.task}.",
        f"The mean dev score of {chosen.label} is {chosen.dev:.2f}{others}{of_several}.",
    ]
    if score is not None:
        lines.append(f"On the test sets, which were not used: {metric} {score:.2f}. The report has means over seeds with intervals.")
    return "\n\n".join(lines)
