"""Commands that use an encoder: encode."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.opening import encoder_folder, open_store
from sentdist.cli.options import EncoderName, EncoderRevision, StoreRoot
from sentdist.cli.printing import sentence_progress
from sentdist.errors import DataError

if TYPE_CHECKING:
    from sentdist.stages.encoders import EncoderUse

Column = Annotated[str | None, typer.Option("--column", help="Where a table has its sentences; not needed if it has one column.")]
OwnPooling = Annotated[
    str | None, typer.Option("--pooling", help="mean, cls, cls_mlp or first_last.  [default: what the encoder declares]")
]
MaxLength = Annotated[int | None, typer.Option("--max-length", min=3, help="Tokens; the encoder's own limit if left out.")]
Precision = Annotated[str, typer.Option("--precision", help="fp32, or bf16 for products in bfloat16.")]


def encode(
    encoder: EncoderName,
    file: Annotated[str, typer.Argument(help="Sentences: .txt (one a line), .parquet, .csv, .tsv, .jsonl, or - for standard input.")],
    out: Annotated[Path, typer.Option("--out", help="OUT.npy, or OUT.parquet with ids.", show_default=False)],
    column: Column = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column with ids, to be kept beside the embeddings in Parquet.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Embeddings of length 1.")] = False,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float16, on disk.")] = "float32",
    precision: Precision = "fp32",
    max_length: MaxLength = None,
    pooling: OwnPooling = None,
    revision: EncoderRevision = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it is there.")] = False,
    store: StoreRoot = None,
) -> None:
    """Write the embeddings of a file of sentences, of any size: it is read, embedded and written in batches."""
    from sentdist.data.texts import open_texts
    from sentdist.stages.embedding_file import DTYPES, check_output

    _check_choice("--dtype", dtype, DTYPES)
    check_output(out, overwrite=overwrite)
    if id_column is not None and out.suffix != ".parquet":
        raise DataError(where="--id", found=f"{out.name}", expected="OUT.parquet, which has room for ids", remedy="Leave --id out.")
    texts = open_texts(file, columns=_given(column), id_column=id_column)  # before torch is loaded: a mistake is told at once
    use = encoder_use(encoder, store, revision=revision, pooling=pooling, max_length=max_length, precision=precision, normalize=normalize)

    from sentdist.stages.encoding import encode_file

    loaded, done = use.load(), 0
    started = time.perf_counter()
    with sentence_progress("encoding", texts.num_rows) as advance:
        for done in encode_file(loaded, texts, out, dtype=dtype):
            advance(done)
    seconds = time.perf_counter() - started
    typer.echo(f"{out}: {done:,} embeddings of width {loaded.width}, {dtype}; {seconds:.1f} s, {done / seconds:,.0f} sentences/s")


def encoder_use(
    encoder: str,
    store: str | None,
    *,
    revision: str | None,
    pooling: str | None,
    max_length: int | None,
    precision: str,
    normalize: bool = False,
) -> EncoderUse:
    """The encoder that a command line names, not yet loaded."""
    _check_choice("--precision", precision, ("fp32", "bf16"))
    checkpoint = encoder_folder(encoder, open_store(store))

    from sentdist.stages.encoders import EncoderUse

    return EncoderUse(
        checkpoint=checkpoint, revision=revision, pooling=pooling, max_length=max_length, precision=precision, normalize=normalize
    )


def _given(*columns: str | None) -> list[str]:
    return [column for column in columns if column is not None]


def _check_choice(where: str, found: str, choices: Iterable[str]) -> None:
    if found not in choices:
        raise DataError(where=where, found=found, expected=f"one of {', '.join(choices)}", remedy="Choose one of them.")
