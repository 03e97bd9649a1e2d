"""The board: one piece of work for a stage however many ask, errors whole, nothing lost when it dies. The bodies of stages are toys."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import DataError, ResourceError, SweepStopped
from sentdist.objectives.entropy import Entropy
from sentdist.objectives.rcl import RCL
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderSpec, Training
from sentdist.recipe.stages import Bank, Scores, Train
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from sentdist.tasks.sts import StsTask
from sentdist.tracking.tracker import RunOutcome, Tracker
from tests.support.waiting import wait_for

DRIVER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
import ray
ray.init(address={address!r}, logging_level="ERROR", log_to_driver=False)
from tests.cluster.test_board import Gated, LastWord, _rcl
Gated(Path({folder!r})).open("killed", LastWord(Path({folder!r}) / "last-word")).build(_rcl((0.01,)))
"""
pytestmark = pytest.mark.cluster
RUNTIME = Runtime(engine="torch", cpus_per_worker=0.5, max_failures=0)


def _rcl(phis: tuple[float, ...], *, seed: int = 0) -> Scores:
    """A trial with an entropy encoder and a bank for every phi: 1 + 2·N + 1 + 1 stages."""
    encoder = EncoderSpec(checkpoint="toy", revision="1")
    corpus = RowsCorpus(source="toy", source_revision="1")

    def train(**fields: object) -> Train:
        return Train.model_validate({"encoder": encoder, "corpus": corpus, "training": Training(), "seed": seed} | fields)

    banks = tuple(Bank(encoder=train(objective=Entropy(phi=phi)), corpus=corpus) for phi in phis)
    task = StsTask(name="toy", source="toy", revision="1")
    return Scores(encoder=train(objective=RCL(), banks=banks), tasks=(task,))


class LastWord(Tracker):
    """Writes into a file how a sweep ended."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def finish_sweep(self, outcome: RunOutcome | None = None) -> None:
        self._path.write_text(str(outcome))


class Gated:
    """A store of toys. Entropy encoders wait for a gate, and the stages fail whose label stands in the file `broken`."""

    def __init__(self, folder: Path) -> None:
        self.log, self.gate, self.broken = (folder / name for name in ("log", "gate", "broken"))
        self.store, self.boards = ArtifactStore(folder / "store"), list[Any]()

    def open(self, sweep: str = "", tracker: Tracker | None = None) -> Any:
        from sentdist.run.client import BoardClient
        from sentdist.run.submissions import Submission

        submission = Submission(context=Context(store=self.store, runtime=RUNTIME), sweep=sweep, tracker=tracker or Tracker())
        self.boards.append(BoardClient(submission, _toy_body(self.log, self.gate, self.broken), patience_s=0.5))
        return self.boards[-1]

    @property
    def built(self) -> list[str]:
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

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


@pytest.fixture
def gated(cluster: Any, tmp_path: Path) -> Iterator[Gated]:
    made = Gated(tmp_path)
    yield made
    for board in made.boards:
        board.leave()


def _toy_body(log: Path, gate: Path, broken: Path) -> Any:
    """A body that writes down what it begins and in which process."""

    def body(stage: Any, submission: Any, sink: Any) -> Any:
        import os
        import time

        from sentdist.errors import DataError

        with log.open("a") as file:
            file.write(f"{stage.kind} {stage.label} {os.getpid()}\n")
        while stage.kind == "train" and "entropy" in stage.label and not gate.exists():
            time.sleep(0.02)
        if broken.exists() and broken.read_text() in stage.label:
            raise DataError(where="toy", found=stage.label, expected="a stage that works", remedy="Fix it: φ ≠ 0.")
        store = submission.context.store
        with store.staged() as folder:
            (folder / "data").write_text(stage.label)
            return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})

    return body


def _lives(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@pytest.fixture
def toys(gated: Gated) -> Gated:
    """With an open gate."""
    gated.gate.touch()
    return gated


def test_trials_that_share_stages_get_one_piece_of_work(toys: Gated) -> None:
    trials = [_rcl((0.01, 0.02)), _rcl((0.01, 0.02, 0.03)), _rcl((0.02,))]
    boards = [toys.open() for _ in trials]
    with ThreadPoolExecutor(3) as pool:
        artifacts = list(pool.map(lambda pair: pair[0].build(pair[1]), zip(boards, trials, strict=True)))
    assert [artifact.key for artifact in artifacts] == [trial.key for trial in trials]
    assert sorted(toys.built) == sorted(["corpus"] + 3 * ["train"] + 3 * ["bank"] + 3 * ["train"] + 3 * ["scores"])


def test_a_sweep_is_stopped_and_what_another_needs_goes_on(gated: Gated) -> None:
    import ray

    from sentdist.run.client import stop_sweeps

    first, second = gated.open("first"), gated.open("second")
    with gated.callers() as pool:
        stopped = [pool.submit(first.build, trial) for trial in (_rcl((0.01, 0.02)), _rcl((0.01,)))]
        shared, alone = gated.wait_for("entropy+0.01"), gated.wait_for("entropy+0.02")
        kept = pool.submit(second.build, _rcl((0.01,)))
        wait_for(lambda: ray.get(second.actor.sweeps.remote()) == {"first": 8, "second": 4}, what="all requests")
        # between the two: a driver that another test has killed a minute ago
        with pytest.raises(ResourceError, match=r'only .*first, .*second .* Did you mean "first"'):
            stop_sweeps("frist")
        assert stop_sweeps("first") == {"first": 4}  # the other entropy encoder, its bank, the training on both banks, its scores
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


def test_work_of_a_killed_driver_ends_unless_another_needs_it(cluster: Any, gated: Gated, tmp_path: Path) -> None:
    import ray

    other = gated.open("other")
    script = DRIVER.format(root=str(Path(__file__).parents[2]), address=cluster.address, folder=str(tmp_path))
    with gated.callers() as pool, subprocess.Popen([sys.executable, "-c", script]) as driver:
        kept = pool.submit(other.build, _rcl((0.02,)))
        needed, needless = gated.wait_for("entropy+0.02"), gated.wait_for("entropy+0.01")
        driver.kill()
        wait_for(lambda: not _lives(needless), what="the end of the work that nobody needs")
        assert _lives(needed)
        wait_for((tmp_path / "last-word").exists, what="a tracker that gets the end")
        assert (tmp_path / "last-word").read_text() == "stopped"
        assert ray.get(other.actor.sweeps.remote()) == {"other": 4}
        gated.gate.touch()
        assert kept.result(timeout=60).record.kind == "scores"


def test_a_dead_board_is_replaced_and_builds_nothing_again_but_what_was_removed(toys: Gated) -> None:
    import ray

    board = toys.open()
    artifact = board.build(_rcl((0.01,)))
    num_built = len(toys.built)
    ray.kill(board.actor)
    assert board.build(_rcl((0.01,))).record.kind == "scores"  # the same caller is served by a fresh board
    assert len(toys.built) == num_built
    toys.store.drop(artifact)
    board.build(_rcl((0.01,)))
    assert toys.built.count("scores") == 2


def test_an_error_reaches_the_caller_whole_and_is_repeated_by_the_next_submission_only(toys: Gated) -> None:
    toys.broken.write_text("entropy+0.02")
    board = toys.open()
    for _ in range(2):
        with pytest.raises(DataError) as raised:
            board.build(_rcl((0.01, 0.02)))
        assert type(raised.value) is DataError
        assert (raised.value.expected, raised.value.remedy) == ("a stage that works", "Fix it: φ ≠ 0.")
        assert toys.built.count("scores") == 0, "nothing downstream starts"
        assert toys.built.count("train") == 2  # both entropy encoders, not the encoder that needs them
    board.build(_rcl((0.01,)))  # what does not need the broken stage is built
    toys.broken.unlink()
    assert toys.open().build(_rcl((0.02,))).record.kind == "scores"
