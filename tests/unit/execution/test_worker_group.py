"""What a worker group of Ray Train says when it ends; Ray Train itself is stood in for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import ActorDiedError
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from sentdist.errors import DataError
from sentdist.execution.board import stage_task
from sentdist.execution.board.attempts import GroupLostError
from sentdist.execution.board.event_sink import EventSink, GroupMember
from sentdist.execution.cluster.ray_errors import GONE
from sentdist.execution.resources import Demand
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


@pytest.mark.parametrize(
    ("error", "origin"),
    [
        pytest.param(ActorDiedError(), GONE, id="the controller is killed"),
        pytest.param(WorkerGroupError("", {0: RuntimeError("a peer is gone"), 1: ActorDiedError()}), GONE, id="a worker is killed"),
        pytest.param(
            WorkerGroupError("", {0: DataError(where="", found="", expected="", remedy=""), 1: ActorDiedError()}),
            DataError,
            id="a worker refuses",
        ),
    ],
)
def test_what_a_group_is_lost_to_reaches_the_board(monkeypatch: pytest.MonkeyPatch, error: Exception, origin: type[Exception]) -> None:
    _end_with(monkeypatch, error)
    with pytest.raises(GroupLostError) as found:
        worker_group.run_worker_group(GROUP)
    assert isinstance(found.value.origin, origin)


def test_what_ray_train_cannot_do_itself_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    _end_with(monkeypatch, ControllerError(RuntimeError("no group could be started")))
    with pytest.raises(ControllerError):
        worker_group.run_worker_group(GROUP)


def test_what_starts_ray_train_is_told_which_cluster_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Train's helpers inherit it; tests/cluster/test_board.py sees it there."""
    drive = Mock()
    monkeypatch.setattr(stage_task, "_drive", drive)
    monkeypatch.setattr(stage_task.ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="10.0.0.1:6379"))
    stage_task.start_group(GROUP)
    assert drive.options.call_args.kwargs["runtime_env"]["env_vars"] == {"RAY_ADDRESS": "10.0.0.1:6379"}
    drive.options.return_value.remote.assert_called_once_with(GROUP)
