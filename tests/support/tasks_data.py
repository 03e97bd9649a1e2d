"""A data root with small made tasks of every kind, and their scores by an encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.recipe.evaluation import evaluation_of
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stages import Scores
from sentdist.stages.context import Context
from sentdist.stages.resolve import FileResolver
from sentdist.stages.scores import build_scores
from sentdist.store.store import Artifact, ArtifactStore


def write_table(root: Path, name: str, rows: list[dict[str, object]]) -> None:
    """`rows` as the source `name`."""
    path = root / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def stage_of(encoder: Path, tasks: tuple[str, ...], data: Path) -> tuple[Scores, FileResolver]:
    """The evaluation of an encoder's folder."""
    resolver = FileResolver(data_root=data)
    stage = evaluation_of(EncoderUse(checkpoint=str(encoder), pooling="mean"), tasks, resolver)
    return stage, resolver


def evaluated(
    encoder: Path, tasks: tuple[str, ...], *, data: Path, store: Path, keeps_embeddings: bool = False
) -> tuple[Artifact, Context]:
    """Scores of an encoder's folder on tasks below `data`."""
    stage, resolver = stage_of(encoder, tasks, data)
    context = Context(store=ArtifactStore(str(store)), data_root=str(data), folders=resolver.folders, keeps_embeddings=keeps_embeddings)
    return build_scores(stage, context), context


def write_forums(folder: Path) -> None:
    """Questions of two forums in the shape of USEB's release; the first of each is asked, and has duplicates."""
    corpus = {
        "android": {"1": "how to root a phone", "2": "rooting my phone", "3": "battery is empty", "4": "phone gets hot"},
        "gis": {"1": "what is a map", "7": "maps, what are they", "8": "how far is it"},
    }
    judged = {"valid": {"android": {"3": ["4"]}, "gis": {"8": ["7"]}}, "test": {"android": {"1": ["2"], "4": ["3"]}, "gis": {"1": ["7"]}}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.json").write_text(json.dumps(corpus))
    (folder / "retrieval_split.json").write_text(json.dumps(judged))
