"""What is asked of the Hugging Face Hub, and sent there: the commit of a name, an encoder with its card."""

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

# huggingface_hub takes half a second to import, hence the imports inside functions.


def commit_of(name: str, kind: RepoType, *, revision: str | None = None) -> str:
    """The commit that a branch or tag of a repository stands for today; None: its main branch.

    Raises:
        DataError: no such repository or revision, no right to see it, no network.
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
    except Exception as error:  # every client library underneath has errors of its own
        raise _refused(name, error, expected=f"a {kind} of that name", revision=revision) from error
    return str(info.sha)


def send_folder(folder: Path, name: str, *, private: bool) -> str:
    """Make the repository if it is not there, and send a folder in one commit; returns its address. The token is the hub's own login's.

    Raises:
        EncoderError: no login, no right, no network; nothing was sent, or the repository stayed as it was.
    """
    from huggingface_hub import HfApi

    check_name(name)
    try:
        api = HfApi()
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="An encoder and its card, by sentdist")
    except Exception as error:  # as above
        found = _refused(name, error, expected="a hub that takes it", revision=None)
        raise EncoderError(where=found.where, found=found.found, expected=found.expected, remedy=found.remedy) from error
    return str(address)


def check_name(name: str) -> None:
    """Raise DataError for what cannot be the name of a repository."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        raise DataError(where="hub", found=f'"{name}"', expected="OWNER/NAME", remedy="Write it as the hub's address bar has it.")


def _refused(name: str, error: Exception, *, expected: str, revision: str | None) -> DataError:
    trouble = hub_trouble(error, revision=revision)
    return DataError(where=f"hub: {name}", found=trouble.found, expected=expected, remedy=trouble.remedy)


def check_output(path: Path, *, suffixes: tuple[str, ...], overwrite: bool) -> None:
    """DataError for a suffix that is not written here, a folder that is not there, and a file that is."""
    if path.suffix not in suffixes:
        raise DataError(where=str(path), found=f"suffix {path.suffix!r}", expected=" or ".join(suffixes), remedy="Name the file so.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no such folder", expected="a folder that is there", remedy="Make it.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise DataError(
            where=str(path),
            found="a folder" if path.is_dir() else "a file that is there already",
            expected="a new file",
            remedy="Choose another name." if path.is_dir() else "Choose another name, or say --overwrite.",
        )


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to write to; it becomes `path` when the context ends, and goes away when it ends by an error.

    Raises:
        DataError: `path` is there and not empty, or the current folder, or the folder that it should lie in is not.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir()) and not path.samefile(".")):  # nobody can take its place here
        raise DataError(where=str(path), found="something that is there already", expected="a new folder", remedy="Choose another name.")
    if not path.absolute().parent.is_dir():
        raise DataError(where=str(path), found="no folder for it to lie in", expected="a folder that is there", remedy="Make it.")
    part = path.absolute().with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    part.mkdir()
    try:
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def average_encoders(folders: Sequence[Path], to: Path) -> None:
    """Write the encoder whose weights are the mean of those in these folders (Wortsman et al. 2022, arXiv 2203.05482, "uniform soup").

    The rest of the folder is the first one's.

    Raises:
        DataError: `to` is there already.
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
