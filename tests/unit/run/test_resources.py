"""What a cluster can carry and may become, and which of its devices a recipe uses, as tables."""

from __future__ import annotations

import pickle

import pytest

from sentdist.corpora.groups import Augmentation, GroupedCorpus
from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import ResourceError
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import Training
from sentdist.recipe.stages import Bank, Rung, Scores, Targets, Train
from sentdist.run.resources import (
    ClusterNodes,
    Node,
    capacity,
    gpus_line,
    node_of,
    nodes_to_come,
    old_gpu_of,
    rows_per_part,
    stage_demand,
    with_devices,
    with_gpu_type,
)

A100 = node_of({"CPU": 16.0, "GPU": 4.0, "accelerator_type:A100": 1.0, "accelerator_type:A100-80G": 1.0})
T4 = node_of({"CPU": 8.0, "GPU": 2.0, "accelerator_type:T4": 1.0})
HEAD = node_of({"CPU": 4.0})
MIXED = (A100, T4, HEAD)
ONLY = Runtime(engine="torch", gpus_per_worker=1.0, gpu_type="A100")
GPU_NODE = Node(cpus=4.0, gpus=1.0)
GROWS_TO = '[{"nodes": 3, "CPU": 4, "GPU": 1}, {"nodes": 4, "CPU": 16, "accelerator_type:L4": 1}]'
GIB = 2.0**30
TRAIN = Train.model_construct(training=Training())


def test_memory_bounds_how_many_run_at_once_but_refuses_nothing() -> None:
    found = capacity(Runtime(), (Node(cpus=64, memory_bytes=6 * GIB),), worker_bytes=1.5 * GIB)
    assert (found.trainings_at_once, found.limited_by) == (4, "memory: 1.5 GiB a worker")
    assert capacity(Runtime(workers=2), (Node(cpus=2, memory_bytes=1 * GIB),), worker_bytes=1.5 * GIB).trainings_at_once == 1
    assert capacity(Runtime(), (Node(cpus=64, memory_bytes=6 * GIB),)).limited_by == "CPUs"


def test_the_gpus_that_there_are_are_taken_and_those_that_lie_idle_are_counted() -> None:
    for asked, nodes, gpus_per_worker, line in (
        ({}, [(2, 0)], 0, "on CPUs"),
        ({}, [(16, 8)], 1, "on 8 GPU(s)"),
        ({"workers": 4}, [(16, 3), (16, 1)], 1, "on 4 GPU(s)"),
        ({"cpus_per_worker": 4}, [(16, 8)], 1, "on 4 GPU(s); 4 GPU(s) idle"),
        ({"workers": 4}, [(16, 2)], 0, "on CPUs; 2 GPU(s) idle"),
        ({"gpus_per_worker": 0}, [(16, 2)], 0, "on CPUs; 2 GPU(s) idle"),
        ({"device": "cuda"}, [(16, 2), (16, 0)], 1, "on 2 GPU(s)"),
        ({"gpus_per_worker": 0.25}, [(2, 2)], 0.25, "on 1 GPU(s); 1 GPU(s) idle"),
        ({"gpus_per_worker": 2}, [(16, 8)], 2, "on 4 GPU(s); 4 GPU(s) idle"),
    ):
        before, there = Runtime.model_validate(asked), tuple(Node(cpus=cpus, gpus=gpus) for cpus, gpus in nodes)
        runtime = with_devices(before, there)
        assert runtime.gpus_per_worker == gpus_per_worker
        assert with_devices(runtime, there) == runtime, "what is decided stays"
        at_once = capacity(runtime, there).trainings_at_once * runtime.most_workers
        assert gpus_line(runtime, there, workers_at_once=at_once) == line


def test_workers_that_cannot_change_or_share_are_refused() -> None:
    for runtime, where in (
        ({"workers": [4, 2]}, "workers"),
        ({"workers": [1, 2], "zero_stage": 2}, "workers"),
        ({"workers": [0, 2]}, "workers"),
        ({"gpus_per_worker": 1.5}, "gpus_per_worker"),
        ({"device": "cpu", "gpus_per_worker": 1}, "gpus_per_worker"),
        ({"device": "cuda", "gpus_per_worker": 0}, "gpus_per_worker"),
        ({"engine": "torch", "workers": 2, "zero_stage": 2}, "zero_stage"),
        ({"device": "cpu", "gpu_type": "T4"}, "gpu_type"),
        ({"gpus_per_worker": 0, "gpu_type": "T4"}, "gpu_type"),
    ):
        with pytest.raises(ValueError, match=where):
            Runtime.model_validate(runtime)


def test_what_can_never_run_is_refused_with_the_numbers() -> None:
    for runtime, nodes, numbers in (
        ({"workers": 4, "cpus_per_worker": 2}, [(2, 0)], ["4 workers with 2 CPUs each", "1 node(s) with 2 CPUs", "at most 1"]),
        ({"gpus_per_worker": 1}, [(2, 0)], ["1 workers with 1 CPUs and 1 GPUs", "0 GPUs in all"]),
        ({"workers": 4, "gpus_per_worker": 1}, [(32, 2)], ["4 workers", "at most 2"]),
        ({}, [], ["0 node(s) with 0 CPUs"]),
    ):
        with pytest.raises(ResourceError) as raised:
            capacity(Runtime.model_validate(runtime), tuple(Node(cpus=cpus, gpus=gpus) for cpus, gpus in nodes))
        error = pickle.loads(pickle.dumps(raised.value))
        assert all(number in str(error) for number in numbers), str(error)


def test_a_part_has_rows_enough_for_every_worker() -> None:
    for num_rows, workers, rows in ((100, 8, 512), (80_000, 2, 10_000), (10_000_000, 2, 65_536)):
        assert rows_per_part(num_rows, Runtime(workers=workers)) == rows


def test_only_stages_that_run_an_encoder_reserve_gpus() -> None:
    corpus = RowsCorpus(source="nli/triplets", source_revision="r")
    demand = stage_demand(corpus, Runtime(gpus_per_worker=1, cpus_per_worker=4))
    assert (demand.num_cpus, demand.num_gpus) == (4, 0)
    written = GroupedCorpus.model_construct(augmentation=Augmentation.model_construct(name="paraphrases"))
    assert stage_demand(written, Runtime(gpus_per_worker=1)).num_gpus == 1, "a model writes some of its sentences"
    for workers, gpus in ((1, 0.5), (2, 1)):
        runtime = Runtime(engine="torch", workers=workers, gpus_per_worker=gpus)
        stages = (TRAIN, Rung.model_construct(of=TRAIN), Bank.model_construct(), Scores.model_construct())
        demands = [stage_demand(stage, runtime) for stage in stages]
        assert {demand.num_gpus for demand in demands} == {gpus}
        assert [demand.way for demand in demands] == 3 * ["task" if workers == 1 else "group"] + ["task"]
    assert stage_demand(Targets.model_construct(), Runtime(gpus_per_worker=1)).num_gpus == 0.0, "a tagger counts words on CPUs"
    of_group = {stage_demand(stage, runtime) for stage in (TRAIN, Bank.model_construct(), Targets.model_construct())}
    assert len(of_group) == 1, "one group builds them all"
    assert stage_demand(TRAIN, Runtime()).way == "group", "DeepSpeed on one worker is a group, too"


def test_gpus_of_another_kind_do_not_count_and_their_cpus_do() -> None:
    nodes = with_gpu_type(MIXED, ONLY)
    assert [(node.cpus, node.gpus) for node in nodes] == [(16.0, 4.0), (8.0, 0.0), (4.0, 0.0)]
    assert capacity(ONLY, nodes).trainings_at_once == 4
    assert with_gpu_type(MIXED, Runtime()) == MIXED
    assert old_gpu_of(MIXED) == "T4" and old_gpu_of(nodes) is None, "old ones forbid bf16 only where they are used"
    assert old_gpu_of(tuple(node_of({"GPU": 1.0, f"accelerator_type:{kind}": 1.0}) for kind in ("L4", "V100"))) == "V100"


def test_a_kind_that_no_node_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ResourceError, match=r"runtime\.device=cuda"):
        with_devices(Runtime(device="cuda"), (Node(cpus=2),))
    with pytest.raises(ResourceError, match=r"runtime\.gpu_type.*H100.*A100, A100-80G, T4"):
        with_gpu_type(MIXED, Runtime(gpu_type="H100"))
    with pytest.raises(ResourceError, match="none that Ray knows"):
        with_gpu_type((HEAD, node_of({"CPU": 1.0, "GPU": 1.0})), Runtime(gpu_type="H100"))


def test_a_cluster_trains_on_nodes_to_come() -> None:
    living = (Node(cpus=8.0),)
    runtime = Runtime(engine="torch", gpus_per_worker=1)
    with pytest.raises(ResourceError, match="SENTDIST_GROWS_TO"):
        capacity(runtime, living)
    grows = ClusterNodes(living=living, to_come=nodes_to_come(living, GROWS_TO))
    assert capacity(runtime, grows.nodes).trainings_at_once == 3
    assert with_devices(Runtime(engine="torch"), grows.nodes).gpus_per_worker == 1, "device: auto takes them too"
    assert "1 node of 8" in str(grows.line) and ClusterNodes(living=living).line is None
    left = [len(nodes_to_come((Node(cpus=8.0), *(GPU_NODE,) * number), GROWS_TO)) for number in range(5)]
    assert left == [7, 6, 5, 4, 4], "nodes that live are not counted twice"
    for said in ("[", "[3]", '[{"CPU": 2}]', '[{"nodes": "many"}]', "nowhere.yaml"):
        with pytest.raises(ResourceError, match="SENTDIST_GROWS_TO"):
            nodes_to_come((), said)
