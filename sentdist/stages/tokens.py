"""The tokens of a corpus: made once, by the first training on it, and read by every epoch, seed and trial after that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np

from sentdist.data.corpus import OpenedCorpus
from sentdist.errors import ArtifactLost
from sentdist.learning.encoder.token_table import TokenTable, merge_shards, write_shard
from sentdist.learning.encoder.tokenizing import Tokenizer, token_ids, tokenizer_digest
from sentdist.plan.stage import Json
from sentdist.plan.stages import Tokens, Train
from sentdist.stages.context import Context
from sentdist.stages.inputs import folder_of
from sentdist.stages.sharded import build_in_shards


class TokensBody:
    """`ShardedBody` of tokens; the end merges the shards."""

    suffix = "npz"

    def __init__(self, stage: Tokens, context: Context, tokenizer: Tokenizer) -> None:
        self._stage, self._context, self._tokenizer = stage, context, tokenizer

    @cached_property
    def num_rows(self) -> int:
        return self._corpus.num_sentences

    def write(self, rows: range, file: IO[bytes]) -> None:
        """Token ids of some sentences."""
        sentences = self._corpus.sentences(np.arange(rows.start, rows.stop))
        ids, num_truncated = token_ids(self._tokenizer, sentences, max_length=self._stage.max_length, first=rows.start)
        write_shard(file, ids, num_truncated=num_truncated)

    def finish(self, folder: Path, shards: Sequence[Path], *, rows_per_shard: int) -> dict[str, Json]:
        """Merge the shards, which have then served their purpose."""
        facts = merge_shards(folder, shards)
        assert facts.num_sentences == self.num_rows, "every sentence is read once"
        for shard in shards:
            shard.unlink()
        shards[0].parent.rmdir()
        return asdict(facts)

    @cached_property
    def _corpus(self) -> OpenedCorpus:
        return OpenedCorpus.open(folder_of(self._stage.corpus, self._context))


def tokens_stage(stage: Train, tokenizer: Tokenizer) -> Tokens:
    """What a training's tokens are kept as. No field says which encoder: encoders of one tokenizer share them."""
    return Tokens(corpus=stage.corpus, tokenizer=tokenizer_digest(tokenizer), max_length=stage.training.max_length)


def tokens_of(stage: Train, context: Context, tokenizer: Tokenizer) -> TokenTable:
    """The tokens of a training's corpus as its tokenizer reads them; made now where the store has none, or has them damaged.

    Processes that make them at the same time make the same, and the first one's are kept.
    """
    wanted = tokens_stage(stage, tokenizer)
    try:
        return TokenTable.open(folder_of(wanted, context))
    except ArtifactLost:
        build_in_shards(wanted, context, body=TokensBody(wanted, context, tokenizer))
        return TokenTable.open(folder_of(wanted, context))
