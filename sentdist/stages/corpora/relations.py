"""How the triples of a relational corpus are read: each relation's pairs, with hard negatives of the same relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from sentdist.data.relations import RelationSource, join_relations
from sentdist.data.sources.pinned import read_source
from sentdist.plan.corpora.relations import RelationalCorpus, RelationFile, RelationPart
from sentdist.plan.stage import Json
from sentdist.stages.context import Context
from sentdist.stages.corpora.build import CorpusTable


def rows(stage: RelationalCorpus, context: Context) -> CorpusTable:
    """Columns anchor, positive, negative and relation, and the counts of each relation for the record.

    Raises:
        DataError: what `join_relations` refuses; an unreadable source.
    """
    sources = relation_sources(stage.relations, context.data_folder)
    found = join_relations(sources, cap_rule=stage.cap_rule, held_out=stage.held_out, seed=stage.seed)
    counts: dict[str, Json] = {name: asdict(count) for name, count in found.counts.items()}
    return CorpusTable(table=found.table, columns=("anchor", "positive", "negative"), values=("relation",), facts={"relations": counts})


def relation_sources(parts: Sequence[RelationPart], root: Path | None) -> list[RelationSource]:
    """The tables of each relation."""
    return [_source(part, root) for part in parts]


def _source(part: RelationPart, root: Path | None) -> RelationSource:
    return RelationSource(
        name=part.name,
        tables=tuple(_read(file, part, root) for file in part.sources),
        construction=part.construction,
        columns=part.columns,
        only=part.only,
        cap=part.cap,
    )


def _read(file: RelationFile, part: RelationPart, root: Path | None) -> pa.Table:
    columns = (*part.columns, *(part.only[:1] if part.only else ()))
    return read_source(file.source, split=file.split, data_root=root, columns=columns, hub_revision=file.source_revision)
