"""What a process on a cluster does with a stage beside building it: what it tells board and tracker, reserves and removes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sentdist.errors import ArtifactLost
from sentdist.execution import build_stage as built
from sentdist.execution import reserved
from sentdist.execution.board.submissions import Submission
from sentdist.execution.build_stage import build_stage
from sentdist.execution.training import rank
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Stage
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.every_stage import one_of_each
from tests.support.lost_training import RecordingSink

SAID = {"where": "here", "found": "this", "expected": "that", "remedy": "None."}
ARTIFACT: Any = Mock(record=Mock(seconds=1.0))


class Built:
    """Stages built with other bodies; tracker, signs of life and reservations as they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.tracker, self.body, self.sink, self.reserved = Mock(), Mock(return_value=ARTIFACT), RecordingSink(), Mock()
        self.beats: list[str] = []
        self.submission = Submission(
            context=Context(store=ArtifactStore(folder), runtime=Runtime(engine="torch", bank_in_object_store=False)), tracker=self.tracker
        )
        monkeypatch.setattr(built, "Heartbeats", self._beating)
        monkeypatch.setattr(built, "build_in_process", self.body)
        monkeypatch.setattr(reserved, "use_reserved", self.reserved)

    @contextmanager
    def _beating(self, stage: Stage, sink: Any) -> Iterator[None]:
        assert sink is self.sink
        self.beats.append(stage.key)
        yield

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
        for stand_in in (build.sink.reported, build.beats):
            stand_in.clear()
        build.tracker.reset_mock()
        build.reserved.reset_mock()
        assert build(stage) is ARTIFACT
        assert build.events == ["started", "finished"] and build.beats == [stage.key]
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
