"""The body of every corpus stage: the rows that its kind reads, written down."""

from __future__ import annotations

import importlib
import time
from dataclasses import asdict, dataclass

import pyarrow as pa

from sentdist.data.build_corpus import build_corpus
from sentdist.data.sources.pinned import check_pinned
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.stage import Json
from sentdist.stages.commit import commit
from sentdist.stages.context import Context
from sentdist.store.store import Artifact


@dataclass(frozen=True, kw_only=True)
class CorpusTable:
    """What a corpus is built of: a table, which of its columns are sentences and which are values, how many are drawn,
    facts for the record."""

    table: pa.Table
    columns: tuple[str, ...]
    values: tuple[str, ...] = ()
    facts: dict[str, Json]
    limit: int | None = None
    limit_seed: int = 0
    add_reversed: bool = False


def build_corpus_stage(stage: CorpusStage, context: Context) -> Artifact:
    """A corpus, committed: read the sources, number their unique sentences, write ids and sentences as memory-mappable tables.

    Raises:
        DataError: what the reader refuses; content that has changed since it was planned with.
    """
    started = time.perf_counter()
    for part in stage.sources:
        if part.own is None:  # the reader of a person's own file looks itself
            check_pinned(part.source, part.source_revision, data_root=context.data_folder)
    module, _, function = stage.reader.partition(":")
    read: CorpusTable = getattr(importlib.import_module(module), function)(stage, context)
    with context.store.staged() as folder:
        facts = build_corpus(
            read.table,
            columns=read.columns,
            values=read.values,
            folder=folder,
            limit=read.limit,
            seed=read.limit_seed,
            add_reversed=read.add_reversed,
            num_positives=stage.num_positives,
            where=f"corpus {stage.label}",
        )
        return commit(stage, folder, context, seconds=time.perf_counter() - started, results=asdict(facts) | read.facts)
