"""What the driver of a sweep does around its trials: before they begin, when they end, and when it is ended itself. Nothing is built."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sentdist.errors import DataError, ResourceError, StoreError, SweepStopped
from sentdist.execution import sweep as driver
from sentdist.execution.cluster.nodes import ClusterNodes, Node
from sentdist.execution.sweep_end import TrialOutcome
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe

SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}


class Driver:
    """Drives a plan whose trials end as `trials` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.plan: Plan = plan_of(small_recipe())
        self.context = Context(store=ArtifactStore(folder / "store"), runtime=self.plan.recipe.runtime)
        self.board, self.tracker, self.overlaps = Mock(), Mock(warnings=()), Mock()
        self.lines: list[str] = []
        self.trials: Callable[..., dict[str, TrialOutcome]] = lambda *_, **__: {}
        self.nodes = ClusterNodes(living=(Node(cpus=8.0),), to_come=(Node(cpus=8.0),))
        monkeypatch.setattr(driver, "cluster_growth", lambda: self.nodes)
        monkeypatch.setattr(driver, "BoardClient", self.board)
        monkeypatch.setattr(driver, "printed_events", lambda *_, **__: nullcontext())
        monkeypatch.setattr(driver, "_build_overlaps", self.overlaps)
        monkeypatch.setattr(driver, "size_of", lambda *_: SimpleNamespace(parameters=1, width=8))
        monkeypatch.setattr(driver, "worker_bytes", lambda stage, *_, **__: 1.0)
        monkeypatch.setattr(driver, "gpu_bytes", lambda stage, *_, **__: 1.0)
        monkeypatch.setattr(driver, "disk_estimate", self._estimate)
        monkeypatch.setattr("sentdist.execution.trials.run_trials", lambda *given, **more: self.trials(*given, **more))
        self.least, self.at_once = 0, 0

    def _estimate(self, *_: Any, at_once: int) -> Any:
        self.at_once = at_once
        return SimpleNamespace(least=self.least, warning=lambda free: None)

    def run(self) -> Any:
        return driver.run_sweep(self.plan, self.context, tracker=self.tracker, print_line=self.lines.append)

    def ends(self, error: BaseException | None) -> None:
        self.trials = lambda trials, *_, **__: {trial.key: TrialOutcome(key=trial.key, name=trial.name, error=error) for trial in trials}


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    return Driver(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("error", "failed", "ended"),
    [
        pytest.param(None, False, None, id="well"),
        pytest.param(DataError(**SAID), True, None, id="failed"),
        pytest.param(SweepStopped(**SAID), False, "stopped", id="stopped"),
    ],
)
def test_the_runs_of_a_sweep_end_as_it_does(error: BaseException | None, failed: bool, ended: str | None, driven: Driver) -> None:
    driven.ends(error)
    driven.run()
    keys = [call.args[0] for call in driven.tracker.fail.call_args_list]
    assert sorted(keys) == (sorted(trial.key for trial in driven.plan.trials) if failed else [])
    driven.tracker.finish_sweep.assert_called_once_with(ended)
    driven.board.return_value.leave.assert_called_once_with()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), RuntimeError("a bug")])
def test_a_driver_that_is_ended_leaves_its_board_and_says_that_it_was_stopped(error: BaseException, driven: Driver) -> None:
    """Else work that nobody waits for goes on for a minute, and the run stays one that runs."""

    def trials(*_: Any, **__: Any) -> dict[str, TrialOutcome]:
        raise error

    driven.trials = trials
    with pytest.raises(type(error)):
        driven.run()
    driven.board.return_value.leave.assert_called_once_with()
    driven.tracker.finish_sweep.assert_called_once_with("stopped")


def test_a_store_without_room_is_refused_before_anything_is_begun(driven: Driver) -> None:
    driven.least = 2**62
    with pytest.raises(StoreError):
        driven.run()
    assert not driven.board.called and not driven.tracker.begin_sweep.called
    assert driven.at_once == 16, "every training that is at work keeps checkpoints"


def test_what_finished_trainings_left_is_removed(driven: Driver) -> None:
    """Their process was lost between the artifact and the removal of their checkpoints."""
    train = next(stage for stage in driven.plan.stages if isinstance(stage, Train))
    with driven.context.store.staged() as folder:
        (folder / "data").write_text("")
        driven.context.store.commit(train, folder, seconds=0.0, runtime={}, environment={}, results={})
    folders = [Path(driven.context.store.root) / "running" / key / "00000005" for key in (train.key, "0" * 16)]
    for folder in folders:
        folder.mkdir(parents=True)
    driven.run()
    assert [folder.exists() for folder in folders] == [False, True]


def test_the_summary_is_reported_where_overlaps_cannot_be_counted(driven: Driver) -> None:
    driven.overlaps.side_effect = StoreError(**SAID)
    assert driven.run().name == driven.plan.recipe.name
    assert any(line.startswith("Test items in training data could not be counted") for line in driven.lines)


def test_a_cluster_that_may_grow_is_reported_and_the_board_knows_how_far(driven: Driver) -> None:
    driven.run()
    assert any("1 node of 2 is there" in line for line in driven.lines)
    submission = driven.board.call_args.args[0]
    assert submission.may_have == (16.0, 0.0) and submission.sweep == driven.plan.recipe.name
    driven.nodes = replace(driven.nodes, to_come=())
    driven.run()
    assert driven.board.call_args.args[0].may_have is None


def test_only_what_is_still_to_be_trained_asks_for_memory(driven: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {stage.key: 10.0 * number for number, stage in enumerate(driven.plan.stages) if isinstance(stage, Train)}
    monkeypatch.setattr(driver, "worker_bytes", lambda stage, *_, **__: sizes[stage.key])
    assert driver._largest_worker(driven.plan, driven.context, sizes.keys())[0] == max(sizes.values())
    smallest = min(sizes, key=lambda key: sizes[key])
    assert driver._largest_worker(driven.plan, driven.context, {smallest})[0] == sizes[smallest]


def test_a_worker_takes_more_where_planning_has_read_long_texts(driven: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    for asked in ("worker_bytes", "gpu_bytes"):
        monkeypatch.setattr(driver, asked, lambda *_, tokens, **__: tokens)
    trainings = {stage.key: stage for stage in driven.plan.stages if isinstance(stage, Train)}
    corpora = {stage.corpus.key: 100.0 + number for number, stage in enumerate(trainings.values())}
    unread = driver._largest_worker(driven.plan, driven.context, trainings.keys())
    read = driver._largest_worker(replace(driven.plan, tokens=corpora), driven.context, trainings.keys())
    assert unread == (24.0, 24.0) and read == (max(corpora.values()), max(corpora.values()))


def test_banks_count_in_what_a_worker_takes_of_a_gpu(driven: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the training, over all its sentences, in float16; and held against the smallest GPU."""
    asked: dict[str, tuple[float, float]] = {}

    def takes(stage: Train, *_: object, bank_bytes: float, gpu_memory: float, tokens: float) -> float:
        asked[stage.key] = (bank_bytes, gpu_memory)
        return 1.0

    monkeypatch.setattr(driver, "gpu_bytes", takes)
    monkeypatch.setattr("sentdist.stages.planning.worker_memory.embedding_width", lambda encoder, folders: 8)
    driven.nodes = ClusterNodes(living=(Node(cpus=8.0, gpus=1.0, gpu_bytes=8e10), Node(cpus=8.0, gpus=1.0, gpu_bytes=4e10)))
    driven.run()
    trainings = [stage for stage in driven.plan.stages if isinstance(stage, Train)]
    assert any(stage.banks for stage in trainings)
    for stage in trainings:
        sentences = sum(driven.plan.rows[bank.corpus.key] * bank.corpus.num_columns for bank in stage.banks)
        assert asked[stage.key] == (sentences * 8 * 2, 4e10)


def test_a_cluster_that_can_carry_nothing_is_refused_before_a_run_is_opened(driven: Driver) -> None:
    driven.nodes = ClusterNodes(living=(Node(cpus=0.0),))
    with pytest.raises(ResourceError):
        driven.run()
    assert not driven.tracker.begin_sweep.called and not driven.board.called
