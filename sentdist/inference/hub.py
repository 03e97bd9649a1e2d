"""What is asked of the Hugging Face Hub, and sent there: the commit of a name, an encoder with its card."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from sentdist.errors import DataError, EncoderError
from sentdist.hub_errors import HUB_ANSWERS_WITHIN_S, hub_trouble

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
