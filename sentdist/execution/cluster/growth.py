"""What a cluster may become where an autoscaler adds nodes: Ray counts only those that are there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from sentdist.errors import ResourceError, SentdistError, brief, counted, first_line
from sentdist.execution.cluster.names import HEAD_RESOURCE
from sentdist.execution.cluster.nodes import Node, node_of, nodes_of
from sentdist.plan.strict_yaml import parsed_yaml

VARIABLE = "SENTDIST_GROWS_TO"
LAUNCHER_FILE = "~/ray_bootstrap_config.yaml"  # `ray up` leaves it on the head
EXPECTED = 'a file of Ray\'s cluster launcher, or a list of node groups: [{"nodes": 4, "CPU": 8, "GPU": 1}]'
REMEDY = "Correct it where the head is started; SENTDIST_GROWS_TO=[] counts only nodes that are there."
UNBOUNDED = 1000  # nodes, of a group for which nobody gave a bound


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes of one kind that an autoscaler may add. most: how many of them there may be."""

    most: int
    offers: Node


@dataclass(frozen=True, kw_only=True)
class ClusterNodes:
    """The nodes of a cluster. living: those that are there. to_come: those that an autoscaler may add to them."""

    living: tuple[Node, ...]
    to_come: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.living + self.to_come

    @property
    def may_have(self) -> tuple[float, float] | None:
        """CPUs and GPUs of all its nodes; None where none is to come."""
        return (sum(node.cpus for node in self.nodes), sum(node.gpus for node in self.nodes)) if self.to_come else None

    @property
    def line(self) -> str | None:
        """How many nodes are there and how many may come, as a sentence; None where none may come."""
        if not self.to_come:
            return None
        there = f"{counted(len(self.living), 'node')} of {len(self.nodes)} {'is' if len(self.living) == 1 else 'are'} there"
        return f"{there}; the autoscaler adds the others when work waits for them."


def cluster_growth(environment: Mapping[str, str] = os.environ) -> ClusterNodes:
    """What the cluster that this process is connected to has, and may become.

    Read, the first that there is: the environment variable SENTDIST_GROWS_TO (a cluster launcher's file, or a JSON list of
    `{"nodes": 4, "CPU": 8, "GPU": 1}`), the file that `ray up` leaves on the head, KubeRay's object of this cluster, what Ray reports.

    Raises:
        ResourceError: the variable says something else.
    """
    rows = ray.nodes()
    workers = nodes_of([row for row in rows if HEAD_RESOURCE not in (row["Resources"] or {})])
    return ClusterNodes(living=nodes_of(rows), to_come=nodes_to_come(workers, _groups(environment)))


def nodes_to_come(living: Iterable[Node], groups: Iterable[NodeGroup]) -> tuple[Node, ...]:
    """Nodes of the groups beyond those that live; a living node belongs to the first group with its CPUs and GPUs that has a place left.
    living: without the head, which is in none.
    """
    left = list(groups)
    for node in living:
        for place, group in enumerate(left):
            if group.most and (group.offers.cpus, group.offers.gpus) == (node.cpus, node.gpus):
                left[place] = NodeGroup(most=group.most - 1, offers=group.offers)
                break
    return tuple(group.offers for group in left for _ in range(group.most))


def groups_of_launcher(config: Mapping[str, Any]) -> tuple[NodeGroup, ...]:
    """Groups of workers in a file of Ray's cluster launcher; a bound that they share counts for each, so that it refuses no sweep."""
    at_most = int(config.get("max_workers", UNBOUNDED))
    found = []
    for name, kind in config["available_node_types"].items():
        if name != config.get("head_node_type"):
            found.append(NodeGroup(most=min(int(kind.get("max_workers", at_most)), at_most), offers=node_of(kind.get("resources") or {})))
    return tuple(found)


def groups_of_kuberay(spec: Mapping[str, Any]) -> tuple[NodeGroup, ...]:
    """Groups of workers in the `spec` of a RayCluster, up to their maxReplicas, if its autoscaler is on."""
    if not spec.get("enableInTreeAutoscaling"):
        return ()
    # How Ray's own autoscaler reads CPUs, GPUs and memory from limits and start parameters.
    from ray.autoscaler._private.kuberay.autoscaling_config import _generate_available_node_types_from_ray_cr_spec as node_types

    return groups_of_launcher({"available_node_types": node_types(dict(spec)), "head_node_type": "headgroup"})


def groups_of_list(rows: Iterable[Mapping[str, Any]]) -> tuple[NodeGroup, ...]:
    """The groups in the list that SENTDIST_GROWS_TO may hold."""
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
    """Whether it lies on the head of the cluster: elsewhere it is what another one left behind."""
    address = ray.get_runtime_context().gcs_address.rpartition(":")[0]
    return launcher_file.is_file() and address in (ray.util.get_node_ip_address(), "127.0.0.1", "localhost")


def _kuberay_spec(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """What Kubernetes says of this cluster; nothing outside of Kubernetes, and where the head has no right to ask: KubeRay gives it
    the right together with an autoscaler. Other trouble is printed."""
    name, namespace = environment.get("RAY_CLUSTER_NAME"), environment.get("RAY_CLUSTER_NAMESPACE")  # KubeRay sets them in every pod
    if not name or not namespace or "KUBERNETES_SERVICE_HOST" not in environment:
        return {}
    try:
        from ray.autoscaler._private.kuberay.node_provider import KubernetesHttpApiClient

        found = KubernetesHttpApiClient(namespace=namespace).get(f"rayclusters/{name}")
        return dict(found["spec"])
    except (ImportError, OSError, ValueError, KeyError, TypeError) as error:  # of requests, too
        if getattr(getattr(error, "response", None), "status_code", None) not in (403, 404):
            said = f"Kubernetes does not say what this cluster may become ({first_line(error)}): nodes that are there count."
            print(f"{said} SENTDIST_GROWS_TO can say it instead.", file=sys.stderr)
        return {}


def _groups_of_ray() -> tuple[NodeGroup, ...]:
    """What an autoscaler reported to Ray (those of some platforms do, that of `ray up` does not)."""
    from ray._private.state import state  # Ray Train and Ray Data read it here too

    config = state.get_cluster_config()
    groups = () if config is None else config.node_group_configs
    return tuple(
        NodeGroup(most=UNBOUNDED if group.max_count < 0 else group.max_count, offers=node_of(dict(group.resources)))
        for group in groups
        if group.resources and group.max_count
    )
