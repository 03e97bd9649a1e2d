"""The board: one piece of work for a stage however many ask, errors whole, nothing lost when it dies. The stages' bodies are toys."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import DataError, ResourceError, SweepStopped
from sentdist.objectives.entropy import Entropy
from sentdist.objectives.rcl import RCL
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import EncoderSpec, Task, Training
from sentdist.plan.stages import Bank, Scores, Train
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import NullTracker, RunOutcome, Tracker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

RUNTIME = Runtime(engine="torch", cpus_per_worker=0.5, max_failures=0)


def _rcl(phis: tuple[float, ...], *, seed: int = 0) -> Scores:
    """A trial with an entropy encoder and a bank for every phi: 1 + 2·N + 1 + 1 stages."""
    encoder = EncoderSpec(checkpoint="toy", revision="1")
    corpus = RowsCorpus(source="toy", source_revision="1")

    def train(**fields: object) -> Train:
        return Train.model_validate({"encoder": encoder, "corpus": corpus, "training": Training(), "seed": seed} | fields)

    banks = tuple(Bank(encoder=train(objective=Entropy(phi=phi)), corpus=corpus) for phi in phis)
    task = Task(name="toy", kind="sts", source="toy", revision="1")
    return Scores(encoder=train(objective=RCL(), banks=banks), tasks=(task,))


def _toy_body(log: Path, broken: Path) -> Any:
    """A body that writes down what it built and fails for the stages whose label stands in the file `broken`."""

    def body(stage: Any, submission: Any, sink: Any) -> Any:
        import os

        from sentdist.errors import DataError

        with log.open("a") as file:
            file.write(f"{stage.kind} {stage.key}\n")
        if broken.exists() and broken.read_text() in stage.label:
            raise DataError(where="toy", found=stage.label, expected="a stage that works", remedy="Fix it: φ ≠ 0.")
        store = submission.context.store
        with store.staged() as folder:
            (folder / "data").write_text(stage.label)
            return store.commit(
                stage,
                folder,
                seconds=0.0,
                runtime={},
                environment={},
                results={"label": stage.label, "cluster": os.environ.get("RAY_ADDRESS")},
            )

    return body


@pytest.fixture
def store_with_board(cluster: Any, tmp_path: Path) -> Any:
    from sentdist.execution.board.client import BoardClient
    from sentdist.execution.board.submissions import Submission

    class StoreWithBoard:
        """A store with a board of its own, and the list of what was built."""

        log = tmp_path / "log"
        broken = tmp_path / "broken"
        context = Context(store=ArtifactStore(tmp_path / "store"), runtime=RUNTIME)

        def __init__(self) -> None:
            self.boards: list[BoardClient] = []

        def open(self, **options: float) -> BoardClient:
            self.boards.append(BoardClient(Submission(context=self.context), _toy_body(self.log, self.broken), **options))
            return self.boards[-1]

        @property
        def built(self) -> list[str]:
            return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    store_with_board = StoreWithBoard()
    yield store_with_board
    for board in store_with_board.boards:
        board.leave()


def test_trials_that_share_stages_get_one_piece_of_work(store_with_board: Any) -> None:
    trials = [_rcl((0.01, 0.02)), _rcl((0.01, 0.02, 0.03)), _rcl((0.02,))]
    boards = [store_with_board.open() for _ in trials]
    with ThreadPoolExecutor(3) as pool:
        artifacts = list(pool.map(lambda pair: pair[0].build(pair[1]), zip(boards, trials, strict=True)))
    assert [artifact.key for artifact in artifacts] == [trial.key for trial in trials]
    assert sorted(store_with_board.built) == sorted(["corpus"] + 3 * ["train"] + 3 * ["bank"] + 3 * ["train"] + 3 * ["scores"])


def test_a_dead_board_is_replaced_and_builds_nothing_again(store_with_board: Any) -> None:
    import ray

    board = store_with_board.open()
    board.build(_rcl((0.01,)))
    num_built = len(store_with_board.built)
    ray.kill(board.actor)
    assert board.build(_rcl((0.01,))).record.kind == "scores"  # the same caller is served by a fresh board
    assert len(store_with_board.built) == num_built


def test_an_error_reaches_the_caller_whole_and_nothing_downstream_starts(store_with_board: Any) -> None:
    store_with_board.broken.write_text("entropy+0.02")
    board = store_with_board.open()
    with pytest.raises(DataError) as raised:
        board.build(_rcl((0.01, 0.02)))
    assert type(raised.value) is DataError
    assert (raised.value.expected, raised.value.remedy) == ("a stage that works", "Fix it: φ ≠ 0.")
    assert store_with_board.built.count("scores") == 0
    assert store_with_board.built.count("train") == 2  # both entropy encoders, not the encoder that needs them
    board.build(_rcl((0.01,)))  # what does not need the broken stage is built


@pytest.mark.nightly
def test_what_starts_ray_train_tells_it_which_cluster_it_is_on(cluster: Any, store_with_board: Any) -> None:
    """Else its cleaner looks for clusters on the machine, finds this one and somebody's other one, and gives nothing back."""
    store_with_board.context = replace(store_with_board.context, runtime=Runtime(engine="deepspeed", cpus_per_worker=0.5, max_failures=0))
    training = _rcl((0.01,)).encoder
    assert isinstance(training, Train)
    assert store_with_board.open().build(training).record.results["cluster"] == cluster.address


def test_a_failed_stage_is_not_repeated_by_its_submission_but_by_the_next(store_with_board: Any) -> None:
    store_with_board.broken.write_text("entropy+0.02")
    board = store_with_board.open()
    for _ in range(2):
        with pytest.raises(DataError):
            board.build(_rcl((0.02,)))
    assert store_with_board.built.count("train") == 1
    store_with_board.broken.unlink()
    assert store_with_board.open().build(_rcl((0.02,))).record.kind == "scores"
    assert store_with_board.built.count("train") == 3


def test_a_stage_whose_artifact_was_removed_is_built_again(store_with_board: Any) -> None:
    board = store_with_board.open()
    artifact = board.build(_rcl((0.01,)))
    store_with_board.context.store.drop(artifact)
    board.build(_rcl((0.01,)))
    assert store_with_board.built.count("scores") == 2


def test_the_board_ends_with_the_last_submission(store_with_board: Any) -> None:
    import ray

    first, second = store_with_board.open(), store_with_board.open()
    first.build(_rcl((0.01,)))
    first.leave()
    assert ray.get(second.actor.last_number.remote()) == 0
    second.leave()
    wait_for(lambda: not _alive(second), what="the board's end")
    assert second.build(_rcl((0.01, 0.02))).record.kind == "scores"


def _alive(board: Any) -> bool:
    """Whether its actor answers: a board that has ended says so a moment after the answer to the last submission."""
    import ray
    from ray.exceptions import RayActorError

    try:
        ray.get(board.actor.last_number.remote())
    except RayActorError:
        return False
    return True


class LastWord(NullTracker):
    """Writes into a file how a sweep ended."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None:
        self._path.write_text(str(outcome))


class Gated:
    """A store whose entropy encoders wait for a gate."""

    def __init__(self, folder: Path) -> None:
        self.log, self.gate, self.store = folder / "log", folder / "gate", ArtifactStore(folder / "store")

    @property
    def signs(self) -> Path:
        """There once a training at the gate has given a sign of life."""
        return self.log.with_suffix(".signs")

    def open(self, sweep: str, tracker: Tracker | None = None, **options: float) -> Any:
        from sentdist.execution.board.client import BoardClient
        from sentdist.execution.board.submissions import Submission

        submission = Submission(context=Context(store=self.store, runtime=RUNTIME), sweep=sweep, tracker=tracker or NullTracker())
        return BoardClient(submission, _gated_body(self.log, self.gate), patience_s=0.5, **options)

    def processes_of(self, label: str) -> list[int]:
        """Those that began a training of that label, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [int(line.split()[-1]) for line in lines if line.startswith(f"train {label}-")]

    def wait_for(self, label: str) -> int:
        """The process that begins a training."""
        wait_for(lambda: bool(self.processes_of(label)), what=label)
        return self.processes_of(label)[-1]

    @contextmanager
    def callers(self) -> Iterator[ThreadPoolExecutor]:
        """Threads to ask for stages; a test that fails leaves none of them at the gate."""
        with ThreadPoolExecutor(3) as pool:
            try:
                yield pool
            finally:
                self.gate.touch()


def _gated_body(log: Path, gate: Path) -> Any:
    """A body that writes down what it begins and in which process, and waits at entropy encoders for the file `gate`."""

    def body(stage: Any, submission: Any, sink: Any) -> Any:
        import os
        import time

        from sentdist.execution.board.diagnosis import Heartbeats

        with log.open("a") as file:
            file.write(f"{stage.kind} {stage.label} {os.getpid()}\n")
        with Heartbeats(stage, sink):
            while stage.kind == "train" and "entropy" in stage.label and not gate.exists():
                time.sleep(0.02)
                log.with_suffix(".signs").touch()
        store = submission.context.store
        with store.staged() as folder:
            (folder / "data").write_text(stage.label)
            return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})

    return body


def _lives(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@pytest.fixture
def gated(cluster: Any, tmp_path: Path) -> Gated:
    return Gated(tmp_path)


def test_a_sweep_is_stopped_and_what_another_needs_goes_on(gated: Gated) -> None:
    import ray

    from sentdist.execution.board.client import stop_sweeps

    first, second = gated.open("first"), gated.open("second")
    with gated.callers() as pool:
        stopped = [pool.submit(first.build, trial) for trial in (_rcl((0.01, 0.02)), _rcl((0.01,)))]
        shared, alone = gated.wait_for("entropy+0.01"), gated.wait_for("entropy+0.02")
        kept = pool.submit(second.build, _rcl((0.01,)))
        wait_for(lambda: ray.get(second.actor.sweeps.remote()) == {"first": 8, "second": 4}, what="all requests")
        # between the two: a driver that another test has killed a minute ago
        with pytest.raises(ResourceError, match=r'only .*first, .*second .* Did you mean "first"'):
            stop_sweeps("frist")
        (reported,) = stop_sweeps("first")
        assert reported.num_ended == 4  # the other entropy encoder, its bank, the training on both banks, its scores
        for build in stopped:  # also the one whose stages all go on, for the other sweep
            with pytest.raises(SweepStopped, match=r"first: .* `sentdist stop`"):
                build.result(timeout=60)
        wait_for(lambda: not _lives(alone), what="the end of the process")
        assert _lives(shared)
        with pytest.raises(SweepStopped):
            first.build(_rcl((0.03,)))
        gated.gate.touch()
        assert kept.result(timeout=60).record.kind == "scores"
    assert len(gated.processes_of("entropy+0.01")) == 1
    first.leave()
    again = gated.open("first")
    assert again.build(_rcl((0.01, 0.02))).record.kind == "scores"
    for board in (again, second):
        board.leave()


def test_work_of_a_submission_that_leaves_ends(gated: Gated) -> None:
    """As when `ray job stop` ends a driver in order: it leaves while its trials wait."""
    first, second = gated.open("first"), gated.open("second")
    with gated.callers() as pool:
        building = pool.submit(first.build, _rcl((0.01,)))
        process = gated.wait_for("entropy+0.01")
        first.leave()
        wait_for(lambda: not _lives(process), what="the end of the process")
        assert building.exception(timeout=60) is not None
    gated.gate.touch()
    assert second.build(_rcl((0.01,))).record.kind == "scores"
    second.leave()


DRIVER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
import ray
ray.init(address={address!r}, logging_level="ERROR", log_to_driver=False)
from tests.cluster.test_board import Gated, LastWord, _rcl
folder, sweep = Path({folder!r}), sys.argv[1]
Gated(folder).open(sweep, LastWord(folder / ("last-word of " + sweep))).build(_rcl((float(sys.argv[2]),)))
"""


@contextmanager
def _driver(sweep: str, phi: float, cluster: Any, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process of its own, which can be killed."""
    script = DRIVER.format(root=str(Path(__file__).parents[2]), address=cluster.address, folder=str(folder))
    with subprocess.Popen([sys.executable, "-c", script, sweep, str(phi)]) as driver:
        yield driver


def test_work_of_a_killed_driver_ends_unless_another_needs_it(cluster: Any, gated: Gated, tmp_path: Path) -> None:
    import ray

    other = gated.open("other")
    with gated.callers() as pool, _driver("killed", 0.01, cluster, tmp_path) as driver:
        kept = pool.submit(other.build, _rcl((0.02,)))
        needed, needless = gated.wait_for("entropy+0.02"), gated.wait_for("entropy+0.01")
        driver.kill()
        wait_for(lambda: not _lives(needless), what="the end of the work that nobody needs")
        assert _lives(needed)
        wait_for((tmp_path / "last-word of killed").exists, what="a tracker that gets the end")
        assert (tmp_path / "last-word of killed").read_text() == "stopped"
        assert ray.get(other.actor.sweeps.remote()) == {"other": 4}
        gated.gate.touch()
        assert kept.result(timeout=60).record.kind == "scores"
    other.leave()


@pytest.mark.nightly
def test_a_sweep_that_was_submitted_again_is_not_said_to_be_stopped(cluster: Any, gated: Gated, tmp_path: Path) -> None:
    with gated.callers() as pool:
        with _driver("again", 0.01, cluster, tmp_path) as killed:
            gated.wait_for("entropy+0.01")
            killed.kill()
        again = gated.open("again")
        built = pool.submit(again.build, _rcl((0.01,)))
        with _driver("given up", 0.02, cluster, tmp_path) as later:
            gated.wait_for("entropy+0.02")
            later.kill()
        wait_for((tmp_path / "last-word of given up").exists, what="the end of the board's patience with the later one")
        assert not (tmp_path / "last-word of again").exists()
        gated.gate.touch()
        assert built.result(timeout=60).record.kind == "scores"
    assert len(gated.processes_of("entropy+0.01")) == 1
    again.leave()
