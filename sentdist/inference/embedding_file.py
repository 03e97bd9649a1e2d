"""Files of embeddings: streaming, atomic writes; memory-mapped reads; facts about the encoder that made them."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.errors import LONGEST_VALUE, DataError, brief, one_line
from sentdist.files import read_array, read_json_object, whole_file
from sentdist.recipe.stage import Json

DTYPES = ("float32", "float16")
SUFFIXES = (".npy", ".parquet")
EXPECTED = "a .npy file with one (sentences, width) array of floats"
MAKE = "Make it: sentdist encode ENCODER CORPUS --out FILE.npy"
AGAIN = "Name the encoder that made them, in the same way, or encode the corpus again."
TEXTS = "texts_blake2b"  # key of the facts: `TextsDigest` of the sentences
PROMPT = "prompt"  # key of the facts: the prompt before each sentence; "": none
FACTS = "sentdist"  # metadata key in Parquet; suffix of the file beside a .npy


class TextsDigest:
    """A digest (BLAKE2b, 128 bits) of sentences in order, independent of batches."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, sentences: Sequence[str]) -> None:
        """Add the next sentences."""
        self._hash.update("".join(f"{sentence}\0" for sentence in sentences).encode())

    @property
    def hex(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def embedding_writer(
    path: Path, *, width: int, dtype: str, facts: dict[str, Json], with_ids: bool
) -> Iterator[_NpyWriter | _ParquetWriter]:
    """Write OUT.npy, an (S, D) array, or OUT.parquet with the column `embedding` and optionally `id`.

    Writes are atomic, see `whole_file`. The facts go into OUT.npy.json, which includes those added while writing, or into the Parquet file.

    Raises:
        DataError: numbers that float16 cannot represent.
    """
    with whole_file(path, synced=True) as part:
        with part.open("wb") as file:
            as_npy = path.suffix == ".npy"
            kind = np.dtype(dtype)
            with closing(
                _NpyWriter(file, width, kind) if as_npy else _ParquetWriter(file, width, kind, facts, with_ids=with_ids)
            ) as writer:
                yield writer
        _facts_file(path).unlink(missing_ok=True)  # else old facts may lie beside new embeddings
    if path.suffix == ".npy":
        with whole_file(_facts_file(path)) as part:
            part.write_text(json.dumps(facts, indent=1) + "\n")


def open_embeddings(path: Path) -> np.ndarray:
    """Return a read-only memory map of an (S, D) array of floats.

    Raises:
        DataError: no such file, or not a .npy of that shape and type.
    """
    if path.is_file() and path.suffix != ".npy":
        raise DataError(where=str(path), found=f"suffix {path.suffix or '(none)'}", expected=EXPECTED, remedy=MAKE)
    embeddings = read_array(path, expected=EXPECTED, remedy=MAKE, mapped=True)
    if embeddings.ndim != 2 or embeddings.dtype.kind != "f" or 0 in embeddings.shape:
        raise DataError(where=str(path), found=f"{embeddings.dtype} of shape {embeddings.shape}", expected=EXPECTED, remedy=MAKE)
    return embeddings


def check_made_by(path: Path, embeddings_SD: np.ndarray, *, width: int, facts: dict[str, Json]) -> None:
    """Raise DataError if embeddings were made by another encoder or with another prompt.

    Compares the width, the facts in the file (those missing are not compared) and the prompt (none if missing). Precision and
    normalization may differ: cosines are equal up to rounding.
    """
    if embeddings_SD.shape[1] != width:
        found, expected = f"embeddings of width {embeddings_SD.shape[1]}", f"width {width}, as the encoder gives"
        raise DataError(where=str(path), found=found, expected=expected, remedy=AGAIN)
    made_with = facts_of(path)
    for name in ("encoder", "tokenizer_and_modules", "pooling", "max_length"):
        if name in made_with and made_with[name] != facts[name]:
            raise DataError(
                where=str(path), found=f"embeddings made with {name} {one_line(str(made_with[name]), LONGEST_VALUE)}",
                expected=f"{name} {facts[name]}, as for the queries",
                remedy=AGAIN,
            )  # fmt: skip
    made, asked = (str(of.get(PROMPT, "")) for of in (made_with, facts))
    if made != asked:
        raise DataError(
            where=str(path), found=f"embeddings made with prompt {brief(made)}", expected=f"prompt {brief(asked)} before documents",
            remedy=f"Name the encoder {shlex.quote(f'ENCODER?document_prompt={quote(made)}')}, or encode the corpus again with "
            f"{shlex.quote(f'ENCODER?prompt={quote(asked)}')}.",
        )  # fmt: skip


def facts_of(path: Path) -> dict[str, object]:
    """Return the facts beside a .npy file; empty if there are none."""
    if not os.path.lexists(_facts_file(path)):
        return {}
    return read_json_object(_facts_file(path), expected="how the embeddings were made", remedy=MAKE)


class _NpyWriter:
    """Rows after a header with room for their number."""

    def __init__(self, file: IO[bytes], width: int, dtype: np.dtype) -> None:
        self._file, self._width, self._dtype = file, width, dtype
        self._num_rows = 0
        self._write_header()

    def write(self, embeddings_SD: np.ndarray, ids: list[str] | None) -> None:
        self._file.write(_as(embeddings_SD, self._dtype, self._num_rows).tobytes())
        self._num_rows += len(embeddings_SD)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        # NumPy pads the header for a first axis of any length, so the final one is as long as the first one.
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._num_rows, self._width)}
        np.lib.format.write_array_header_1_0(self._file, header)


class _ParquetWriter:
    def __init__(self, file: IO[bytes], width: int, dtype: np.dtype, facts: dict[str, Json], *, with_ids: bool) -> None:
        self._dtype, self._num_rows = dtype, 0
        self._vector = pa.list_(pa.from_numpy_dtype(dtype), width)
        fields = [pa.field("id", pa.large_string())] if with_ids else []
        schema = pa.schema([*fields, pa.field("embedding", self._vector)], metadata={FACTS: json.dumps(facts)})
        # vectors do not compress, and dictionaries of floats only cost time
        self._writer = pq.ParquetWriter(file, schema, compression="none", use_dictionary=False)

    def write(self, embeddings_SD: np.ndarray, ids: list[str] | None) -> None:
        flat = pa.array(_as(embeddings_SD, self._dtype, self._num_rows).reshape(-1))
        columns = [pa.FixedSizeListArray.from_arrays(flat, type=self._vector)]
        if ids is not None:
            columns.insert(0, pa.array(ids, pa.large_string()))
        self._writer.write_batch(pa.record_batch(columns, schema=self._writer.schema))
        self._num_rows += len(embeddings_SD)

    def close(self) -> None:
        self._writer.close()


def _as(embeddings_SD: np.ndarray, dtype: np.dtype, first_row: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(embeddings_SD, dtype=dtype)
    if dtype == np.float16 and not np.isfinite(cast).all():
        row = first_row + int(np.argmin(np.isfinite(cast).all(axis=1)))
        raise DataError(
            where=f"embedding {row}", found="numbers above 65504", expected="numbers that float16 can represent",
            remedy="Use --dtype float32 or --normalize.",
        )  # fmt: skip
    return cast


def _facts_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
