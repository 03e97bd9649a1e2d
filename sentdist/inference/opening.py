"""Where artifacts are kept, and which encoder a name stands for, as people write them; no torch, no Ray."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import DataError, StoreError
from sentdist.plan.specs import PRECISIONS, EncoderUse

if TYPE_CHECKING:
    from sentdist.store.store import ArtifactStore

DEFAULT_STORE = ".sentdist/store"
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it for what `ray job submit` starts


def store_root(store: str | None) -> str:
    """Where artifacts are kept. By default .sentdist/store here; in a job below the home folder: Ray deletes the working directory.

    Raises:
        StoreError: a file; in a job a folder that is not named from the root.
    """
    default = Path.home() / DEFAULT_STORE if IN_A_JOB in os.environ else Path(DEFAULT_STORE)
    if store and "://" not in store and _is_file(store):
        raise StoreError(
            where=f"--store {store}", found="a file", expected="a folder, which is made if it is not there", remedy="Name a folder."
        )
    if store and IN_A_JOB in os.environ and "://" not in store and not Path(store).expanduser().is_absolute():
        raise StoreError(
            where=f"--store {store}", found="a folder below the job's own, which Ray throws away", expected="one that stays",
            remedy="Name it by its whole path, or an address such as s3://bucket/store.",
        )  # fmt: skip
    return store or str(default.absolute())


def _is_file(store: str) -> bool:
    from sentdist.store.access import reading

    path = Path(store).expanduser()
    with reading(str(path), awaited=True):  # the first question to a file server, which may be away
        return path.is_file()


def open_store(store: str | None) -> ArtifactStore:
    """The store of this address, or the default one."""
    from sentdist.store.store import ArtifactStore

    root = store_root(store)
    return ArtifactStore(root if "://" in root else str(Path(root).expanduser().absolute()))


def encoder_folder(encoder: str, store: ArtifactStore) -> str:
    """A training's key or label, as pages show them, becomes the folder of its encoder; all else is a checkpoint as it stands."""
    if Path(encoder).exists():
        return encoder
    is_hex = all(letter in "0123456789abcdef" for letter in encoder)
    if (is_hex and len(encoder) >= 6) or encoder.startswith("train/"):
        return str(store.folder(store.find(encoder)))
    if _is_training(encoder, store, is_hex=is_hex):  # its scores have that label, too
        return str(store.folder(store.find(encoder, kind="train")))
    return encoder


def _is_training(encoder: str, store: ArtifactStore, *, is_hex: bool) -> bool:
    """Whether a training of the store has this label or the beginning of it up to a hyphen, or a key that begins so; a few letters may be
    the name of a checkpoint, too."""
    if "/" in encoder:
        return False
    return any(
        encoder in found.record.shown_names
        or f"{found.record.label}-".startswith(f"{encoder}-")
        or (is_hex and found.key.startswith(encoder))
        for found in store.artifacts("train")
    )


def encoder_use(
    encoder: str,
    store: str | None,
    *,
    revision: str | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    precision: str = "fp32",
    normalize: bool = False,
) -> EncoderUse:
    """The encoder of this name, not yet loaded.

    Raises:
        DataError: no name, a precision that there is not. StoreError: a key of no or of several artifacts.
    """
    if not encoder:
        raise DataError(where="encoder", found="no name", expected="a folder, a packaged name, a hub id or a key", remedy="Name one.")
    if precision not in PRECISIONS:
        raise DataError(where="precision", found=str(precision), expected=f"one of {', '.join(PRECISIONS)}", remedy="Choose one of them.")
    checkpoint = encoder_folder(encoder, open_store(store))
    return EncoderUse(
        checkpoint=checkpoint, revision=revision, pooling=pooling, max_length=max_length, precision=precision, normalize=normalize
    )
