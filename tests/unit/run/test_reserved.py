"""What a worker uses of its node: the CPUs it reserved, of a GPU no more than its share; and what is said where a GPU is full."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.recipe.sections import Runtime
from sentdist.run import orders, rank
from sentdist.run.resources import Demand, use_reserved
from sentdist.run.submissions import Submission
from sentdist.stages import local, rungs
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.every_stage import one_of_each
from tests.support.lost_training import RecordingSink


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment in which nothing is chosen for torch's allocator."""
    own = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    monkeypatch.setattr(os, "environ", own)
    return own


@dataclass(frozen=True)
class Place:
    """Where a stage of some kind is built. patched: what computes there. field: what the error names."""

    kind: str
    patched: tuple[Any, str]
    build: Callable[[Any, Context], object]
    field: str


def _in_a_task(stage: Any, context: Context) -> object:
    sink: Any = RecordingSink()
    return orders.build_stage(stage, Submission(context=context, tracker=Mock()), sink)


def _follow(stage: Any, context: Context) -> object:
    order, sink = Mock(stage=stage, submission=Mock(context=context)), Mock(order=None)
    return orders._follow(order, sink)


PLACES = {
    "a training in this process": Place("train", (rungs, "train_here"), local.build_here, "micro_batch"),
    "a process of a cluster": Place("scores", (orders, "build_in_process"), _in_a_task, "tokens_per_batch"),
    "another worker of a group": Place("train", (rank, "train_rank"), _follow, "micro_batch"),
}


def demand(num_gpus: float) -> Demand:
    return Demand(way="task", workers=1, num_cpus=1.0, num_gpus=num_gpus)


@pytest.mark.usefixtures("one_thread")
def test_memory_of_a_gpu_stays_whole_unless_the_user_chose_otherwise(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And a part of a GPU bounds it: four quarters lie on it together, and four contexts of CUDA, which torch does not count."""
    read, bounds = list[str | None](), list[float]()  # by torch, when it is asked of the GPU for the first time
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: read.append(environment.get("PYTORCH_ALLOC_CONF")) or (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(total_memory=80 * 2**30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", bounds.append)
    use_reserved(demand(0.0))
    assert "PYTORCH_ALLOC_CONF" not in environment
    for num_gpus in (0.25, 0.01, 1.0, 2.0):
        use_reserved(demand(num_gpus))
    assert bounds == [0.25 - 0.6 / 80, 0.005, 1.0, 1.0]
    assert set(read) == {"expandable_segments:True"}
    del environment["PYTORCH_ALLOC_CONF"]
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        with monkeypatch.context() as chosen:
            chosen.setitem(environment, name, "max_split_size_mb:512")
            use_reserved(demand(1.0))
            assert [value for key, value in environment.items() if "ALLOC_CONF" in key] == ["max_split_size_mb:512"]


@pytest.mark.usefixtures("one_thread")
def test_a_gpu_that_torch_cannot_use_is_reported_and_nothing_runs_on_the_cpu_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    use_reserved(demand(0.0))
    with pytest.raises(ResourceError, match=r"runtime\.gpus_per_worker"):
        use_reserved(demand(1.0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    with pytest.raises(ResourceError, match=r"7\.5 or newer; Tesla V100 has 7\.0"):
        use_reserved(demand(1.0))


@pytest.mark.parametrize("name", PLACES)
def test_the_error_for_a_full_gpu_names_a_field_and_a_number(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = PLACES[name]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**33))
    monkeypatch.setattr(orders, "use_reserved", Mock())
    monkeypatch.setattr(*place.patched, Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory.")))
    context = Context(store=ArtifactStore(tmp_path), runtime=Runtime(engine="torch", gpus_per_worker=1))
    with pytest.raises(ResourceError, match=rf"8\.0 GiB, 1\.0 GiB free, full with .*runtime\.{place.field}=\d"):
        place.build(one_of_each()[place.kind], context)
