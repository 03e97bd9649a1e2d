"""What is asked of a cluster and reported to it, with Ray stood in for: its state, who leaves it, how it may grow, what errors say."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.autoscaler._private.kuberay import node_provider
from ray.exceptions import RayTaskError, WorkerCrashedError

from sentdist.errors import DataError, ResourceError
from sentdist.execution.board import actor as snapshot
from sentdist.execution.cluster import address as own_cluster
from sentdist.execution.cluster import nodes as growth
from sentdist.execution.cluster import nodes as leaving
from sentdist.execution.cluster.connection import cause_of, on_node, reason
from sentdist.store.local_storage import maker_of, scratch_name

ROWS = [
    {"Alive": True, "NodeID": "aa", "NodeManagerAddress": "10.0.0.2", "Resources": {"CPU": 8.0, "GPU": 2.0}},
    {"Alive": False, "NodeID": "bb", "NodeManagerAddress": "10.0.0.3", "Resources": {"CPU": 8.0}},
    {"Alive": True, "NodeID": "cc", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 4.0}},
]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Nodes that a head was notified will go, and until when (ms since 1970); it refuses the one that is called dd."""
    asked: list[tuple[str, int]] = []

    def drain_node(node: str, why: int, words: str, deadline_ms: int) -> tuple[bool, str]:
        asked.append((node, deadline_ms))
        return node != "dd", "it is busy"

    monkeypatch.setattr(leaving, "GcsClient", lambda address: SimpleNamespace(drain_node=drain_node))
    monkeypatch.setattr(leaving.ray, "nodes", lambda: ROWS)
    monkeypatch.setattr(leaving.ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="10.0.0.1:6379", get_node_id=lambda: "aa"))
    return asked


def _raised(cause: Exception, ip: str) -> RayTaskError:
    """As `ray.get` raises what a worker's body raised on a node."""
    trace = f"ray::SentenceEmbedder.work() (pid=7, ip={ip}, actor_id=ab, repr=<embed>)\n  File embed.py"
    error: RayTaskError = RayTaskError("work", trace, cause, ip=ip).as_instanceof_cause()
    return error


def test_a_clusters_state_is_that_of_its_living_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot.ray, "nodes", lambda: ROWS)
    monkeypatch.setattr(snapshot.ray, "available_resources", lambda: {"CPU": 3.0, "GPU": 1.0})
    found = snapshot.read_cluster((40.0, 8.0))
    assert [(host.node, host.address, host.offers.cpus, host.offers.gpus) for host in found.hosts] == [
        ("aa", "10.0.0.2", 8.0, 2.0), ("cc", "10.0.0.1", 4.0, 0.0),
    ]  # fmt: skip
    assert (found.cpus, found.gpus, found.free_cpus, found.free_gpus, found.may_have) == (12.0, 2.0, 3.0, 1.0, (40.0, 8.0))
    monkeypatch.setattr(snapshot.ray, "available_resources", dict)
    assert (snapshot.read_cluster().free_cpus, snapshot.read_cluster().free_gpus) == (0.0, 0.0), "Ray leaves out what is taken"


def test_the_living_hosts_that_go_are_reported_with_the_time_that_is_left(
    reported: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for everywhere, nodes, addresses in ((False, ["aa"], ["10.0.0.2"]), (True, ["aa", "cc"], ["10.0.0.1", "10.0.0.2"])):
        reported.clear()
        before = time.time()
        assert leaving.leave(within_s=90.0, everywhere=everywhere) == addresses
        assert [node for node, _ in reported] == nodes
        assert all(before + 89 < deadline / 1000 < time.time() + 91 for _, deadline in reported)
    monkeypatch.setattr(leaving.ray, "nodes", lambda: [*ROWS, ROWS[0] | {"NodeID": "dd", "NodeManagerAddress": "10.0.0.9"}])
    with pytest.raises(ResourceError, match=r"10\.0\.0\.9.*it is busy"):
        leaving.leave(within_s=90.0, everywhere=True)


def test_an_autoscaler_that_reported_to_ray_what_there_may_be_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [
        SimpleNamespace(max_count=3, resources={"CPU": 4}),
        SimpleNamespace(max_count=-1, resources={"CPU": 2, "GPU": 1}),  # without a bound
        SimpleNamespace(max_count=0, resources={"CPU": 1}),
        SimpleNamespace(max_count=5, resources={}),
    ]
    from ray._private.state import state

    monkeypatch.setattr(state, "get_cluster_config", lambda: SimpleNamespace(node_group_configs=groups))
    found = [(group.most, group.offers.cpus, group.offers.gpus) for group in growth._groups_of_ray()]
    assert found == [(3, 4.0, 0.0), (growth.UNBOUNDED, 2.0, 1.0)]
    monkeypatch.setattr(state, "get_cluster_config", lambda: None)
    assert growth._groups_of_ray() == ()


def test_kubernetes_that_does_not_answer_is_reported_and_one_that_gives_no_right_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = {"RAY_CLUSTER_NAME": "mine", "RAY_CLUSTER_NAMESPACE": "default", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for status, is_reported in ((403, False), (404, False), (500, True), (None, True)):

        def get(path: str, status: int | None = status) -> dict[str, Any]:
            error = OSError("it is away")
            error.response = SimpleNamespace(status_code=status)  # type: ignore[attr-defined]
            raise error

        monkeypatch.setattr(node_provider, "KubernetesHttpApiClient", lambda namespace, get=get: SimpleNamespace(get=get))
        assert growth._kuberay_spec(pod) == {}
        assert ("it is away" in capsys.readouterr().err) == is_reported


def test_what_a_killed_process_left_of_its_cluster_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of hundreds of MB stayed in /tmp; those of living processes, of others and of unknown ones stay."""
    mine = scratch_name("cluster")
    dead = mine.replace(f"~{os.getpid()}~", f"~{2**22 + 1}~")  # beyond the largest process id of Linux
    names = {"living": mine, "dead": dead, "elsewhere": f"sentdist-cluster~other-machine~{2**22 + 1}~00000000", "unknown": "session"}
    for name, marked in names.items():
        (tmp_path / f"sd-own-{name}").mkdir()
        (tmp_path / f"sd-own-{name}" / marked).touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / dead).touch()
    (tmp_path / "sd-own-link").symlink_to(tmp_path / "outside")
    monkeypatch.setattr(own_cluster, "PLACE", str(tmp_path))
    monkeypatch.setattr(ray, "init", lambda **asked: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with own_cluster.own_cluster(cpus=1):
        (ours,) = {path.name for path in tmp_path.iterdir()} - {"outside", "sd-own-link", *(f"sd-own-{name}" for name in names)}
        assert [maker_of(path.name) for path in (tmp_path / ours).iterdir()] == ["living"]
    left = {"outside", "sd-own-link", "sd-own-living", "sd-own-elsewhere", "sd-own-unknown"}
    assert {path.name for path in tmp_path.iterdir()} == left and (tmp_path / "outside" / dead).exists()


def test_the_reason_of_a_loss_shows_no_password() -> None:
    lost = WorkerCrashedError()
    assert reason(lost).startswith("WorkerCrashedError: ")
    assert reason(OSError("\n no way to s3://me:secret@host/bucket\nmore")) == "OSError: no way to s3://host/bucket"
    assert reason(OSError()) == "OSError"


def test_an_error_of_another_hosts_gpu_names_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    full = ResourceError(where="encoder minilm-l6", found="a full GPU", expected="work that fits", remedy="Take another.")
    there, here = (_raised(full, ip) for ip in ("10.0.0.2", "10.0.0.1"))
    reported = on_node(there)
    assert isinstance(reported, ResourceError) and reported.where.startswith("node 10.0.0.2: encoder minilm-l6")
    assert on_node(here) is full
    of_all = DataError(where="corpus.csv", found="no such file", expected="a file", remedy="Correct it.")
    assert on_node(_raised(of_all, "10.0.0.2")) is of_all
    error = ValueError("of the body")
    once = RayTaskError("inner", "trace", error)
    assert cause_of(RayTaskError("outer", "trace", once)) is error and cause_of(once) is error and cause_of(error) is error
