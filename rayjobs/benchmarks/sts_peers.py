"""The sides of the STS benchmark: the scores stage of sentdist,
and sentence-transformers' EmbeddingSimilarityEvaluator in its default settings.

Each peer is a generator that scores all tasks once a sample and yields its seconds,
and Spearman × 100 of each task under the task's name.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from rayjobs.benchmarks.interleaved import Peer, Sample, interleave
from sentdist.recipe.evaluation import evaluation_of
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stages import Scores
from sentdist.stages.context import Context
from sentdist.stages.resolve import FileResolver
from sentdist.stages.scores import build_scores
from sentdist.store.store import ArtifactStore
from sentdist.tasks.sts import LoadedSts
from sentdist.tasks.task import load_task

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class StsWork:
    """What both sides score: the same encoder at its own maximal length, the same pairs. tasks: of the kind sts, or groups of them."""

    encoder: str  # folder of the checkpoint
    data: str
    tasks: tuple[str, ...]
    precision: str
    threads: int

    def stage(self) -> tuple[Scores, FileResolver]:
        """The evaluation as `sentdist evaluate` plans it."""
        resolver = FileResolver(data_root=Path(self.data))
        use = EncoderUse(checkpoint=self.encoder, pooling="mean", precision=self.precision)
        stage = evaluation_of(use, self.tasks, resolver)
        return stage, resolver


def sentdist_sts(work: StsWork) -> Iterator[Sample]:
    """The scores stage whole: encoder and data read from disk, items, geometry and spectrum written."""
    torch.set_num_threads(work.threads)
    while True:
        scored = _scored(work)
        yield {"seconds": scored.seconds, **scored.scores}


def peer_sts(work: StsWork) -> Iterator[Sample]:
    """An evaluator a task, model and pairs in memory; weights in bfloat16 where that is asked for, all else as it comes."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    torch.set_num_threads(work.threads)
    dtype = torch.bfloat16 if work.precision == "bf16" else torch.float32
    model = SentenceTransformer(work.encoder, device="cpu", model_kwargs={"dtype": dtype})
    stage, _ = work.stage()
    evaluators = {}
    for task in stage.tasks:
        loaded = load_task(task, work.data)
        assert isinstance(loaded, LoadedSts) and loaded.task.aggregation == "all", "the evaluator knows one correlation over all pairs"
        pairs = loaded.pairs
        evaluators[task.name] = EmbeddingSimilarityEvaluator(list(pairs.sentence1), list(pairs.sentence2), list(pairs.score))
    while True:
        started = time.perf_counter()
        scores = {name: 100.0 * evaluator(model)["spearman_cosine"] for name, evaluator in evaluators.items()}
        yield {"seconds": time.perf_counter() - started, **scores}


@dataclass(frozen=True, kw_only=True)
class StsFigure:
    """One side at one precision: median seconds for all tasks, peak memory of its process, Spearman × 100 of each task."""

    side: str
    precision: str
    seconds: float
    peak_gib: float
    rounds: int
    scores: dict[str, float]


def measured_sts(work: StsWork, *, rounds: int) -> list[StsFigure]:
    """Both sides at both precisions, interleaved: sentdist, sentence-transformers at fp32, then the same at bf16."""
    runs = {"sentdist": sentdist_sts, "sentence-transformers": peer_sts}
    who = [(side, precision) for precision in PRECISIONS for side in runs]
    sides = {f"{side} {precision}": Peer(run=runs[side], work=replace(work, precision=precision)) for side, precision in who}
    found = interleave(sides, rounds=rounds, units=1)
    return [
        StsFigure(
            side=side, precision=precision, rounds=rounds, seconds=round(turns.median("seconds"), 3), peak_gib=round(turns.peak_gib, 2),
            scores={name: round(turns.median(name), 4) for name in turns.samples[0] if name != "seconds"},
        )
        for (side, precision), turns in zip(who, found.values(), strict=True)
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Scored:
    seconds: float
    scores: dict[str, float]
    items: dict[str, pa.Table]


def _scored(work: StsWork) -> _Scored:
    """The stage built in a store that does not have it."""
    with tempfile.TemporaryDirectory() as scratch:
        stage, resolver = work.stage()
        context = Context(store=ArtifactStore(scratch), data_root=work.data, folders=resolver.folders)
        started = time.perf_counter()
        artifact = build_scores(stage, context)
        seconds = time.perf_counter() - started
        folder, names = context.store.folder(artifact), [task.name for task in stage.tasks]
        return _Scored(
            seconds=seconds,
            scores={name: float(str(artifact.record.results[name])) for name in names},
            items={name: pq.read_table(folder / "items" / f"{name}.parquet") for name in names},
        )
