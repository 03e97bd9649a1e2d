"""Read and write an encoder's relation table: one vector and one name per relation, beside the encoder's files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from sentdist.errors import EncoderError, brief
from sentdist.files import read_json_object, reading

VECTORS_FILE = "relations.safetensors"
NAMES_FILE = "relations.json"
TENSOR = "relations"


@dataclass(frozen=True, kw_only=True, eq=False)
class Relations:
    """The K relation names of an encoder and their `vectors` (K, D), in the order of their numbers in the corpus."""

    names: tuple[str, ...]
    vectors: NDArray[np.float32]
    pooling: str | None = None  # of the embeddings that the vectors were trained with; None: unknown


def write_relations(folder: Path, relations: Relations) -> None:
    """Write relations.safetensors and relations.json, which other libraries ignore, into an encoder's folder.

    EncoderError unless names are distinct and each has a finite vector.
    """
    _check(folder, relations.names, relations.vectors)
    save_file({TENSOR: np.ascontiguousarray(relations.vectors, dtype=np.float32)}, folder / VECTORS_FILE)
    values = {"names": list(relations.names)} | ({} if relations.pooling is None else {"pooling": relations.pooling})
    (folder / NAMES_FILE).write_text(json.dumps(values, ensure_ascii=False) + "\n")


def has_relations(folder: Path) -> bool:
    """Whether an encoder's folder has a relation table."""
    return (folder / NAMES_FILE).is_file() and (folder / VECTORS_FILE).is_file()


def read_relations(folder: Path) -> Relations:
    """Read the relation table beside an encoder; EncoderError if it is absent, unreadable or inconsistent."""
    expected = f"a readable relation table: {VECTORS_FILE} and {NAMES_FILE} beside the encoder"
    remedy = "Score it without relations, or use an encoder trained with a relational objective."
    values = read_json_object(folder / NAMES_FILE, expected=expected, remedy=remedy, kind=EncoderError)
    names, pooling = values.get("names"), values.get("pooling")
    with reading(folder / VECTORS_FILE, expected=expected, remedy=remedy, kind=EncoderError):
        vectors_KD = load_file(folder / VECTORS_FILE)[TENSOR]
    if not isinstance(names, list):
        raise EncoderError(where=str(folder / NAMES_FILE), found=brief(names), expected="a list of names", remedy=remedy)
    _check(folder, names, vectors_KD)
    return Relations(names=tuple(names), vectors=vectors_KD, pooling=pooling if isinstance(pooling, str) else None)


def _check(folder: Path, names: Sequence[str], vectors_KD: NDArray[np.float32]) -> None:
    named = all(isinstance(name, str) for name in names) and len(set(names)) == len(names) > 0
    if not named or vectors_KD.ndim != 2 or len(vectors_KD) != len(names) or not np.isfinite(vectors_KD).all():
        raise EncoderError(
            where=str(folder),
            found=f"names {brief(names)} and vectors of shape {vectors_KD.shape}, "
            f"{int((~np.isfinite(vectors_KD)).sum())} numbers not finite",
            expected="distinct names and a finite vector for each",
            remedy="Train or export the encoder again.",
        )
