"""The bodies of corpus stages: from sources to the rows that are written down."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from sentdist.data.build_corpus import build_corpus as build_table
from sentdist.data.folds import faq_pairs
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.pinned import read_source
from sentdist.plan.corpora import Corpus, GradedCorpus, GroupedCorpus, RelationalCorpus
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.stage import Json
from sentdist.stages.commit import commit
from sentdist.stages.context import Context
from sentdist.stages.graded import graded_rows
from sentdist.stages.groups import grouped_rows
from sentdist.stages.relations import COLUMNS as RELATION_COLUMNS
from sentdist.stages.relations import relational_rows
from sentdist.store.store import Artifact


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a corpus is built of: a table, which of its columns are sentences and which are values, how many are drawn,
    facts for the record."""

    table: pa.Table
    columns: tuple[str, ...]
    values: tuple[str, ...] = ()
    facts: dict[str, Json]
    limit: int | None = None
    limit_seed: int = 0
    add_reversed: bool = False


def build_corpus(stage: CorpusStage, context: Context) -> Artifact:
    """Read the sources, number their unique sentences, write ids and sentences as memory-mappable tables."""
    started = time.perf_counter()
    rows = _rows(stage, context)
    with context.store.staged() as folder:
        facts = build_table(
            rows.table,
            columns=rows.columns,
            values=rows.values,
            folder=folder,
            limit=rows.limit,
            seed=rows.limit_seed,
            add_reversed=rows.add_reversed,
            num_positives=stage.num_positives,
        )
        return commit(stage, folder, context, started=started, results=asdict(facts) | rows.facts)


def _rows(stage: CorpusStage, context: Context) -> Rows:
    root = None if context.data_root is None else Path(context.data_root)
    match stage:
        case Corpus():
            return replace(_plain_rows(stage, root), limit=stage.limit, limit_seed=stage.limit_seed, add_reversed=stage.add_reversed)
        case GradedCorpus():
            table, counts = graded_rows(stage, root)
            return Rows(
                table=table,
                columns=("sentence1", "sentence2"),
                values=("label",),
                facts=counts,
                limit=stage.limit,
                limit_seed=stage.limit_seed,
            )
        case RelationalCorpus():
            table, relations = relational_rows(stage, root)
            return Rows(table=table, columns=RELATION_COLUMNS, values=("relation",), facts=relations)
        case GroupedCorpus():
            table, premises = grouped_rows(stage, context)
            return Rows(table=table, columns=tuple(table.column_names), facts=premises, limit=stage.limit, limit_seed=stage.limit_seed)
    raise TypeError(f"nobody said how the rows of a corpus of kind {stage.recipe_kind} are made")


def _plain_rows(stage: Corpus, root: Path | None) -> Rows:
    if stage.fold is not None:
        bank = read_retrieval(stage.source, split=stage.split, data_root=root, document_field=stage.document_field)
        fold = stage.fold
        pairs = faq_pairs(bank, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, role="train")
        return Rows(table=pairs, columns=("anchor", "positive"), facts={})
    return Rows(
        table=read_rows(stage.source, stage.source_revision, split=stage.split, columns=stage.columns, root=root),
        columns=stage.columns,
        facts={},
    )


def read_rows(source: str, revision: str, *, split: str | None, columns: tuple[str, ...], root: Path | None) -> pa.Table:
    """The pinned rows of a source."""
    hub_revision = revision if source.startswith("hub:") else None
    return read_source(source, split=split, data_root=root, columns=columns, hub_revision=hub_revision)
