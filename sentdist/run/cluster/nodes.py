"""Describe the nodes of a cluster, present and to come; count the workers each holds; give hosts notice to leave."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]  # as `ray drain-node`, which takes seconds for each host
from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION  # type: ignore[attr-defined]

from sentdist.errors import ResourceError, SentdistError, brief, counted, first_line
from sentdist.machine import GPUS
from sentdist.recipe.wording import parsed_yaml
from sentdist.run.cluster.address import HEAD_RESOURCE

GPU_TYPE = "accelerator_type:"  # prefix of Ray's resource for nodes with GPUs of a type


@dataclass(frozen=True, kw_only=True)
class Node:
    """Resources of one node."""

    cpus: float
    gpus: float = 0.0
    memory_bytes: float = math.inf
    gpu_bytes: float = math.inf  # memory of each GPU; infinite if unknown
    old_gpu: str | None = None  # type of its GPUs if known and older than Ampere
    gpu_types: tuple[str, ...] = ()  # Ray's names; sometimes a family and its member


def nodes_of(rows: Iterable[Mapping[str, object]]) -> tuple[Node, ...]:
    """Return the living nodes in the answer of `ray.nodes()`."""
    return tuple(node_of(row["Resources"]) for row in rows if row["Alive"] and isinstance(row["Resources"], Mapping))


def node_of(resources: Mapping[str, object]) -> Node:
    """Return the node with these resources by Ray's names: CPU, GPU, memory (bytes), accelerator_type:NAME."""
    known = {name: float(str(resources[name])) for name in ("CPU", "GPU", "memory") if name in resources}
    kinds = [kind for kind in GPUS if f"{GPU_TYPE}{kind}" in resources]
    return Node(
        cpus=known.get("CPU", 0.0),
        gpus=known.get("GPU", 0.0),
        memory_bytes=known.get("memory", math.inf),
        gpu_bytes=max((gib * 2.0**30 for kind in kinds if (gib := GPUS[kind].gib) is not None), default=math.inf),  # A100-80G beside A100
        old_gpu=next((kind for kind in kinds if GPUS[kind].is_old), None),
        gpu_types=tuple(sorted(name.removeprefix(GPU_TYPE) for name in resources if name.startswith(GPU_TYPE))),
    )


def workers_on(node: Node, *, num_cpus: float, num_gpus: float) -> int:
    """Return how many workers of this size fit on a node."""
    by_cpus = how_often(node.cpus, num_cpus)
    return int(min(by_cpus, gpu_shares(node.gpus, num_gpus)) if num_gpus else by_cpus)


def gpu_shares(gpus: float, num_gpus: float) -> float:
    """Return how many requests of one size fit on a node's GPUs. Ray takes a fraction from one GPU, so 0.6 fits on four GPUs four times.

    Only the sum of partly used GPUs is known: the fraction beyond whole GPUs counts as the rest of one.
    """
    if num_gpus >= 1 or math.isinf(gpus):
        return how_often(gpus, num_gpus)
    whole = math.floor(gpus + 1e-9)
    return whole * how_often(1.0, num_gpus) + how_often(max(0.0, gpus - whole), num_gpus)


def how_often(offered: float, wanted: float) -> float:
    """Return how often `wanted` fits; the small term allows for rounding, as in 0.1 + 0.2."""
    return offered if math.isinf(offered) else math.floor(offered / wanted + 1e-9)


def smallest_gpu(nodes: tuple[Node, ...]) -> float:
    """Return the memory of the smallest GPU in bytes; infinite if unknown or without GPUs."""
    return min((node.gpu_bytes for node in nodes if node.gpus), default=math.inf)


def old_gpu_of(nodes: tuple[Node, ...]) -> str | None:
    """Return the type of a GPU older than Ampere, if there is one."""
    return next((node.old_gpu for node in nodes if node.gpus and node.old_gpu), None)


VARIABLE = "SENTDIST_GROWS_TO"
LAUNCHER_FILE = "~/ray_bootstrap_config.yaml"  # `ray up` leaves it on the head
EXPECTED = 'a file of Ray\'s cluster launcher, or a list of node groups: [{"nodes": 4, "CPU": 8, "GPU": 1}]'
REMEDY = "Correct it where the head is started; SENTDIST_GROWS_TO=[] counts only present nodes."
UNBOUNDED = 1000  # nodes of a group without a limit


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes of one type that an autoscaler may add. most: largest number of them."""

    most: int
    offers: Node


@dataclass(frozen=True, kw_only=True)
class ClusterNodes:
    """The nodes of a cluster. living: present nodes. to_come: nodes that an autoscaler may add."""

    living: tuple[Node, ...]
    to_come: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.living + self.to_come

    @property
    def may_have(self) -> tuple[float, float] | None:
        """CPUs and GPUs of all nodes; None if none is to come."""
        return (sum(node.cpus for node in self.nodes), sum(node.gpus for node in self.nodes)) if self.to_come else None

    @property
    def line(self) -> str | None:
        """Numbers of present and future nodes, as a sentence; None if none is to come."""
        if not self.to_come:
            return None
        there = f"{counted(len(self.living), 'node')} of {len(self.nodes)} {'is' if len(self.living) == 1 else 'are'} there"
        return f"{there}; the autoscaler adds the others when work waits for them."


def cluster_growth(environment: Mapping[str, str] = os.environ) -> ClusterNodes:
    """Return the nodes of the connected cluster, with those that an autoscaler may add.

    The first of these sources counts: the environment variable SENTDIST_GROWS_TO (a cluster launcher's file, or a JSON list of
    `{"nodes": 4, "CPU": 8, "GPU": 1}`), the file that `ray up` leaves on the head, KubeRay's object of this cluster, Ray's report.

    Raises:
        ResourceError: the variable or the launcher's file is not valid.
    """
    rows = ray.nodes()
    workers = nodes_of([row for row in rows if HEAD_RESOURCE not in (row["Resources"] or {})])
    return ClusterNodes(living=nodes_of(rows), to_come=nodes_to_come(workers, _groups(environment)))


def nodes_to_come(living: Iterable[Node], groups: Iterable[NodeGroup]) -> tuple[Node, ...]:
    """Return the nodes of the groups that do not live yet.

    A living node takes a place of the first group with its numbers of CPUs and GPUs.

    Args:
        living: living nodes without the head, which is in no group.
    """
    left = list(groups)
    for node in living:
        for place, group in enumerate(left):
            if group.most and (group.offers.cpus, group.offers.gpus) == (node.cpus, node.gpus):
                left[place] = NodeGroup(most=group.most - 1, offers=group.offers)
                break
    return tuple(group.offers for group in left for _ in range(group.most))


def groups_of_launcher(config: Mapping[str, Any]) -> tuple[NodeGroup, ...]:
    """Return the groups of workers in a file of Ray's cluster launcher; a shared limit counts for each, so that no sweep is refused."""
    at_most = int(config.get("max_workers", UNBOUNDED))
    found = []
    for name, kind in config["available_node_types"].items():
        if name != config.get("head_node_type"):
            found.append(NodeGroup(most=min(int(kind.get("max_workers", at_most)), at_most), offers=node_of(kind.get("resources") or {})))
    return tuple(found)


def groups_of_kuberay(spec: Mapping[str, Any]) -> tuple[NodeGroup, ...]:
    """Return the groups of workers in the `spec` of a RayCluster, up to their maxReplicas, if its autoscaler is on."""
    if not spec.get("enableInTreeAutoscaling"):
        return ()
    # How Ray's own autoscaler reads CPUs, GPUs and memory from limits and start parameters.
    from ray.autoscaler._private.kuberay.autoscaling_config import _generate_available_node_types_from_ray_cr_spec as node_types

    return groups_of_launcher({"available_node_types": node_types(dict(spec)), "head_node_type": "headgroup"})


def groups_of_list(rows: Iterable[Mapping[str, Any]]) -> tuple[NodeGroup, ...]:
    """Return the groups in the list that SENTDIST_GROWS_TO may contain."""
    return tuple(NodeGroup(most=int(row["nodes"]), offers=node_of({key: row[key] for key in row if key != "nodes"})) for row in rows)


def _groups(environment: Mapping[str, str]) -> tuple[NodeGroup, ...]:
    said = environment.get(VARIABLE, "").strip()
    if not said and not _is_of_this_cluster(Path(LAUNCHER_FILE).expanduser()):
        return groups_of_kuberay(_kuberay_spec(environment)) or _groups_of_ray()
    try:
        if said.startswith("["):
            return groups_of_list(json.loads(said))
        return _groups_in(Path(said or LAUNCHER_FILE).expanduser())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, SentdistError) as error:
        raise ResourceError(
            where=VARIABLE if said else LAUNCHER_FILE,
            found=f"{brief(said or LAUNCHER_FILE)} ({type(error).__name__}: {brief(str(error))})",
            expected=EXPECTED,
            remedy=REMEDY,
        ) from error


def _groups_in(launcher_file: Path) -> tuple[NodeGroup, ...]:
    config = parsed_yaml(launcher_file.read_text(), where=str(launcher_file), expected=EXPECTED, remedy=REMEDY)
    if not isinstance(config, dict):
        raise ResourceError(where=str(launcher_file), found=brief(config), expected=EXPECTED, remedy=REMEDY)
    return groups_of_launcher(config)


def _is_of_this_cluster(launcher_file: Path) -> bool:
    """Whether this host is the head of the cluster: on other hosts the file belongs to another cluster."""
    address = ray.get_runtime_context().gcs_address.rpartition(":")[0]
    return launcher_file.is_file() and address in (ray.util.get_node_ip_address(), "127.0.0.1", "localhost")


def _kuberay_spec(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The cluster's spec in Kubernetes; empty outside, or if the head may not read it (KubeRay allows it with an autoscaler)."""
    name, namespace = environment.get("RAY_CLUSTER_NAME"), environment.get("RAY_CLUSTER_NAMESPACE")  # KubeRay sets them in every pod
    if not name or not namespace or "KUBERNETES_SERVICE_HOST" not in environment:
        return {}
    try:
        from ray.autoscaler._private.kuberay.node_provider import KubernetesHttpApiClient

        found = KubernetesHttpApiClient(namespace=namespace).get(f"rayclusters/{name}")
        return dict(found["spec"])
    except (ImportError, OSError, ValueError, KeyError, TypeError) as error:  # of requests, too
        if getattr(getattr(error, "response", None), "status_code", None) not in (403, 404):
            warning = f"Kubernetes does not report how far this cluster may grow ({first_line(error)}): only present nodes count."
            print(f"{warning} Set SENTDIST_GROWS_TO instead.", file=sys.stderr)
        return {}


def _groups_of_ray() -> tuple[NodeGroup, ...]:
    """The groups that an autoscaler reported to Ray (on some platforms; that of `ray up` does not)."""
    from ray._private.state import state  # Ray Train and Ray Data read it here too

    config = state.get_cluster_config()
    groups = () if config is None else config.node_group_configs
    return tuple(
        NodeGroup(most=UNBOUNDED if group.max_count < 0 else group.max_count, offers=node_of(dict(group.resources)))
        for group in groups
        if group.resources and group.max_count
    )


def leave(*, within_s: float, everywhere: bool) -> list[str]:
    """Give notice that this host, or every host, of the connected cluster will leave; return the addresses of these hosts.

    Trainings there write a checkpoint within seconds. No process is ended.

    Args:
        within_s: seconds until the hosts leave.
        everywhere: True for all hosts.

    Raises:
        ResourceError: a host cannot be given notice.
    """
    context = ray.get_runtime_context()
    head = GcsClient(address=context.gcs_address)
    here = context.get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"] and (everywhere or node["NodeID"] == here)]
    deadline_ms = int((time.time() + within_s) * 1000)
    for node in nodes:
        is_accepted, why = head.drain_node(node["NodeID"], DRAIN_NODE_REASON_PREEMPTION, "rayjobs.leave", deadline_ms)
        if not is_accepted:
            raise ResourceError(
                where=f"host {node['NodeManagerAddress']}",
                found=f"that it cannot be given notice to leave ({why})",
                expected="a host of this cluster",
                remedy="Trainings on it go on from their last checkpoint.",
            )
    return sorted(str(node["NodeManagerAddress"]) for node in nodes)
