"""The body of a targets stage: every unique sentence of a corpus tagged, its shares of tags and of words kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np

from sentdist.data.corpus import OpenedCorpus
from sentdist.data.nltk_folder import nltk_folder
from sentdist.data.tagging import Tagger, load_tagger
from sentdist.data.targets import FileTargets, count_sentences, write_counts, write_targets
from sentdist.plan.stage import Json
from sentdist.plan.stages import Targets
from sentdist.stages.context import Context
from sentdist.stages.inputs import folder_of


class TargetsBody:
    """`ShardedBody` of targets: shards count tags and words, the end chooses the vocabulary and merges them."""

    suffix = "npz"

    def __init__(self, stage: Targets, context: Context) -> None:
        self._stage, self._context = stage, context

    @cached_property
    def num_rows(self) -> int:
        return self._corpus.num_sentences

    def write(self, rows: range, file: IO[bytes]) -> None:
        """Counts of tags and of words of some sentences."""
        sentences = self._corpus.sentences(np.arange(rows.start, rows.stop))
        tags, words = count_sentences(sentences, tagger=self._tagger, tagger_name=self._stage.tagger)
        write_counts(file, tags, words)

    def finish(self, folder: Path, shards: Sequence[Path], *, rows_per_shard: int) -> dict[str, Json]:
        """Merge the shards, which have then served their purpose."""
        facts = write_targets(folder, shards, num_words=self._stage.num_words)
        assert facts.num_sentences == self.num_rows, "every sentence is tagged once"
        for shard in shards:
            shard.unlink()
        shards[0].parent.rmdir()
        return {**asdict(facts), "tags": list(FileTargets(folder).tags)}

    @cached_property
    def _corpus(self) -> OpenedCorpus:
        return OpenedCorpus.open(folder_of(self._stage.corpus, self._context))

    @cached_property
    def _tagger(self) -> Tagger:
        folder = nltk_folder(self._context.data_folder)
        return load_tagger(self._stage.tagger, nltk_data=folder)


def targets_of(stage: Targets | None, context: Context) -> FileTargets | None:
    """The finished targets of a stage; None where there is none."""
    return None if stage is None else FileTargets(folder_of(stage, context))
