"""Build stages from independent shards: here one after another, on a cluster by all workers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, assert_never

import numpy as np

from sentdist.data.corpus import OpenedCorpus
from sentdist.files import whole_file
from sentdist.learning.bank_shape import BankShape
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Bank, Targets, Tokens
from sentdist.stages.context import Context, commit, folder_of
from sentdist.stages.embed import frozen_encoder
from sentdist.store.store import Artifact, ArtifactStore

if TYPE_CHECKING:  # torch takes seconds to import
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder

SHARDS = "shards"

Sharded = Bank | Targets


class ShardedBody(Protocol):
    """Makes the shards of a stage and its artifact from them. Cheap to construct; the first `write` loads what a worker needs."""

    suffix: str  # of a shard's file

    @cached_property
    def num_rows(self) -> int:
        """Rows of all shards: unique sentences of the corpus."""
        ...

    def write(self, rows: range, file: IO[bytes]) -> None:
        """Write a shard."""
        ...

    def finish(self, folder: Path, shards: Sequence[Path], *, rows_per_shard: int) -> dict[str, Json]:
        """Complete the artifact in `folder` from its shards, in the order of their rows; return results for the record."""
        ...


class BankBody:
    """`ShardedBody` of a bank; the shards are its files."""

    suffix = "npy"

    def __init__(self, stage: Bank, context: Context) -> None:
        self._stage, self._context = stage, context

    @cached_property
    def num_rows(self) -> int:
        return self._corpus.num_sentences

    def write(self, rows: range, file: IO[bytes]) -> None:
        """Write (rows, D) embeddings in the bank's dtype."""
        from sentdist.learning.bank import check_rows
        from sentdist.learning.encoder.encode import encode

        stage = self._stage
        embeddings_SD = encode(
            self._encoder,
            self._corpus.sentences(np.arange(rows.start, rows.stop)),
            max_length=stage.max_length,
            tokens_per_batch=self._context.runtime.tokens_per_batch,
            precision=stage.precision,
        )
        with np.errstate(over="ignore"):  # reported below, with the sentence
            stored_SD = embeddings_SD.astype(stage.dtype)
        check_rows(stored_SD, first_id=rows.start, where=f"bank {stage.label}")
        np.save(file, stored_SD)

    def finish(self, folder: Path, shards: Sequence[Path], *, rows_per_shard: int) -> dict[str, Json]:
        """Describe the shards in bank.json."""
        shapes = [np.load(shard, mmap_mode="r").shape for shard in shards]
        assert sum(rows for rows, _ in shapes) == self.num_rows, "every sentence is embedded once"
        shape = BankShape(num_sentences=self.num_rows, width=shapes[0][1], dtype=self._stage.dtype, rows_per_shard=rows_per_shard)
        (folder / "bank.json").write_text(json.dumps(asdict(shape)))
        return {"num_sentences": shape.num_sentences, "width": shape.width, "bytes": shape.num_bytes}

    @cached_property
    def _corpus(self) -> OpenedCorpus:
        return OpenedCorpus.open(folder_of(self._stage.corpus, self._context))

    @cached_property
    def _encoder(self) -> SentenceEncoder:
        return frozen_encoder(self._stage.encoder, self._context, precision=self._stage.precision)


def body_of(stage: Sharded, context: Context) -> ShardedBody:
    """Return the body of a sharded stage; that of tokens is made by the training, which has the tokenizer."""
    match stage:
        case Bank():
            return BankBody(stage, context)
        case Targets():  # NLTK takes seconds to import
            from sentdist.stages.text_stages import TargetsBody

            return TargetsBody(stage, context)
    assert_never(stage)


def build_in_shards(stage: Sharded | Tokens, context: Context, *, body: ShardedBody) -> Artifact:
    """Build a stage by its body, shard after shard, in this process."""
    started = time.perf_counter()
    per_shard = context.runtime.rows_per_shard
    with staged_shards(context.store) as folder:
        for shard in range(num_shards(body.num_rows, per_shard)):
            write_shard(body, shard, per_shard, folder)
        return publish(stage, folder, context, body=body, rows_per_shard=per_shard, started=started)


@contextmanager
def staged_shards(store: ArtifactStore) -> Iterator[Path]:
    """Yield a scratch folder of a store with an empty folder for shards."""
    with store.staged() as folder:
        (folder / SHARDS).mkdir()
        yield folder


def write_shard(body: ShardedBody, shard: int, rows_per_shard: int, folder: Path) -> None:
    """Write a shard atomically: a worker that counts as lost may still be writing the same one."""
    with whole_file(folder / shard_name(shard, body)) as part, part.open("wb") as file:
        body.write(shard_rows(shard, body.num_rows, rows_per_shard), file)


def publish(stage: Sharded | Tokens, folder: Path, context: Context, *, body: ShardedBody, rows_per_shard: int, started: float) -> Artifact:
    """Commit the artifact of the shards in `folder`; `started` is `time.perf_counter()` at the start."""
    names = [folder / shard_name(number, body) for number in range(num_shards(body.num_rows, rows_per_shard))]
    results = body.finish(folder, names, rows_per_shard=rows_per_shard)
    results["sentences_per_s"] = round(body.num_rows / (time.perf_counter() - started), 1)
    return commit(stage, folder, context, seconds=time.perf_counter() - started, results=results)


def num_shards(num_rows: int, rows_per_shard: int) -> int:
    """Return the number of shards for this many rows."""
    return -(-num_rows // rows_per_shard)


def shard_rows(number: int, num_rows: int, rows_per_shard: int) -> range:
    """Return the rows of shard `number`; the last one may have fewer."""
    return range(number * rows_per_shard, min((number + 1) * rows_per_shard, num_rows))


def shard_name(number: int, body: ShardedBody) -> str:
    """Return the path of a shard below the artifact's folder."""
    return f"{SHARDS}/{number:05d}.{body.suffix}"
