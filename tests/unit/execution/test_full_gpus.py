"""Wherever work meets a GPU whose memory is full, it ends with the field to change, and not with what torch says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.execution import build_stage, reserved
from sentdist.execution.board.submissions import Submission
from sentdist.execution.parallel import embed, shards
from sentdist.execution.training import rank
from sentdist.execution.training import worker_group as member
from sentdist.plan.sections import Runtime
from sentdist.stages import local
from sentdist.stages import rungs as train_here
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import NullRun
from tests.support.every_stage import one_of_each
from tests.support.lost_training import RecordingSink


@dataclass(frozen=True)
class Place:
    """Where a stage of some kind is built. patched: what computes there. field: what the error names."""

    kind: str
    patched: tuple[Any, str]
    build: Callable[[Any, Context], object]
    field: str


def _in_a_task(stage: Any, context: Context) -> object:
    sink: Any = RecordingSink()
    return build_stage.build_stage(stage, Submission(context=context, tracker=Mock()), sink)


def _follow(stage: Any, context: Context) -> object:
    order, sink = Mock(stage=stage, submission=Mock(context=context)), Mock(order=None)
    return member._follow(order, sink)


PLACES = {
    "a training in this process": Place("train", (train_here, "train_here"), local.build_here, "micro_batch"),
    "another stage in this process": Place("scores", (local, "build_in_process"), local.build_here, "tokens_per_batch"),
    "a process of a cluster": Place("scores", (build_stage, "build_in_process"), _in_a_task, "tokens_per_batch"),
    "the first worker of a group": Place(
        "train",
        (rank, "train_rank"),
        lambda stage, context: rank.train_as_first_rank(stage, Mock(context=context), Mock(order=None), NullRun()),
        "micro_batch",
    ),
    "another worker of a group": Place("train", (member, "train_rank"), _follow, "micro_batch"),
    "a worker that makes shards": Place(
        "bank",
        (shards, "worker_body"),
        lambda stage, context: shards.ShardMaker(stage, context, 10, None, None).work(0),
        "tokens_per_batch",
    ),
    "a worker that embeds sentences": Place(
        "scores",
        (embed, "embed_here"),
        lambda stage, context: embed.SentenceEmbedder(stage, context, "").work((0, ["a man"])),
        "tokens_per_batch",
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_error_for_a_full_gpu_names_a_field_and_a_number(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = PLACES[name]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**33))
    monkeypatch.setattr(reserved, "use_reserved", Mock())
    monkeypatch.setattr(*place.patched, Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory.")))
    context = Context(store=ArtifactStore(tmp_path), runtime=Runtime(engine="torch", gpus_per_worker=1))
    with pytest.raises(ResourceError, match=rf"8\.0 GiB, 1\.0 GiB free, full with .*runtime\.{place.field}=\d"):
        place.build(one_of_each()[place.kind], context)


@pytest.mark.parametrize("kind", ["train", "scores"])
def test_what_a_stage_held_of_a_gpu_is_given_back_before_the_next_one(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That one may be built by another process, which finds the GPU full otherwise."""
    happened: list[str] = []
    for module, name in ((train_here, "train_here"), (local, "build_in_process"), (local, "give_back_gpu_memory")):
        monkeypatch.setattr(module, name, Mock(side_effect=lambda *_, name=name, **__: happened.append(name)))
    local.build_here(one_of_each()[kind], Context(store=ArtifactStore(tmp_path), runtime=Runtime(engine="torch")))
    assert happened == ["train_here" if kind == "train" else "build_in_process", "give_back_gpu_memory"]
