"""How the graded pairs of a corpus stage are read: each source's labels mapped, the pairs of test sets left out."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import assert_never

import pyarrow as pa

from sentdist.data.graded import NLI_LABELS, GradedSource, LabelMap, join_graded
from sentdist.data.sources.pinned import check_pinned, read_source
from sentdist.data.sts_pairs import read_pairs
from sentdist.plan.corpora import graded as plan
from sentdist.plan.specs import Task
from sentdist.plan.stage import Json
from sentdist.stages.context import Context
from sentdist.stages.corpora.build import CorpusTable
from sentdist.stages.own_file import read_own


def rows(stage: plan.GradedCorpus, context: Context) -> CorpusTable:
    """Columns sentence1, sentence2 and label of all parts, and the counts of each part and test set for the record.

    Raises:
        DataError: what `join_graded` refuses; an unreadable source or test set.
    """
    root = context.data_folder
    parts = [
        GradedSource(
            name=part.name,
            rows=_read(part, context),
            labels=_label_map(part.scale, stage),
            sentence1=part.columns[0],
            sentence2=part.columns[1],
            label=part.columns[2],
        )
        for part in stage.parts
    ]
    found = join_graded(parts, without={task.name: _pairs_of(task, root) for task in stage.without})
    counts: dict[str, Json] = {name: asdict(count) for name, count in found.counts.items()}
    return CorpusTable(
        table=found.table,
        columns=("sentence1", "sentence2"),
        values=("label",),
        facts={"parts": counts, "removed": dict(found.removed)},
        limit=stage.limit,
        limit_seed=stage.limit_seed,
    )


def _label_map(scale: plan.Scale, stage: plan.GradedCorpus) -> LabelMap:
    on_a_scale = partial(LabelMap, low=0.0, high=plan.TOP_LABEL[scale], rounding=stage.rounding, spacing=stage.spacing)
    match scale:
        case "nli":
            return LabelMap(low=0.0, high=plan.TOP_LABEL[scale], words=NLI_LABELS)
        case "one_to_five":
            return on_a_scale(source_range=(1.0, 5.0))
        case "zero_to_five":
            return on_a_scale(source_range=None)
    assert_never(scale)


def _read(part: plan.GradedPart, context: Context) -> pa.Table:
    if part.own is not None:
        return read_own(part.source, part.own, "train", revision=part.source_revision, folders=context.folders, root=context.data_folder)
    return read_source(
        part.source, split=part.split, data_root=context.data_folder, columns=part.columns, hub_revision=part.source_revision
    )


def _pairs_of(task: Task, root: Path | None) -> list[tuple[str, str]]:
    check_pinned(task.source, task.revision, data_root=root)
    pairs = read_pairs(task.source, split=task.split, data_root=root, hub_revision=task.revision)
    return list(zip(pairs.sentence1, pairs.sentence2, strict=True))
