"""The board when processes or inputs are lost and sweeps are stopped. Ray is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock
from unittest.mock import Mock

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayTaskError, WorkerCrashedError
from ray.train.torch.config import _is_backend_nccl
from ray.train.v2.api.exceptions import ControllerError, PreemptionError, WorkerGroupError
from ray.train.v2.api.preemption import PreemptionInfo
from torch.distributed.distributed_c10d import Backend, BackendConfig

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import ArtifactLost, DataError, ResourceError, SentdistError
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.run import board as actor
from sentdist.run import client, orders, rank
from sentdist.run import group as worker_group
from sentdist.run import orders as member
from sentdist.run.board import BoardActor
from sentdist.run.connection import GONE
from sentdist.run.events import StageEvent
from sentdist.run.losses import GroupLostError, end_of, may_be_a_lost_peer
from sentdist.run.orders import build_stage
from sentdist.run.resources import Demand, ElasticWidth
from sentdist.run.submissions import EventSink, GroupMember, Submission
from sentdist.run.workers import Order
from sentdist.stages.context import Context
from sentdist.stages.train_setup import Ranks
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.every_stage import one_of_each
from tests.support.lost_training import RecordingSink
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

STAGE = RowsCorpus(source="toy", source_revision="1")
SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}
ENOUGH_S = 5.0
Driven = Callable[..., tuple[object, list[StageEvent], list[tuple[Any, ...]]]]


def _demand(way: Literal["task", "group"]) -> Demand:
    return Demand(way=way, workers=1, num_cpus=1.0, num_gpus=0.0)


def _submission(root: Path, *, max_failures: int = 1, sweep: str = "mine") -> Submission:
    runtime = Runtime(engine="torch", max_failures=max_failures)
    return Submission(context=Context(store=ArtifactStore(root), runtime=runtime), sweep=sweep)


class Building:
    """What a board has built, and by whom it would be: a future for each stage."""

    def __init__(self) -> None:
        self.begun: list[tuple[Stage, asyncio.Future[Artifact]]] = []

    async def build(self, stage: Stage, *_: object, **__: object) -> Artifact:
        self.begun.append((stage, asyncio.get_running_loop().create_future()))
        return await self.begun[-1][1]


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Iterator[Building]:
    found = Building()
    monkeypatch.setattr(actor.WorkerGroups, "build", lambda _, *given, **more: found.build(*given, **more))
    with (
        mock.patch("ray.get_runtime_context", return_value=SimpleNamespace(current_actor=None)),
        mock.patch("ray.kill"),
        mock.patch.object(actor, "note_stopped"),
    ):
        yield found


def _within(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work, 4 * ENOUGH_S)

    asyncio.run(limited())


@pytest.fixture
def driven(tmp_path: Path) -> Driven:
    """Drives a stage whose attempts end so; what came of it, the events, and what was noted in its run."""

    def drive(*ends: object, max_failures: int = 1) -> tuple[object, list[StageEvent], list[tuple[Any, ...]]]:
        noted: list[tuple[Any, ...]] = []

        async def scene() -> tuple[object, list[StageEvent]]:
            board = BoardActor(mock.Mock(), 1.0)
            board._groups.build = mock.AsyncMock(side_effect=ends)  # type: ignore[method-assign]
            try:
                found: object = await board.request(STAGE, _submission(tmp_path, max_failures=max_failures))
            except Exception as error:
                found = error
            assert board._groups.build.await_count == len(ends)
            last = board._events.last_number
            return found, (await board._events.after(0, is_over=lambda: True))[0] if last else []

        with mock.patch.object(actor, "note_failed", SimpleNamespace(remote=lambda *given: noted.append(given[1:]))):
            found, events = asyncio.run(scene())
        return found, events, noted

    return drive


def test_only_what_has_peers_can_have_lost_one() -> None:
    closed = RuntimeError("connection closed by peer")
    assert may_be_a_lost_peer(closed, _demand("group"))
    assert not may_be_a_lost_peer(closed, _demand("task")) and not may_be_a_lost_peer(DataError(**SAID), _demand("group"))


def test_a_board_is_that_of_its_store_and_of_the_code_that_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a job would have its work done by the older code of another."""
    names = set()
    for digest in ("a" * 40, "b" * 40):
        monkeypatch.setattr(client, "code_digest", lambda digest=digest: digest)
        names |= {client.board_name(ArtifactStore(tmp_path / place)) for place in ("one", "two", "one")}
    assert len(names) == 4 and all(name.startswith(client.BOARDS) for name in names)


def test_a_stage_whose_process_is_lost_is_built_again_until_that_was_too_often(driven: Driven) -> None:
    found, events, noted = driven(WorkerCrashedError(), "built")
    assert found is None and [event.what for event in events] == ["retry"] and not noted
    found, events, noted = driven(WorkerCrashedError(), WorkerCrashedError())
    assert isinstance(found, ResourceError) and "lost 2 times (WorkerCrashedError" in str(found)
    assert [event.what for event in events] == ["retry", "failed"]
    assert [(key, message.partition(":")[0]) for key, message in noted] == [(STAGE.key, "ResourceError")]


def test_a_lost_input_that_took_a_group_is_no_failure_and_a_mistake_is_final(driven: Driven) -> None:
    mistake, lost = DataError(**SAID), ArtifactLost(**SAID)
    found, events, noted = driven(GroupLostError(mistake), max_failures=5)
    assert found is mistake and [event.what for event in events] == ["failed"] and len(noted) == 1
    found, events, noted = driven(GroupLostError(lost), max_failures=5)
    assert found is lost and [event.what for event in events] == ["lost"] and not noted, "who asked for it asks again"
    assert end_of(STAGE, mistake).what == "failed"
    peer = GroupLostError(RuntimeError("connection closed by peer"))
    found, events, noted = driven(peer, peer, peer, max_failures=5)
    assert isinstance(found, RuntimeError) and [event.what for event in events] == ["retry", "retry", "failed"], "it may be a bug"


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENOUGH_S):
        while not is_so():
            await asyncio.sleep(0.01)


def test_what_failed_is_begun_again_for_others_and_for_those_whose_input_was_lost(building: Building, tmp_path: Path) -> None:
    async def scene(kind: type[SentdistError], begun: list[int]) -> None:
        building.begun.clear()
        board, mine, others = BoardActor(mock.Mock(), 1.0), *(_submission(tmp_path, sweep=sweep) for sweep in ("one", "two"))
        first = asyncio.ensure_future(board.request(STAGE, mine))
        await _until(lambda: len(building.begun) == 1)
        building.begun[0][1].set_exception(kind(**SAID))
        with pytest.raises(kind):
            await first
        numbers = []
        for submission in (mine, others):
            asked = asyncio.ensure_future(board.request(STAGE, submission))
            await _until(lambda asked=asked: asked.done() or bool(board._work))  # type: ignore[misc]
            await asyncio.sleep(0)
            numbers.append(len(building.begun))
        assert numbers == begun

    _within(scene(DataError, [1, 2]))
    _within(scene(ArtifactLost, [2, 2]))


def test_a_sweep_that_was_stopped_is_no_more_among_those_that_are_built(building: Building, tmp_path: Path) -> None:
    """Nor is one whose driver died: its tracker is told, unless it was submitted again."""

    async def scene() -> None:
        board, note = BoardActor(mock.Mock(), 1.0), mock.AsyncMock()
        asked = [asyncio.ensure_future(board.request(STAGE, _submission(tmp_path, sweep=sweep))) for sweep in ("mine", "other")]
        await _until(lambda: sum(len(board._work.needed_by(one)) for one in board._submissions) == len(asked))
        assert await board.sweeps() == {"mine": 1, "other": 1} and await board.stop("mine") == 0
        assert await board.sweeps() == {"other": 1}
        with mock.patch.object(actor, "note_stopped", SimpleNamespace(remote=note)):
            for sweep, num_noted in (("other", 0), ("third", 1)):
                await board._clear_up(_submission(tmp_path, sweep=sweep))
                assert note.await_count == num_noted

    _within(scene())


DEMAND = Demand(way="group", workers=2, num_cpus=1.0, num_gpus=0.0)


class Board:
    """Gives one order, then sends the group away. `breaks`: what each question meets before it is answered."""

    def __init__(self, order: Order, breaks: Callable[[str], Exception | None]) -> None:
        self.order, self.breaks = order, breaks
        self.answers: list[Any] = []
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *args, **kwargs: (name, args))

    def answer(self, question: tuple[str, tuple[Any, ...]]) -> Any:
        name, args = question
        self.asked.append(name)
        if error := self.breaks(name):
            raise error
        if name == "next_order":
            return self.order if args[1] < self.order.number else None
        if name == "finish":
            self.answers.append(args[2])
        return None


@pytest.fixture
def planned(tmp_path: Path, tiny_encoder_dir: Path) -> tuple[Plan, Context]:
    return tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")


def _work(
    monkeypatch: pytest.MonkeyPatch,
    planned: tuple[Plan, Context],
    *,
    breaks: Callable[[str], Exception | None] = lambda name: None,
    rank: int = 0,
    body: Callable[..., Any],
    waits: list[float | None] | None = None,
) -> Board:
    """Have one worker of two do what the board orders."""
    plan, context = planned
    stage: Stage = next(stage for stage in plan.stages if isinstance(stage, Train))
    order = Order(number=1, stage=stage, submission=Submission(context=context, trainings_at_once=1))
    board = Board(order, breaks)

    def answer(question: tuple[str, tuple[Any, ...]], *, timeout: float | None = None) -> Any:
        if waits is not None and question[0] == "next_order":
            waits.append(timeout)
        return board.answer(question)

    monkeypatch.setattr(member.ray, "get", answer)
    monkeypatch.setattr(member, "PAUSE_S", 0.0)
    monkeypatch.setattr(
        "sentdist.stages.train_setup.ranks_here",
        lambda: Ranks(rank=rank, world_size=2, exchange=lambda said: [said, said], gather=lambda said: [said, said]),
    )
    monkeypatch.setattr("sentdist.run.rank.train_rank", body)
    member.build_orders(GroupMember(name="workers-1", demand=DEMAND, body=body, sink=EventSink(board=board)))
    return board


def test_a_question_to_a_board_out_of_reach_is_put_again(monkeypatch: pytest.MonkeyPatch, planned: tuple[Plan, Context]) -> None:
    for question, times in (("next_order", 3), ("finish", 2)):
        left: list[Exception] = [ActorUnavailableError("", None)]

        def breaks(name: str, question: str = question, left: list[Exception] = left) -> Exception | None:
            return left.pop() if name == question and left else None

        board = _work(monkeypatch, planned, breaks=breaks, body=lambda *_: "built")
        assert board.answers == ["built"] and board.asked.count(question) == times
    assert not _work(monkeypatch, planned, breaks=lambda name: ActorDiedError(), body=lambda *_: "built").answers, "a board that is gone"
    with pytest.raises(ActorUnavailableError):  # for long
        _work(monkeypatch, planned, breaks=lambda name: ActorUnavailableError("", None), body=lambda *_: "built")


def test_what_one_rank_alone_meets_ends_its_group_instead_of_leaving_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch, planned: tuple[Plan, Context]
) -> None:
    """The others wait for it in a collective, the first one too: the order stays open, and the board has nothing more to give."""

    def train(*_: object) -> None:
        raise DataError(where="bank", found="a shard that is gone", expected="a bank", remedy="Look.")

    assert not _work(monkeypatch, planned, rank=1, body=train).answers, "what all ranks meet is reported by the first alone"
    waits: list[float | None] = []

    def is_open(name: str) -> Exception | None:
        return GetTimeoutError("the first worker is still busy") if name == "next_order" and waits[-1] is not None else None

    with pytest.raises(DataError, match="a shard that is gone"):
        _work(monkeypatch, planned, rank=1, body=train, breaks=is_open, waits=waits)
    assert waits == [None, member.OTHERS_TELL_S]


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
        (PreemptionError(PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"a": [1]})), GONE),  # a host left after notice
        (ControllerError(RayTaskError("execute", "Traceback …", refusal).as_instanceof_cause()), ResourceError),  # while it is set up
    )
    for error, origin in ends:
        _end_with(monkeypatch, error)
        with pytest.raises(GroupLostError) as found:
            worker_group.run_worker_group(GROUP)
        assert isinstance(found.value.origin, origin)
        assert "ray.train" not in type(found.value.origin).__module__, "who has not loaded Ray Train gets it, too"
    _end_with(monkeypatch, ControllerError(RuntimeError("no group could be started")))
    with pytest.raises(ControllerError):  # what Ray Train cannot do itself is no loss
        worker_group.run_worker_group(GROUP)


def test_a_group_is_tried_again_by_the_board_alone_unless_its_size_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The board counts losses."""
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


ARTIFACT: Any = Mock(record=Mock(seconds=1.0))


class Built:
    """Stages built with other bodies; tracker and reservations as they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.tracker, self.body, self.sink, self.reserved = Mock(), Mock(return_value=ARTIFACT), RecordingSink(), Mock()
        self.submission = Submission(
            context=Context(store=ArtifactStore(folder), runtime=Runtime(engine="torch", bank_in_object_store=False)), tracker=self.tracker
        )
        monkeypatch.setattr(orders, "build_in_process", self.body)
        monkeypatch.setattr(orders, "use_reserved", self.reserved)

    def __call__(self, stage: Stage, **runtime: Any) -> Artifact:
        if runtime:
            context = self.submission.context
            given = Runtime.model_validate(context.runtime.model_dump(exclude_unset=True) | runtime)
            self.submission = replace(self.submission, context=replace(context, runtime=given))
        return build_stage(stage, self.submission, self.sink)

    @property
    def events(self) -> list[str]:
        return [event.what for event in self.sink.reported]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Built:
    return Built(monkeypatch, tmp_path / "store")


def test_what_one_process_builds_is_reported_and_kept_within_what_it_has_reserved(build: Built) -> None:
    for kind, reserves in (("corpus", 0), ("bank", 1), ("targets", 1), ("scores", 1)):  # a corpus needs no torch
        stage = one_of_each()[kind]
        build.sink.reported.clear()
        build.tracker.reset_mock()
        build.reserved.reset_mock()
        assert build(stage) is ARTIFACT
        assert build.events == ["started", "finished"]
        build.tracker.finish.assert_called_once_with(ARTIFACT.record)
        assert len(build.reserved.mock_calls) == reserves, kind


def test_what_fails_is_a_failed_run_and_a_lost_input_is_none(build: Built) -> None:
    scores = one_of_each()["scores"]
    for error, reported, failures in ((ValueError("a bug"), "failed", 1), (ArtifactLost(**SAID), "lost", 0)):
        build.body.side_effect = error
        build.sink.reported.clear()
        build.tracker.reset_mock()
        with pytest.raises(type(error)):
            build(scores)
        assert build.events == ["started", reported] and not build.tracker.finish.called
        assert [call.args[0] for call in build.tracker.fail.call_args_list] == failures * [scores.key]


@pytest.mark.parametrize("kind", ["train", "rung"])
def test_what_is_finished_is_not_built_again_and_its_checkpoints_go(kind: str, build: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a process was lost between its artifact and its answer."""
    stage, store = one_of_each()[kind], build.submission.context.store
    with store.staged() as folder:
        (folder / "data").write_text("")
        store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})
    left = Path(store.root) / "running" / stage.key / "00000005"
    left.mkdir(parents=True)
    monkeypatch.setattr(rank, "train_as_first_rank", Mock(side_effect=AssertionError))
    assert build(stage).record.key == stage.key
    assert not build.events and not left.exists()
