"""Clusters with GPUs of several kinds: `runtime.gpu_type` uses one alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sentdist.errors import ResourceError
from sentdist.execution.board import actor as snapshot
from sentdist.execution.board import worker_groups
from sentdist.execution.capacity import capacity, gpu_types_note, with_devices, with_gpu_type
from sentdist.execution.cluster.nodes import node_of, old_gpu_of
from sentdist.execution.demand import pool_demand, stage_demand
from sentdist.execution.training.worker_group import _scaling
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import Bank, Rung, Scores
from tests.unit.execution.test_capacity import TRAIN

A100 = node_of({"CPU": 16.0, "GPU": 4.0, "accelerator_type:A100": 1.0, "accelerator_type:A100-80G": 1.0})
T4 = node_of({"CPU": 8.0, "GPU": 2.0, "accelerator_type:T4": 1.0})
HEAD = node_of({"CPU": 4.0})
MIXED = (A100, T4, HEAD)
ONLY = Runtime(engine="torch", gpus_per_worker=1.0, gpu_type="A100")


def test_gpus_of_another_kind_do_not_count_and_their_cpus_do() -> None:
    nodes = with_gpu_type(MIXED, ONLY)
    assert [(node.cpus, node.gpus) for node in nodes] == [(16.0, 4.0), (8.0, 0.0), (4.0, 0.0)]
    assert capacity(ONLY, nodes).trainings_at_once == 4
    assert with_gpu_type(MIXED, Runtime()) == MIXED


def test_old_gpus_beside_new_ones_forbid_bf16_only_where_they_are_used() -> None:
    assert old_gpu_of(MIXED) == "T4"
    assert old_gpu_of(with_gpu_type(MIXED, ONLY)) is None


def test_a_kind_that_no_node_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ResourceError, match=r"runtime\.gpu_type.*H100.*A100, A100-80G, T4"):
        with_gpu_type(MIXED, Runtime(gpu_type="H100"))
    with pytest.raises(ResourceError, match="none that Ray knows"):
        with_gpu_type((HEAD, node_of({"CPU": 1.0, "GPU": 1.0})), Runtime(gpu_type="H100"))


@pytest.mark.parametrize("values", [{"device": "cpu"}, {"gpus_per_worker": 0}])
def test_a_kind_where_no_gpu_is_asked_for_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="gpu_type: found T4 where no GPU is asked for"):
        Runtime.model_validate(values | {"gpu_type": "T4"})


def test_every_way_of_building_asks_for_the_kind_and_what_needs_no_gpu_does_not() -> None:
    stages = (Rung.model_construct(of=TRAIN), Bank.model_construct(), Scores.model_construct())
    demands = [
        stage_demand(stage, ONLY.model_copy(update=change)) for stage in stages for change in ({}, {"workers": 2}, {"engine": "deepspeed"})
    ]
    demands.append(pool_demand(ONLY, gpus=1.0))
    assert {demand.way for demand in demands} == {"task", "group", "pool"}
    for demand in demands:
        assert demand.resources == {"accelerator_type:A100": 0.001}
        assert demand.builder_resources == (demand.resources if demand.way == "task" else None)
        assert (demand.workers_on(A100), demand.workers_on(T4), demand.workers_on(HEAD)) == (4, 0, 0)
        if demand.way == "group":
            assert _scaling(demand).resources_per_worker == {"CPU": 1.0, "GPU": 1.0, "accelerator_type:A100": 0.001}
    corpus = stage_demand(RowsCorpus(source="nli/triplets", source_revision="r"), ONLY)
    assert corpus.resources is None and corpus.workers_on(T4) == 8


def test_room_on_gpus_of_another_kind_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = pool_demand(ONLY, gpus=1.0)
    free = {"head": {"CPU": 4.0}, "old": {"CPU": 8.0, "GPU": 2.0, "accelerator_type:T4": 1.0}}
    monkeypatch.setattr(snapshot, "available_resources_per_node", lambda: free)
    assert not snapshot.has_room(demand) and snapshot.has_room(replace(demand, gpu_type="T4"))
    free["new"] = {"CPU": 1.0, "GPU": 0.0, "accelerator_type:A100": 0.996}
    assert not snapshot.has_room(demand)
    free["new"]["GPU"] = 1.0
    assert snapshot.has_room(demand)


def test_workers_with_another_kind_of_gpu_do_not_build_a_stage() -> None:
    demand = stage_demand(Scores.model_construct(), ONLY)

    def fits(group: str | None) -> bool:
        made = worker_groups._Group(name="workers-1", demand=replace(demand, gpu_type=group), started=None)  # type: ignore[arg-type]
        return worker_groups._fits(made, demand)

    assert (fits("A100"), fits("T4"), fits(None)) == (True, False, False)
    anything = replace(demand, gpu_type=None)
    assert worker_groups._fits(worker_groups._Group(name="workers-1", demand=demand, started=None), anything)  # type: ignore[arg-type]


def test_who_uses_several_kinds_as_they_come_is_reported() -> None:
    runtime = with_devices(Runtime(), MIXED)
    assert (note := gpu_types_note(runtime, MIXED)) is not None and "4 A100, 4 A100-80G, 2 T4" in note and "runtime.gpu_type" in note
    assert gpu_types_note(runtime, (A100, A100, HEAD)) is None
    assert gpu_types_note(ONLY, with_gpu_type(MIXED, ONLY)) is None
    assert gpu_types_note(runtime.with_gpus(0.0), MIXED) is None
