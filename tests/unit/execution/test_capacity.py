"""What a cluster can carry, as tables."""

from __future__ import annotations

import pickle

import pytest

from sentdist.errors import ResourceError
from sentdist.execution.capacity import capacity, share_of_a_gpu, with_devices
from sentdist.execution.cluster.nodes import Node, nodes_of, old_gpu_of
from sentdist.execution.demand import ElasticWidth, gpu_memory_note, gpus_line, stage_demand, uses_worker_group
from sentdist.plan.corpora.groups import Augmentation, GroupedCorpus
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import Training
from sentdist.plan.stages import Bank, Rung, Scores, Targets, Train

GIB = 2.0**30
TRAIN = Train.model_construct(training=Training())


@pytest.mark.parametrize(
    ("share", "gpus", "at_once"), [(0.6, 4, 4), (0.4, 2, 4), (0.3, 4, 12), (0.7, 8, 8), (0.25, 2, 8), (1, 4, 4), (2, 5, 2)]
)
def test_a_part_of_a_gpu_comes_from_one_gpu(share: float, gpus: int, at_once: int) -> None:
    """As Ray gives it: 0.6 of four GPUs are four workers, not six."""
    found = capacity(Runtime(cpus_per_worker=0.1, gpus_per_worker=share), (Node(cpus=64, gpus=gpus),))
    assert (found.trainings_at_once, found.limited_by) == (at_once, "GPUs")


@pytest.mark.parametrize("beside", [Node(cpus=64, memory_bytes=64 * GIB), Node(cpus=1, memory_bytes=512 * GIB), Node(cpus=2)])
def test_memory_of_a_node_that_takes_few_workers_helps_no_other_node(beside: Node) -> None:
    small = Node(cpus=16, gpus=4, memory_bytes=16 * GIB)
    runtime = Runtime(gpus_per_worker=0.25)
    assert capacity(runtime, (small,), worker_bytes=2.6 * GIB).trainings_at_once == 6
    assert capacity(runtime, (small, beside), worker_bytes=2.6 * GIB).trainings_at_once == 6, "there is no GPU"
    on_cpus = capacity(Runtime(), (Node(cpus=64, memory_bytes=16 * GIB), beside), worker_bytes=2.6 * GIB)
    assert on_cpus.trainings_at_once <= 6 + min(beside.cpus, 24)


@pytest.mark.parametrize(
    ("runtime", "nodes", "at_once", "limited_by"),
    [
        ({}, [(2, 0)], 2, "CPUs"),
        ({"workers": 2}, [(2, 0)], 1, "CPUs"),
        ({"workers": 2, "cpus_per_worker": 0.5}, [(2, 0)], 2, "CPUs"),
        ({"workers": 4}, [(2, 0), (2, 0)], 1, "CPUs"),
        ({"workers": 3}, [(2, 0), (2, 0), (2, 0)], 2, "CPUs"),
        ({"cpus_per_worker": 2}, [(3, 0), (3, 0)], 2, "CPUs"),  # what is left over on two nodes does not make a third
        ({"cpus_per_worker": 4, "gpus_per_worker": 1}, [(16, 1)], 1, "GPUs"),
        ({"cpus_per_worker": 4, "gpus_per_worker": 0.25}, [(16, 1)], 4, "CPUs"),
        ({"cpus_per_worker": 1, "gpus_per_worker": 0.25}, [(16, 1)], 4, "GPUs"),
        ({"workers": 8, "gpus_per_worker": 1}, [(32, 4), (32, 4), (32, 4)], 1, "GPUs"),
        ({"cpus_per_worker": 0.1}, [(0.3, 0)], 3, "CPUs"),  # 0.3 / 0.1 is 2.9999…
    ],
)
def test_as_many_trainings_as_fit_node_by_node(
    runtime: dict[str, float], nodes: list[tuple[float, float]], at_once: int, limited_by: str
) -> None:
    found = capacity(Runtime.model_validate(runtime), tuple(Node(cpus=cpus, gpus=gpus) for cpus, gpus in nodes))
    assert (found.trainings_at_once, found.limited_by, found.max_concurrent_trials) == (at_once, limited_by, at_once)


def test_memory_bounds_how_many_run_at_once_but_refuses_nothing() -> None:
    found = capacity(Runtime(), (Node(cpus=64, memory_bytes=6 * GIB),), worker_bytes=1.5 * GIB)
    assert (found.trainings_at_once, found.limited_by) == (4, "memory: 1.5 GiB a worker")
    assert capacity(Runtime(workers=2), (Node(cpus=2, memory_bytes=1 * GIB),), worker_bytes=1.5 * GIB).trainings_at_once == 1
    assert capacity(Runtime(), (Node(cpus=64, memory_bytes=6 * GIB),)).limited_by == "CPUs"


@pytest.mark.parametrize(
    ("asked", "takes_gib", "gpus", "share", "note"),
    [
        (0.25, 3.0, [16.0], 0.25, None),  # its part is enough
        (0.25, 6.0, [16.0], 0.4, "6.0 GiB of a GPU by estimate, of which the smallest has 16.0 GiB: each gets 0.4 of one, not 0.25."),
        (0.25, 6.8, [16.0], 0.5, "each gets 0.5 of one"),  # 0.425 of it: less than that would not do
        (0.25, 6.0, [16.0, 80.0], 0.4, "each gets 0.4 of one"),  # it may come onto the smaller one
        (0.25, 90.0, [80.0], 1.0, "each gets 1 of one"),
        (0.25, 90.0, [], 0.25, None),  # nobody knows how large they are
        (1.0, 90.0, [80.0], 1.0, "of which the smallest has 80.0 GiB. A smaller runtime.micro_batch takes less."),
        (1.0, 70.0, [80.0], 1.0, None),
        (0.0, 90.0, [80.0], 0.0, None),
    ],
)
def test_too_small_a_part_of_a_gpu_is_made_larger(
    asked: float, takes_gib: float, gpus: list[float], share: float, note: str | None
) -> None:
    runtime, nodes = Runtime(gpus_per_worker=asked), (Node(cpus=4), *(Node(cpus=4, gpus=1, gpu_bytes=gib * GIB) for gib in gpus))
    assert share_of_a_gpu(runtime, nodes, worker_bytes=takes_gib * GIB) == share
    found = gpu_memory_note(runtime, nodes, worker_bytes=takes_gib * GIB)
    assert found is None if note is None else note in str(found)


@pytest.mark.parametrize(
    ("asked", "nodes", "gpus_per_worker", "line"),
    [
        ({}, [(2, 0)], 0, "on CPUs"),
        ({}, [(2, 1)], 1, "on 1 GPU(s)"),
        ({}, [(16, 8)], 1, "on 8 GPU(s)"),
        ({"workers": 4}, [(16, 8)], 1, "on 8 GPU(s)"),
        ({"workers": 4}, [(16, 3), (16, 1)], 1, "on 4 GPU(s)"),
        ({"cpus_per_worker": 4}, [(16, 8)], 1, "on 4 GPU(s); idle: 4 (bound by CPUs)"),
        ({"workers": 4}, [(16, 2)], 0, "on CPUs; idle: 2 GPU(s) (4 workers with a GPU and 1 CPU(s) each do not fit)"),
        ({"gpus_per_worker": 0}, [(16, 2)], 0, "on CPUs; idle: 2 GPU(s) (runtime.gpus_per_worker=0)"),
        ({"device": "cpu"}, [(16, 2)], 0, "on CPUs; idle: 2 GPU(s) (runtime.device=cpu)"),
        ({"device": "cuda"}, [(16, 2), (16, 0)], 1, "on 2 GPU(s)"),
        ({"gpus_per_worker": 0.25}, [(2, 2)], 0.25, "on 1 GPU(s); idle: 1 (bound by CPUs)"),
        ({"gpus_per_worker": 2}, [(16, 8)], 2, "on 4 GPU(s); idle: 4 (a worker computes on one of its 2: set runtime.gpus_per_worker=1)"),
    ],
)
def test_the_gpus_that_there_are_are_taken_and_those_that_lie_idle_are_reported(
    asked: dict[str, object], nodes: list[tuple[float, float]], gpus_per_worker: float, line: str
) -> None:
    before, there = Runtime.model_validate(asked), tuple(Node(cpus=cpus, gpus=gpus) for cpus, gpus in nodes)
    runtime = with_devices(before, there)
    assert runtime.gpus_per_worker == gpus_per_worker
    assert with_devices(runtime, there) == runtime, "what is decided stays"
    offered = capacity(runtime, there)
    at_once = offered.trainings_at_once * runtime.most_workers
    assert gpus_line(before, runtime, there, workers_at_once=at_once, limited_by=offered.limited_by) == line


def test_gpus_that_are_insisted_on_must_be_there() -> None:
    with pytest.raises(ResourceError, match=r"runtime\.device=cuda: found a cluster of 1 node\(s\) without GPUs"):
        with_devices(Runtime(device="cuda"), (Node(cpus=2),))
    for runs in ({"device": "cpu", "gpus_per_worker": 1}, {"device": "cuda", "gpus_per_worker": 0}):
        with pytest.raises(ValueError, match="leave one of them out"):
            Runtime.model_validate(runs)


@pytest.mark.parametrize(("cpus", "at_once"), [([1], 1), ([2, 1], 1), ([4], 1), ([4, 5], 2)])
def test_a_training_whose_workers_may_change_runs_with_the_fewest(cpus: list[float], at_once: int) -> None:
    runtime = Runtime(engine="torch", workers=(1, 4))
    assert capacity(runtime, tuple(Node(cpus=number) for number in cpus)).trainings_at_once == at_once
    with pytest.raises(ResourceError, match=r"a training of 1 × 1 CPUs = 1 CPUs, on 0 node\(s\)"):
        capacity(runtime, ())


def test_what_changes_its_workers_waits_for_the_fewest() -> None:
    demand = stage_demand(TRAIN, Runtime(engine="torch", workers=(2, 4), checkpoint_every_s=30))
    assert (demand.way, demand.workers, demand.enough, demand.change) == ("group", 4, 2, ElasticWidth(fewest=2, every_s=30))
    assert stage_demand(TRAIN, Runtime(engine="torch", workers=(2, 2))).change is None


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        ({"workers": [4, 2]}, r"workers: found \[4, 2\]; expected \[fewest, most\]"),
        ({"workers": [1, 2], "zero_stage": 2}, r"workers: found \[1, 2\] with zero_stage 2; expected zero_stage 0"),
        ({"gpus_per_worker": 1.5}, "gpus_per_worker: found 1.5; expected a part up to 1, or a whole number"),
        ({"engine": "torch", "workers": 2, "zero_stage": 2}, "zero_stage: found 2 with engine torch, where each worker keeps all"),
        ({"workers": [0, 2]}, "greater than or equal to 1"),
        ({"workers": [1, 2, 3]}, "at most 2 items"),
    ],
)
def test_workers_that_cannot_change_or_share_are_refused(runtime: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Runtime.model_validate(runtime)


def test_the_wanted_number_of_trials_is_taken() -> None:
    assert capacity(Runtime(max_concurrent_trials=3), (Node(cpus=2),)).max_concurrent_trials == 3


@pytest.mark.parametrize(
    ("runtime", "nodes", "numbers", "remedy"),
    [
        (
            {"workers": 4, "cpus_per_worker": 2},
            [(2, 0)],
            ["4 × 2 CPUs = 8 CPUs", "1 node(s) with 2 CPUs", "at most 1"],
            "runtime.workers=1",
        ),
        ({"cpus_per_worker": 4}, [(2, 0), (2, 0)], ["1 × 4 CPUs", "2 node(s) with 4 CPUs", "at most 0"], "runtime.cpus_per_worker=1"),
        ({"gpus_per_worker": 1}, [(2, 0)], ["1 × 1 GPUs = 1 GPUs", "0 GPUs in all"], "runtime.gpus_per_worker=0"),
        ({"workers": 4, "gpus_per_worker": 1}, [(32, 2)], ["4 × 1 GPUs = 4 GPUs", "2 GPUs in all", "at most 2"], "runtime.workers=2"),
        ({}, [], ["0 node(s) with 0 CPUs"], "add nodes"),
    ],
)
def test_what_can_never_run_is_refused_with_the_numbers(
    runtime: dict[str, float], nodes: list[tuple[float, float]], numbers: list[str], remedy: str
) -> None:
    with pytest.raises(ResourceError) as raised:
        capacity(Runtime.model_validate(runtime), tuple(Node(cpus=cpus, gpus=gpus) for cpus, gpus in nodes))
    error = pickle.loads(pickle.dumps(raised.value))
    assert all(number in str(error) for number in numbers), str(error)
    assert remedy in error.remedy


def test_dead_nodes_do_not_count() -> None:
    rows = [
        {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0, "memory": 8e9, "node:10.0.0.1": 1.0}},
        {"Alive": False, "Resources": {"CPU": 64.0}},
        {"Alive": True, "Resources": {}},
    ]
    assert nodes_of(rows) == (Node(cpus=4.0, gpus=1.0, memory_bytes=8e9), Node(cpus=0.0))
    kinds = {"GPU": 1.0, "accelerator_type:A100": 1.0, "accelerator_type:A100-80G": 1.0}
    assert nodes_of([{"Alive": True, "Resources": kinds}]) == (
        Node(cpus=0.0, gpus=1.0, gpu_bytes=79 * GIB, gpu_types=("A100", "A100-80G")),
    )


@pytest.mark.parametrize(
    ("runtime", "is_group"),
    [({}, True), ({"engine": "torch"}, False), ({"engine": "torch", "workers": 2}, True), ({"workers": 2}, True)],
)
def test_only_the_torch_engine_on_one_worker_does_without_a_worker_group(runtime: dict[str, object], is_group: bool) -> None:
    assert uses_worker_group(Runtime.model_validate(runtime)) == is_group


def test_only_stages_that_run_an_encoder_reserve_gpus() -> None:
    corpus = RowsCorpus(source="nli/triplets", source_revision="r")
    demand = stage_demand(corpus, Runtime(gpus_per_worker=1, cpus_per_worker=4))
    assert (demand.num_cpus, demand.num_gpus) == (4, 0)
    written = GroupedCorpus.model_construct(augmentation=Augmentation.model_construct(name="paraphrases"))
    assert stage_demand(written, Runtime(gpus_per_worker=1)).num_gpus == 1, "a model writes some of its sentences"
    for workers in (1, 2):
        runtime = Runtime(engine="torch", workers=workers, gpus_per_worker=0.5)
        stages = (TRAIN, Rung.model_construct(of=TRAIN), Bank.model_construct(), Scores.model_construct())
        assert {stage_demand(stage, runtime).num_gpus for stage in stages} == {0.5}
        assert stage_demand(Targets.model_construct(), runtime).num_gpus == 0.0, "a tagger counts words on CPUs"


def test_a_gpu_older_than_ampere_is_known_by_its_kind() -> None:
    def cluster(*kinds: str) -> tuple[Node, ...]:
        return nodes_of([{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0, f"accelerator_type:{kind}": 1.0}} for kind in kinds])

    assert old_gpu_of(cluster("A100", "L4", "H100", "A-kind-to-come")) is None
    assert old_gpu_of(cluster("A100", "T4")) == "T4"
    assert old_gpu_of(cluster("V100")) == "V100"
