"""Build corpora, compare them and dev sets with test sets (overlaps), and count tags and words of a corpus (targets)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.corpora.kind import CorpusStage, Reading
from sentdist.data.augmentation import nltk_folder
from sentdist.data.corpus import OpenedCorpus, build_corpus
from sentdist.data.leaks import LeakFinder, Leaks
from sentdist.data.sources import check_pinned
from sentdist.data.tagging import FileTargets, Tagger, load_tagger, write_tags, write_targets
from sentdist.recipe.evaluation import overlaps_of
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import Overlap, Targets
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context, commit, folder_of
from sentdist.store.store import Artifact
from sentdist.tasks.kinds import ScoredTask
from sentdist.tasks.task import load_task

if TYPE_CHECKING:
    import torch

ITEMS = "items.parquet"
SCHEMA = pa.schema(
    [("task", pa.string()), ("item", pa.int64()), *((name, pa.string()) for name in ("level", "one", "other", "train_one", "train_other"))]
)


def build_corpus_stage(stage: CorpusStage, context: Context) -> Artifact:
    """Read the sources, number their unique sentences, and commit ids and sentences as memory-mappable tables.

    Raises:
        DataError: the sources make no corpus, or their content has changed since planning.
    """
    started = time.perf_counter()
    root = context.data_folder
    for part in stage.sources:
        if part.own is None:  # the reader of a user file checks its content
            check_pinned(part.source, part.source_revision, data_root=root)
    read = stage.read(Reading(root=root, folders=context.folders, device=partial(_device, context)))
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


def _device(context: Context) -> torch.device:
    from sentdist.stages.fit import device_of  # brings torch

    return device_of(context.runtime)


def build_overlaps(plan: Plan, context: Context) -> list[Artifact]:
    """Build the overlaps of a plan's corpora that are in the store, in this process; dev sets need no corpus."""
    overlaps = overlaps_of(plan)
    finished = context.store.get_all(topological(overlaps))
    ready = [overlap for overlap in overlaps if all(needed.key in finished for needed in overlap.inputs)]
    finders: dict[tuple[tuple[ScoredTask, ...], float], LeakFinder] = {}
    return [finished.get(overlap.key) or _build(overlap, context, finders) for overlap in ready]


def _build(stage: Overlap, context: Context, finders: dict[tuple[tuple[ScoredTask, ...], float], LeakFinder]) -> Artifact:
    """Compare a corpus with its test sets; counts go into the record, items into a file."""
    started = time.perf_counter()
    finder = finders.get((stage.tasks, stage.near))
    if finder is None:
        texts = [load_task(task, context.data_root, context.folders).texts() for task in stage.tasks]
        finder = finders[stage.tasks, stage.near] = LeakFinder(texts, near=stage.near)
    found = finder.find(*_training_text(stage, context))
    with context.store.staged() as folder:
        rows = [{"task": leaks.task, **vars(item)} for leaks in found for item in leaks.items]
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / ITEMS, compression="zstd")
        results: dict[str, Json] = {"tasks": {leaks.task: _counts(leaks) for leaks in found}}
        return commit(stage, folder, context, seconds=time.perf_counter() - started, results=results)


def _training_text(stage: Overlap, context: Context) -> tuple[Iterable[Sequence[str]], np.ndarray]:
    """Sentences in the order of their ids, and the ids of the rows."""
    if isinstance(stage.of, CorpusStage):
        corpus = OpenedCorpus.open(folder_of(stage.of, context))
        return corpus.sentence_blocks(), np.asarray(corpus.ids)
    ids: dict[str, int] = {}
    texts = load_task(stage.of, context.data_root, context.folders).texts()
    pairs = texts.pairs
    if not pairs:
        alone = list(dict.fromkeys(text for item in texts.sentences for text in item))
        return [alone], np.arange(len(alone), dtype=np.int64)[None]
    rows = [(ids.setdefault(one, len(ids)), ids.setdefault(other, len(ids))) for _, one, other in pairs]
    return [list(ids)], np.array(rows, dtype=np.int64).reshape(-1, 2).T


def _counts(leaks: Leaks) -> Json:
    return {
        "items": leaks.num_items,
        "exact": leaks.count("exact"),
        "normalised": leaks.count("exact", "normalised"),
        "near": leaks.count("exact", "normalised", "near"),
        "sentences": leaks.count("exact", "normalised", "sentence"),
        "one": leaks.count("one"),
    }


class TargetsBody:
    """`ShardedBody` of targets: shards hold tags and words; `finish` counts them, chooses the vocabulary and merges them."""

    suffix = "parquet"

    def __init__(self, stage: Targets, context: Context) -> None:
        self._stage, self._context = stage, context

    @cached_property
    def num_rows(self) -> int:
        return self._corpus.num_sentences

    def write(self, rows: range, file: IO[bytes]) -> None:
        """Write tags and words of some sentences."""
        sentences = self._corpus.sentences(np.arange(rows.start, rows.stop))
        write_tags(file, sentences, tagger=self._tagger, name=self._stage.tagger)

    def finish(self, folder: Path, shards: Sequence[Path], *, rows_per_shard: int) -> dict[str, Json]:
        """Merge the shards and delete them."""
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
    """Return the finished targets of a stage; None without one."""
    return None if stage is None else FileTargets(folder_of(stage, context))
