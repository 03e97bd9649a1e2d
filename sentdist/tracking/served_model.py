"""How a registered model is brought to this machine without trusting the place where its files lie."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import RecipeError, ResourceError, StoreError
from sentdist.store.integrity import FileChecksum, checksums_below, damage_of
from sentdist.tracking.server import Server, patience

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

FILES = "mlflow.sentdist.files"  # tag of a version: what was uploaded, {path: [bytes, sha256]}; pages show no tag that begins so
ADDRESS = re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>\d+))")


def files_tag(folder: Path) -> str:
    """Size and digest of every file of a model, for its version's tag."""
    return json.dumps({name: [one.num_bytes, one.sha256] for name, one in checksums_below(folder).items()})


def verified_copy(model: str, uri: str, target: Path) -> Path:
    """Download a registered model and compare every file with what was registered, before anything of it is loaded.

    An MLflow model names the code that loads it, so whoever can change its files runs code where it is served.
    The digests stand in the database, the files in another place. What is served is the copy that was compared.

    model: `models:/NAME@ALIAS` or `models:/NAME/VERSION`. target: an empty folder that only this user may open.

    Raises:
        RecipeError: no such address.
        ResourceError: the server is away, or knows no such model.
        StoreError: a file is damaged, missing or foreign, or nothing is known of the files.
    """
    parts = ADDRESS.fullmatch(model)
    if parts is None:
        raise RecipeError(
            where="the model",
            found=f'"{model}"',
            expected="models:/NAME@ALIAS or models:/NAME/VERSION",
            remedy="For example models:/demo@best.",
        )
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
            where=model,
            found=f"version {version.version} without digests of its files",
            expected="one that this release has registered",
            remedy="Delete the version and submit the sweep again: it registers the encoder again.",
        )
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
            where=model,
            found=wrong,
            expected="the files that were registered",
            remedy="Do not load it. Delete the version and submit the sweep again: it registers the encoder again from the store.",
        )


def _away(model: str, server: Server) -> ResourceError:
    remedy = (
        "Start it (`sentdist up`), or name another: `sentdist serve MODEL --uri ADDRESS`."
        if server.is_away
        else "Its models are listed on its page Models."
    )
    return ResourceError(where=model, found=server.trouble, expected="a registered model on a server that answers", remedy=remedy)
