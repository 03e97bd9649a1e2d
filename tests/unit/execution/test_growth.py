"""What a cluster may become: from a launcher's file, from a variable, beside what lives already."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import ResourceError
from sentdist.execution.capacity import capacity, with_devices
from sentdist.execution.cluster import nodes as growth
from sentdist.execution.cluster.nodes import UNBOUNDED, ClusterNodes, Node, _groups, groups_of_launcher, groups_of_list, nodes_to_come
from sentdist.plan.sections import Runtime

GPU_NODE = Node(cpus=4.0, gpus=1.0)
LAUNCHER = {
    "max_workers": 4,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 8}},
        "gpu": {"max_workers": 3, "resources": {"CPU": 4, "GPU": 1}},
        "many": {"resources": {"CPU": 16}},
    },
}


def test_a_launchers_file_gives_its_workers_and_not_its_head() -> None:
    gpus, many = groups_of_launcher(LAUNCHER)
    assert (gpus.most, gpus.offers) == (3, GPU_NODE)
    assert (many.most, many.offers.cpus) == (4, 16.0)


def test_a_file_without_a_bound_is_bounded_here() -> None:
    (group,) = groups_of_launcher({"available_node_types": {"cpu": {"resources": {"CPU": 2}}}})
    assert group.most == UNBOUNDED
    bounded = {"max_workers": 2, "available_node_types": {"cpu": {"max_workers": 5, "resources": {"CPU": 2}}}}
    assert [group.most for group in groups_of_launcher(bounded)] == [2], "of all kinds together there may be no more"


def test_nodes_that_live_are_not_counted_twice() -> None:
    groups = groups_of_list([{"nodes": 3, "CPU": 4, "GPU": 1}])
    assert nodes_to_come((Node(cpus=8.0), GPU_NODE), groups) == (GPU_NODE, GPU_NODE)
    assert nodes_to_come((GPU_NODE,) * 5, groups) == ()
    alike = groups_of_list([{"nodes": 1, "CPU": 4, "GPU": 1}, {"nodes": 2, "CPU": 4, "GPU": 1}])
    assert [len(nodes_to_come((GPU_NODE,) * living, alike)) for living in range(5)] == [3, 2, 1, 0, 0], "each belongs to one group"


def test_a_cluster_that_starts_without_gpus_trains_on_those_to_come() -> None:
    """`capacity` counts what lives; a sweep asked for GPUs on such a cluster was refused."""
    living = (Node(cpus=8.0),)
    runtime = Runtime(engine="torch", gpus_per_worker=1)
    with pytest.raises(ResourceError, match="start the cluster with GPUs"):
        capacity(runtime, living)
    growth = ClusterNodes(living=living, to_come=nodes_to_come(living, groups_of_launcher(LAUNCHER)))
    assert capacity(runtime, growth.nodes).trainings_at_once == 3
    assert with_devices(Runtime(engine="torch"), growth.nodes).gpus_per_worker == 1, "device: auto takes them too"
    assert growth.may_have == (8 + 3 * 4 + 4 * 16, 3)
    assert growth.line == "1 node of 8 is there; the autoscaler adds the others when work waits for them."


def test_a_cluster_that_nobody_adds_to_is_what_it_is() -> None:
    growth = ClusterNodes(living=(GPU_NODE,))
    assert (growth.nodes, growth.may_have, growth.line) == ((GPU_NODE,), None, None)


def test_the_variable_holds_a_list_or_names_a_file(tmp_path: Path) -> None:
    (group,) = _groups({"SENTDIST_GROWS_TO": ' [{"nodes": 2, "CPU": 4, "GPU": 1, "accelerator_type:L4": 1}]'})
    assert (group.most, group.offers.gpu_bytes) == (2, 22 * 2**30)
    file = tmp_path / "cluster.yaml"
    file.write_text("max_workers: 1\navailable_node_types: {cpu: {resources: {CPU: 2}}}\n")
    (group,) = _groups({"SENTDIST_GROWS_TO": str(file)})
    assert (group.most, group.offers.cpus) == (1, 2.0)


@pytest.mark.parametrize("said", ["[", "[3]", '[{"CPU": 2}]', '[{"nodes": "many"}]', "nowhere.yaml", str(Path(__file__))])
def test_a_variable_that_says_nothing_of_nodes_is_refused(said: str) -> None:
    with pytest.raises(ResourceError, match=r"SENTDIST_GROWS_TO.*Correct it"):
        _groups({"SENTDIST_GROWS_TO": said})


def test_a_head_of_the_workers_size_takes_no_worker_s_place(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"Alive": True, "Resources": {"CPU": 16.0, "node:__internal_head__": 1.0}},
        {"Alive": True, "Resources": {"CPU": 16.0}},
    ]
    monkeypatch.setattr(growth.ray, "nodes", lambda: rows)
    found = growth.cluster_growth({growth.VARIABLE: '[{"nodes": 2, "CPU": 16}]'})
    assert len(found.nodes) == 3
    assert capacity(Runtime(workers=3, cpus_per_worker=16), found.nodes).trainings_at_once == 1
