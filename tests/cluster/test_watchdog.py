"""What a board says of work that does not move, and how often work may be lost. The stages' bodies are toys."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import ResourceError
from sentdist.execution.board.events import StageEvent
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.train_setup import ALONE
from sentdist.store.store import ArtifactStore
from tests.cluster.test_board import RUNTIME, Gated, _rcl, gated, store_with_board
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

__all__ = ["gated", "store_with_board"]


@contextmanager
def _following(board: Any, stage: Any) -> Iterator[Callable[[str], StageEvent]]:
    """Have a stage built, to its end after the context; gives a function that waits for the first event with some words."""
    reported: list[StageEvent] = []

    def listen() -> None:
        for event in board.follow(stage):
            reported.append(event)

    def observed(words: str) -> StageEvent:
        wait_for(lambda: any(words in event.what_happened for event in reported) or following.done(), what=words)
        return next(event for event in reported if words in event.what_happened)

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(listen)
        yield observed


def test_what_waits_for_the_cluster_is_said_with_numbers(cluster: Any, store_with_board: Any) -> None:
    import ray

    taken = ray.util.placement_group([{"CPU": 2}])
    ray.get(taken.ready())
    with _following(store_with_board.open(silence_s=0.5), _rcl((0.01,)).encoder.corpus) as observed:
        try:
            event = observed("waits for")
        finally:
            ray.util.remove_placement_group(taken)
    assert (event.what, event.kind) == ("notice", "corpus")
    assert event.what_happened == "waits for 1 × 0.5 CPUs, the cluster has 2 of which 0 are free"


def test_a_worker_that_stands_still_is_named_with_its_host(cluster: Any, gated: Gated) -> None:
    board = gated.open("stopped", silence_s=1.0)
    with _following(board, _rcl((0.01,))) as observed:
        process = gated.wait_for("entropy+0.01")
        try:
            wait_for(gated.signs.exists, what="a first sign of life")
            os.kill(process, signal.SIGSTOP)
            event = observed("no sign of life")
        finally:
            os.kill(process, signal.SIGCONT)
            gated.gate.touch()
    assert event.kind == "train"
    assert event.what_happened.endswith("on host " + cluster.address.partition(":")[0])
    board.leave()


@pytest.mark.nightly
def test_losses_count_only_while_a_training_does_not_get_on(cluster: Any, tmp_path: Path) -> None:
    """Three losses with max_failures: 1. Each attempt leaves a later checkpoint behind, as one on a spot machine does;
    then one that does not."""
    from sentdist.execution.board.client import BoardClient
    from sentdist.execution.board.submissions import Submission

    train = _rcl((0.01,)).encoder
    assert isinstance(train, Train)
    (bank,) = train.banks
    reported: dict[int, list[str]] = {}
    for getting_on, num_lost in ((True, 3), (False, 2)):
        context = Context(store=ArtifactStore(tmp_path / str(num_lost)), runtime=RUNTIME.model_copy(update={"max_failures": 1}))
        board = BoardClient(Submission(context=context), _dying_body(tmp_path / f"log{num_lost}", num_lost, getting_on=getting_on))
        reported[num_lost] = []
        try:
            for event in board.follow(bank.encoder):
                reported[num_lost] += [event.what_happened] if event.what == "retry" else []
        except ResourceError as error:
            reported[num_lost].append(error.found)
        board.leave()
    assert len(reported[3]) == 3
    assert all(line.endswith(f"goes on from its checkpoint of step {step}") for line, step in zip(reported[3], (10, 20, 30), strict=True))
    assert reported[2][0].endswith("starts over")
    assert "was lost 2 times before its first checkpoint" in reported[2][1]


def _dying_body(log: Path, num_lost: int, *, getting_on: bool) -> Any:
    """A body whose process goes away `num_lost` times, each time with a later checkpoint behind it if it gets on."""

    def body(stage: Any, submission: Any, sink: Any) -> Any:
        import os

        from sentdist.execution.training.checkpoints import RunningFolder
        from sentdist.learning.checkpoint import EngineFacts, Progress, write_progress

        store = submission.context.store
        if stage.kind == "train":
            with log.open("a") as file:
                file.write("begun\n")
            attempt = len(log.read_text().splitlines())
            if getting_on:
                facts = EngineFacts(engine="torch", zero_stage=0, world_size=1)
                step = 10 * attempt
                RunningFolder(store, stage, ALONE).save(lambda folder: write_progress(folder, Progress(step=step), facts), step=step)
            if attempt <= num_lost:
                os._exit(1)
        with store.staged() as folder:
            (folder / "data").write_text(stage.label)
            return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})

    return body
