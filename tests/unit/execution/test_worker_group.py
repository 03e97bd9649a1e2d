"""What a worker group of Ray Train is asked for, and says when it ends; Ray Train itself is stood in for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext, NodeDeathInfo  # type: ignore[attr-defined]
from ray.exceptions import ActorDiedError, RayTaskError
from ray.train.torch.config import _is_backend_nccl
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, WorkerGroupError
from ray.train.v2.api.preemption import PreemptionInfo
from torch.distributed.distributed_c10d import Backend, BackendConfig

from sentdist.errors import ResourceError
from sentdist.execution.board.submissions import EventSink, GroupMember
from sentdist.execution.board.watchdog import GroupLostError
from sentdist.execution.cluster.connection import GONE, was_announced
from sentdist.execution.demand import Demand, ElasticWidth
from sentdist.execution.training import worker_group

GROUP = GroupMember(
    name="workers-1", demand=Demand(way="group", workers=2, num_cpus=1.0, num_gpus=0.0), body=lambda *_: None, sink=EventSink(board=None)
)  # type: ignore[arg-type,return-value]


def _end_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    class Trainer:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def fit(self) -> None:
            raise error

    monkeypatch.setattr(worker_group, "TorchTrainer", Trainer)
    monkeypatch.setattr("ray.nodes", list)


GPUS = replace(GROUP, demand=replace(GROUP.demand, num_gpus=0.5, num_cpus=3.0))
ELASTIC = replace(GROUP, demand=replace(GROUP.demand, workers=4, change=ElasticWidth(fewest=2, every_s=120.0)))


def _asked(monkeypatch: pytest.MonkeyPatch, member: GroupMember) -> SimpleNamespace:
    """What Ray Train is asked for, and the environment that it finds."""
    trainer, environment = Mock(), dict[str, str]()
    monkeypatch.setattr(worker_group, "TorchTrainer", trainer)
    monkeypatch.setattr(worker_group.os, "environ", environment)
    monkeypatch.setattr("ray.nodes", list)
    worker_group.run_worker_group(member)
    return SimpleNamespace(**trainer.call_args.kwargs, environment=environment)


def test_what_a_group_is_lost_to_reaches_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, killed = RuntimeError("a peer is gone"), ActorDiedError()
    refusal = ResourceError(where="runtime.gpus_per_worker", found="no CUDA", expected="one", remedy="Install it.")
    ends: tuple[tuple[Exception, Any], ...] = (
        (killed, GONE),  # the controller is
        (WorkerGroupError("", {0: peer, 1: killed}), GONE),
        (WorkerGroupError("", {0: refusal, 1: killed}), ResourceError),
        (ControllerError(RayTaskError("execute", "Traceback …", refusal).as_instanceof_cause()), ResourceError),  # while it is set up
    )
    for error, origin in ends:
        _end_with(monkeypatch, error)
        with pytest.raises(GroupLostError) as found:
            worker_group.run_worker_group(GROUP)
        assert isinstance(found.value.origin, origin)
    _end_with(monkeypatch, ControllerError(RuntimeError("no group could be started")))
    with pytest.raises(ControllerError):  # what Ray Train cannot do itself is no loss
        worker_group.run_worker_group(GROUP)


def test_hosts_that_were_given_notice_are_a_loss_that_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that cross processes to whoever has not loaded Ray Train."""
    why = NodeDeathInfo(reason=NodeDeathInfo.AUTOSCALER_DRAIN_PREEMPTED)
    taken: Any = ActorDiedErrorContext(actor_id=bytes(16), node_death_info=why)
    gone = PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"a": [1]})
    killed = WorkerGroupError("", {0: RuntimeError("a peer is gone"), 1: ActorDiedError(taken)})
    for error, words in ((PreemptionError(gone), "interrupted by node preemption"), (killed, "The actor died")):
        _end_with(monkeypatch, error)
        with pytest.raises(GroupLostError) as found:
            worker_group.run_worker_group(GROUP)
        origin = found.value.origin
        assert was_announced(origin) and isinstance(origin, GONE) and words in str(origin)
        assert "ray.train" not in type(origin).__module__
    assert not was_announced(ActorDiedError()) and not was_announced(RuntimeError("a peer is gone"))


def test_a_group_is_tried_again_by_the_board_alone_unless_its_size_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The board counts losses, and knows whether a training has got on between two of them."""
    fixed, elastic = (_asked(monkeypatch, member) for member in (GROUP, ELASTIC))
    assert fixed.run_config.failure_config.max_failures == elastic.run_config.failure_config.max_failures == 0
    assert fixed.run_config.failure_config.max_preemption_failures == elastic.run_config.failure_config.max_preemption_failures == 0
    assert fixed.run_config.failure_config.controller_failure_limit > 0, "without a limit a group that cannot start is tried forever"
    assert elastic.run_config.failure_config.controller_failure_limit == -1
    assert fixed.environment["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] != elastic.environment["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"]


def test_a_group_has_the_workers_and_devices_of_its_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, gpus, elastic = (_asked(monkeypatch, member) for member in (GROUP, GPUS, ELASTIC))
    assert (fixed.scaling_config.num_workers, fixed.scaling_config.use_gpu) == (2, False)
    assert fixed.scaling_config.resources_per_worker == {"CPU": 1.0}
    assert gpus.scaling_config.use_gpu and gpus.scaling_config.resources_per_worker == {"CPU": 3.0, "GPU": 0.5}
    assert (fixed.torch_config.backend, gpus.torch_config.backend) == ("gloo", worker_group.GPU_BACKEND)
    served = BackendConfig(Backend(worker_group.GPU_BACKEND)).get_device_backend_map()
    assert (served["cpu"], served["cuda"]) == ("gloo", "nccl"), "NCCL alone serves no tensor on the host"
    assert _is_backend_nccl(worker_group.GPU_BACKEND), "Ray sets NCCL up by that name"
    assert elastic.scaling_config.num_workers == (2, 4) and elastic.scaling_config.elastic_resize_monitor_interval_s == 120.0
    variables = [one.run_config.worker_runtime_env["env_vars"] for one in (fixed, gpus)]
    assert [one["OMP_NUM_THREADS"] for one in variables] == ["1", "3"]
    assert variables[0]["DS_ACCELERATOR"] == "cpu" and "DS_ACCELERATOR" not in variables[1]


def test_ray_trains_controller_is_quick_on_small_clusters_and_never_gives_up_waiting() -> None:
    for num_nodes, period, watches in ((1, "0.2", "0"), (2, "0.2", "1"), (64, "2.0", "1")):
        found = worker_group.controller_environment(num_nodes)
        assert found["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == period
        assert found["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] == watches
        assert int(found["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"]) > 24 * 3600
