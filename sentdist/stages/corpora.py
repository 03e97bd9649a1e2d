"""Read the sources of each kind of corpus and commit its rows."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import assert_never

import pyarrow as pa

from sentdist.data.augmentation import delete_words, nltk_folder, replace_synonyms
from sentdist.data.checked_rows import read_pairs
from sentdist.data.corpus import build_corpus
from sentdist.data.graded import NLI_LABELS, GradedSource, LabelMap, join_graded
from sentdist.data.nli_groups import Augment, group_by_premise, inference_rows
from sentdist.data.relations import join_relations
from sentdist.data.retrieval import faq_pairs, read_retrieval
from sentdist.data.sources.hub import check_pinned, read_source
from sentdist.learning.paraphrase import paraphrase
from sentdist.recipe.corpora import graded as plan
from sentdist.recipe.corpora.groups import Augmentation, GroupedCorpus, GroupPart
from sentdist.recipe.corpora.kind import CorpusStage
from sentdist.recipe.corpora.relations import RelationalCorpus
from sentdist.recipe.corpora.rows import RowsCorpus
from sentdist.recipe.stage import Json
from sentdist.stages.context import Context, commit
from sentdist.stages.devices import device_of
from sentdist.store.store import Artifact
from sentdist.tasks.held_out import read_own
from sentdist.tasks.links import relation_sources
from sentdist.tasks.sts import StsTask


@dataclass(frozen=True, kw_only=True)
class CorpusTable:
    """Rows of a corpus, as its reader returns them."""

    table: pa.Table
    columns: tuple[str, ...]  # of sentences
    values: tuple[str, ...] = ()  # columns of labels or relations
    facts: dict[str, Json]  # for the record
    limit: int | None = None  # rows to draw
    limit_seed: int = 0
    add_reversed: bool = False


def build_corpus_stage(stage: CorpusStage, context: Context) -> Artifact:
    """Read the sources, number their unique sentences, and commit ids and sentences as memory-mappable tables.

    Raises:
        DataError: the reader refuses the data, or content has changed since planning.
    """
    started = time.perf_counter()
    for part in stage.sources:
        if part.own is None:  # the reader of a user file checks its content
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


def graded_rows(stage: plan.GradedCorpus, context: Context) -> CorpusTable:
    """Return columns sentence1, sentence2 and label of all parts, with counts of each part and test set for the record.

    Raises:
        DataError: as `join_graded`; an unreadable source or test set.
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


def _pairs_of(task: StsTask, root: Path | None) -> list[tuple[str, str]]:
    check_pinned(task.source, task.revision, data_root=root)
    pairs = read_pairs(task.source, split=task.split, data_root=root, hub_revision=task.revision)
    return list(zip(pairs.sentence1, pairs.sentence2, strict=True))


def groups_rows(stage: GroupedCorpus, context: Context) -> CorpusTable:
    """Return columns anchor, positive_1 …, negative_1 …, one row per premise, with counts of found and filled texts for the record.

    Raises:
        DataError: as `group_by_premise`; an unreadable source; WordNet is missing.
        EncoderError: the paraphraser is missing or cannot generate text.
    """
    root = context.data_folder
    augmentation = stage.augmentation
    table, facts = group_by_premise(
        pa.concat_tables([_groups_read(part, root) for part in stage.parts]),
        num_positives=stage.num_positives,
        num_negatives=stage.num_negatives,
        seed=stage.seed,
        fill=stage.fill,
        at_least=stage.at_least,
        augment=None if augmentation is None else rewording(augmentation, seed=stage.seed, context=context),
        augmented_fraction=augmentation.fraction if augmentation is not None and augmentation.name == "paraphrases" else 1.0,
        limit=stage.limit,
        limit_seed=stage.limit_seed,
    )
    premises: dict[str, Json] = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(facts).items()}
    return CorpusTable(
        table=table, columns=tuple(table.column_names), facts={"premises": premises}, limit=stage.limit, limit_seed=stage.limit_seed
    )


def rewording(augmentation: Augmentation, *, seed: int, context: Context) -> Augment:
    """Return the function that turns entailments into further positives."""
    root = context.data_folder
    fraction = augmentation.fraction

    def reword(sentences: Sequence[str]) -> Sequence[str]:
        match augmentation.name:
            case "word_deletion":
                return delete_words(sentences, fraction=fraction, seed=seed)
            case "synonyms":
                return replace_synonyms(sentences, fraction=fraction, seed=seed, folder=nltk_folder(root))
            case "paraphrases":
                revision = augmentation.source_revision or ""
                folder = context.folders.get(revision)
                return paraphrase(
                    sentences,
                    checkpoint=folder or augmentation.checkpoint,
                    revision=None if folder else revision,
                    seed=seed,
                    device=device_of(context.runtime),
                )

    return reword


def _groups_read(part: GroupPart, root: Path | None) -> pa.Table:
    found = read_source(part.source, split=part.split, data_root=root, columns=part.columns, hub_revision=part.source_revision)
    return inference_rows(found, columns=part.columns, labels=part.labels, where=part.source)


def relations_rows(stage: RelationalCorpus, context: Context) -> CorpusTable:
    """Return columns anchor, positive, negative and relation, with counts of each relation for the record.

    Raises:
        DataError: as `join_relations`; an unreadable source.
    """
    sources = relation_sources(stage.relations, context.data_folder)
    found = join_relations(sources, cap_rule=stage.cap_rule, held_out=stage.held_out, seed=stage.seed)
    counts: dict[str, Json] = {name: asdict(count) for name, count in found.counts.items()}
    return CorpusTable(table=found.table, columns=("anchor", "positive", "negative"), values=("relation",), facts={"relations": counts})


def plain_rows(stage: RowsCorpus, context: Context) -> CorpusTable:
    """Return the pinned rows of a source; of a fold, each query with a relevant document.

    Raises:
        DataError: the source is missing, unreadable or has other columns.
    """
    table, columns = _table(stage, context)
    return CorpusTable(
        table=table, columns=columns, facts={}, limit=stage.limit, limit_seed=stage.limit_seed, add_reversed=stage.add_reversed
    )


def _table(stage: RowsCorpus, context: Context) -> tuple[pa.Table, tuple[str, ...]]:
    if stage.own is not None:
        return read_own(
            stage.source, stage.own, "train", revision=stage.source_revision, folders=context.folders, root=context.data_folder
        ), stage.columns
    if (fold := stage.fold) is not None:
        collection = read_retrieval(stage.source, split=stage.split, data_root=context.data_folder, document_field=stage.document_field)
        pairs = faq_pairs(collection, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, role="train", by=fold.by)
        return pairs, ("anchor", "positive")
    table = read_source(
        stage.source, split=stage.split, data_root=context.data_folder, columns=stage.columns, hub_revision=stage.source_revision
    )
    return table, stage.columns
