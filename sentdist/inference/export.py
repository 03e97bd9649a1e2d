"""Export encoders: upload to the Hugging Face Hub, write output folders atomically, average weights."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sentdist.errors import DataError, EncoderError, hub_trouble
from sentdist.store.record import OWN_FILES

# huggingface_hub takes half a second to import: it is imported inside functions.


def send_folder(folder: Path, name: str) -> str:
    """Upload a folder in one commit, create a private repository if needed, and return its address. Uses the token of `hf auth login`.

    Raises:
        EncoderError: no login, no permission, no network; the repository's files are unchanged.
    """
    from huggingface_hub import HfApi

    check_name(name)
    try:
        api = HfApi()
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="An encoder and its card, by sentdist")
    except Exception as error:  # the HTTP libraries raise errors of many types
        trouble = hub_trouble(error, revision=None)
        raise EncoderError(where=f"hub: {name}", found=trouble.found, expected="a hub that accepts it", remedy=trouble.remedy) from error
    return str(address)


def check_name(name: str) -> None:
    """Raise DataError unless it is OWNER/NAME."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        raise DataError(where="hub", found=f'"{name}"', expected="OWNER/NAME", remedy="Copy it from the address of its page.")


def check_output(path: Path, *, suffixes: tuple[str, ...], overwrite: bool) -> None:
    """Raise DataError for an unsupported suffix, a missing folder, or an existing file unless `overwrite`."""
    if path.suffix not in suffixes:
        raise DataError(where=str(path), found=f"suffix {path.suffix!r}", expected=" or ".join(suffixes), remedy="Change the suffix.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no such folder", expected="an existing folder", remedy="Make it.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise DataError(
            where=str(path), found="a folder" if path.is_dir() else "an existing file", expected="a new file",
            remedy="Choose another name." if path.is_dir() else "Choose another name, or add --overwrite.",
        )  # fmt: skip


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` at the end of the context and removed after an error.

    Raises:
        DataError: `path` exists and is not an empty folder, or is the current one; its parent does not exist.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir()) and not path.samefile(".")):  # the current one cannot be replaced
        raise DataError(where=str(path), found="an existing file or folder", expected="a new folder", remedy="Choose another name.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no parent folder", expected="an existing parent folder", remedy="Make it.")
    part = path.absolute().with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    part.mkdir()
    try:
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def average_encoders(folders: Sequence[Path], to: Path) -> None:
    """Write the encoder with the mean weights of these folders (Wortsman et al. 2022, arXiv 2203.05482, "uniform soup").

    Other files are those of the first folder.

    Raises:
        DataError: `to` exists.
    """
    import torch
    from safetensors.torch import load_file, save_file

    with whole_folder(to) as part:
        shutil.copytree(folders[0], part, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*OWN_FILES))
        for file in sorted(part.rglob("*.safetensors")) if folders[1:] else ():
            each = [load_file(folder / file.relative_to(part)) for folder in folders]
            mean = {
                name: torch.stack([one[name].double() for one in each]).mean(dim=0).to(first.dtype) if first.is_floating_point() else first
                for name, first in each[0].items()
            }
            save_file(mean, file, metadata={"format": "pt"})
