"""Export encoders: look up and upload to the Hugging Face Hub, write output folders atomically, average weights."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from sentdist.errors import HUB_ANSWERS_WITHIN_S, DataError, EncoderError, hub_trouble
from sentdist.store.record import OWN_FILES

RepoType = Literal["model", "dataset"]

# huggingface_hub takes half a second to import: it is imported inside functions.


def commit_of(name: str, kind: RepoType, *, revision: str | None = None) -> str:
    """Return the current commit of a branch or tag of a repository; None: its main branch.

    Raises:
        DataError: no such repository or revision, no permission, no network.
    """
    from huggingface_hub import HfApi

    check_name(name)
    try:
        api = HfApi()
        info = (
            api.model_info(name, revision=revision, timeout=HUB_ANSWERS_WITHIN_S)
            if kind == "model"
            else api.dataset_info(name, revision=revision, timeout=HUB_ANSWERS_WITHIN_S)
        )
    except Exception as error:  # the HTTP libraries raise errors of many types
        raise _refused(name, error, expected=f"a {kind} of that name", revision=revision) from error
    return str(info.sha)


def send_folder(folder: Path, name: str, *, private: bool) -> str:
    """Upload a folder in one commit, create the repository if needed, and return its address. Uses the token of `hf auth login`.

    Raises:
        EncoderError: no login, no permission, no network; the repository's files are unchanged.
    """
    from huggingface_hub import HfApi

    check_name(name)
    try:
        api = HfApi()
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="An encoder and its card, by sentdist")
    except Exception as error:  # as above
        found = _refused(name, error, expected="a hub that accepts it", revision=None)
        raise EncoderError(where=found.where, found=found.found, expected=found.expected, remedy=found.remedy) from error
    return str(address)


def check_name(name: str) -> None:
    """Raise DataError unless it is OWNER/NAME."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        raise DataError(where="hub", found=f'"{name}"', expected="OWNER/NAME", remedy="Copy it from the address of its page.")


def _refused(name: str, error: Exception, *, expected: str, revision: str | None) -> DataError:
    trouble = hub_trouble(error, revision=revision)
    return DataError(where=f"hub: {name}", found=trouble.found, expected=expected, remedy=trouble.remedy)


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
