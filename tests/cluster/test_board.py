"""The board: one piece of work for a stage however many ask, errors whole, nothing lost when it dies. The stages' bodies are toys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sentdist.errors import DataError
from sentdist.plan.objectives import Entropy, Regularized
from sentdist.plan.runtime import Runtime
from sentdist.plan.specs import EncoderSpec, Task, Training
from sentdist.plan.stages import Corpus, Embed, Evaluate, Train
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore

pytestmark = pytest.mark.cluster

RUNTIME = Runtime(engine="torch", cpus_per_worker=0.5, max_failures=0)


def _rcl(phis: tuple[float, ...], *, seed: int = 0) -> Evaluate:
    """A trial with an entropy encoder and a bank for every phi: 1 + 2·N + 1 + 1 stages."""
    encoder = EncoderSpec(checkpoint="toy", revision="1")
    corpus = Corpus(source="toy", source_revision="1")

    def train(**fields: object) -> Train:
        return Train.model_validate({"encoder": encoder, "corpus": corpus, "training": Training(), "seed": seed} | fields)

    banks = tuple(Embed(encoder=train(objective=Entropy(phi=phi)), corpus=corpus) for phi in phis)
    task = Task(name="toy", kind="sts", source="toy", revision="1")
    return Evaluate(encoder=train(objective=Regularized(), banks=banks), tasks=(task,))


def _toy_body(log: Path, broken: Path) -> Any:
    """A body that writes down what it built and fails for the stages whose label stands in the file `broken`."""

    def body(stage: Any, submission: Any, teller: Any) -> Any:
        from sentdist.errors import DataError

        with log.open("a") as file:
            file.write(f"{stage.kind} {stage.key}\n")
        if broken.exists() and broken.read_text() in stage.label:
            raise DataError(where="toy", found=stage.label, expected="a stage that works", remedy="Mend it: φ ≠ 0.")
        store = submission.context.store
        with store.staged() as folder:
            (folder / "data").write_text(stage.label)
            return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={"label": stage.label})

    return body


@pytest.fixture
def workplace(cluster: Any, tmp_path: Path) -> Any:
    from sentdist.execution.board import Board
    from sentdist.execution.submission import Submission

    class Workplace:
        """A store with a board of its own, and the list of what was built."""

        log = tmp_path / "log"
        broken = tmp_path / "broken"
        context = Context(store=ArtifactStore(tmp_path / "store"), runtime=RUNTIME)

        def __init__(self) -> None:
            self.boards: list[Board] = []

        def open(self) -> Board:
            self.boards.append(Board(Submission(context=self.context), _toy_body(self.log, self.broken)))
            return self.boards[-1]

        @property
        def built(self) -> list[str]:
            return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    workplace = Workplace()
    yield workplace
    for board in workplace.boards:
        board.leave()


def test_trials_that_share_stages_get_one_piece_of_work(workplace: Any) -> None:
    trials = [_rcl((0.01, 0.02)), _rcl((0.01, 0.02, 0.03)), _rcl((0.02,))]
    boards = [workplace.open() for _ in trials]
    with ThreadPoolExecutor(3) as pool:
        artifacts = list(pool.map(lambda pair: pair[0].build(pair[1]), zip(boards, trials, strict=True)))
    assert [artifact.key for artifact in artifacts] == [trial.key for trial in trials]
    assert sorted(workplace.built) == sorted(["corpus"] + 3 * ["train"] + 3 * ["bank"] + 3 * ["train"] + 3 * ["scores"])


def test_a_dead_board_is_replaced_and_builds_nothing_again(workplace: Any) -> None:
    import ray

    board = workplace.open()
    board.build(_rcl((0.01,)))
    num_built = len(workplace.built)
    ray.kill(board.actor)
    assert board.build(_rcl((0.01,))).record.kind == "scores"  # the same caller is served by a fresh board
    assert len(workplace.built) == num_built


def test_an_error_reaches_the_caller_whole_and_nothing_downstream_starts(workplace: Any) -> None:
    workplace.broken.write_text("entropy+0.02")
    board = workplace.open()
    with pytest.raises(DataError) as raised:
        board.build(_rcl((0.01, 0.02)))
    assert type(raised.value) is DataError
    assert (raised.value.expected, raised.value.remedy) == ("a stage that works", "Mend it: φ ≠ 0.")
    assert workplace.built.count("scores") == 0
    assert workplace.built.count("train") == 2  # both entropy encoders, not the encoder that needs them
    board.build(_rcl((0.01,)))  # what does not need the broken stage is built


def test_a_failed_stage_is_not_repeated_by_its_submission_but_by_the_next(workplace: Any) -> None:
    workplace.broken.write_text("entropy+0.02")
    board = workplace.open()
    for _ in range(2):
        with pytest.raises(DataError):
            board.build(_rcl((0.02,)))
    assert workplace.built.count("train") == 1
    workplace.broken.unlink()
    assert workplace.open().build(_rcl((0.02,))).record.kind == "scores"
    assert workplace.built.count("train") == 3


def test_a_stage_whose_artifact_was_removed_is_built_again(workplace: Any) -> None:
    board = workplace.open()
    artifact = board.build(_rcl((0.01,)))
    workplace.context.store.drop(artifact)
    board.build(_rcl((0.01,)))
    assert workplace.built.count("scores") == 2


def test_the_board_ends_with_the_last_submission(workplace: Any) -> None:
    import ray
    from ray.exceptions import RayActorError

    first, second = workplace.open(), workplace.open()
    first.build(_rcl((0.01,)))
    first.leave()
    with pytest.raises(RayActorError):
        ray.get(second.actor.num_told.remote())
    assert second.build(_rcl((0.01, 0.02))).record.kind == "scores"
