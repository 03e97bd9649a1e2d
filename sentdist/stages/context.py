"""Where a stage is built (store, data, runtime), its inputs and its commit; nothing in here changes results."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from sentdist import machine
from sentdist.data.mirror import data_folder
from sentdist.errors import ArtifactLost, StoreError
from sentdist.kernels.cpp_library import used_kernels
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderSpec
from sentdist.recipe.stage import Json, Stage
from sentdist.store.store import Artifact, ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Context:
    """Store, data and runtime of a build; pickled to workers."""

    store: ArtifactStore
    data_root: str | None = None  # a folder, or an address
    runtime: Runtime = field(default_factory=Runtime)
    folders: Mapping[str, str] = field(default_factory=dict)  # revision of an encoder or user file given by path -> its folder
    shares: tuple[float, ...] = ()  # at which trainings may have been left as rungs, see `stages.rungs`
    keeps_embeddings: bool = False  # of test sentences, for other tasks of the same encoder

    @property
    def data_folder(self) -> Path | None:
        """The data root as a local folder: a mirror if it is an address."""
        return data_folder(self.data_root)


InUse = dict[str, tuple[ArtifactStore, Artifact]]  # by folder
_in_use: list[InUse] = []  # of each stage that this process builds; one may build another one that it needs


@contextmanager
def inputs_watched(used: InUse | None = None) -> Iterator[None]:
    """Watch the inputs while a stage or a part of one is built: an error caused by a changed input is raised as its loss.

    Args:
        used: Inputs that earlier parts of the stage have opened; this part adds its inputs.

    Raises:
        ArtifactLost: an input was changed, replaced or moved away during the build.
    """
    _in_use.append({} if used is None else used)
    try:
        yield
    except ArtifactLost:
        raise
    except Exception as error:
        if (loss := lost_input()) is not None:
            raise loss from error
        raise
    finally:
        _in_use.pop()


def note_input(store: ArtifactStore, artifact: Artifact, folder: Path) -> None:
    """Note that the files of an artifact, in `folder`, are read from now on."""
    for used in _in_use:
        used[str(folder)] = (store, artifact)


def check_inputs() -> None:
    """Raise ArtifactLost if a watched input changed; call it before publishing what was made from them."""
    for used in _in_use:
        for folder, (store, artifact) in used.items():
            store.check_unchanged(artifact, Path(folder))


def lost_input() -> ArtifactLost | None:
    """Return the error of `check_inputs`, for callers that must warn other workers first; None also if the store cannot be read."""
    try:
        check_inputs()
    except ArtifactLost as loss:
        return loss
    except StoreError:
        return None
    return None


LIBRARIES = ("sentdist", "torch", "transformers", "ray", "deepspeed", "mlflow", "sentence-transformers", "scipy", "numpy")


def commit(stage: Stage, folder: Path, context: Context, *, seconds: float, results: dict[str, Json]) -> Artifact:
    """Publish the contents of `folder` as the stage's artifact.

    Raises:
        ArtifactLost: an input was changed while it was read.
    """
    check_inputs()
    runtime: dict[str, Json] = context.runtime.model_dump(mode="json")
    kernels = used_kernels()  # apart from the cached environment: this process may have loaded them since
    found = environment() | ({"kernels": kernels} if kernels else {})
    return context.store.commit(stage, folder, seconds=seconds, runtime=runtime, environment=found, results=results)


@cache
def environment() -> dict[str, str]:
    """Return versions, host, processor, and whether Ray runs this process, as text."""
    found = {
        "python": platform.python_version(),
        "host": platform.node(),
        "system": platform.platform(terse=True),
        "processor": machine.name(),
    }
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _commit()
    return found | ({"commit": commit} if commit else {}) | ({"executed by": "ray"} if "RAY_JOB_ID" in os.environ else {})


def _commit() -> str | None:
    """The commit of the source tree, if this code runs from one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    asked = subprocess.run(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def folder_of(stage: Stage, context: Context) -> Path:
    """Return a local folder with the artifact of an input stage.

    Raises:
        ArtifactLost: the input is damaged, or was removed since.
    """
    artifact = context.store.get(stage)
    if artifact is None:
        raise ArtifactLost(
            where=f"{context.store.shown}/{stage.place}", found="nothing", expected="a finished input", remedy="Run the whole recipe."
        )
    folder = context.store.folder(artifact)
    note_input(context.store, artifact, folder)
    return folder


def checkpoint_of(encoder: EncoderSpec, context: Context) -> str:
    """Return the name that `SentenceEncoder.load` takes: packaged name, folder or hub id."""
    return context.folders.get(encoder.revision, encoder.checkpoint)


def hub_revision(encoder: EncoderSpec, context: Context) -> str | None:
    """Return the commit to request from the hub; None if the content is pinned in another way."""
    is_commit = "/" in encoder.checkpoint and encoder.revision not in context.folders
    return encoder.revision if is_commit else None
