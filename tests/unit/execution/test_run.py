"""What is refused before a cluster is asked for anything, and how progress reads."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sentdist.errors import RecipeError
from sentdist.execution.board.events import StageEvent
from sentdist.execution.cluster.connection import check_auth_mode
from sentdist.machine import end_on_sigterm
from sentdist.stages.planning.planned import planned

RECIPES = Path(__file__).parents[3] / "rayjobs" / "recipes"


@pytest.mark.parametrize("mode", [None, "", "maybe"])
def test_the_auth_mode_is_never_guessed(mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(RecipeError, match="RAY_AUTH_MODE"):
        check_auth_mode()


@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_a_said_auth_mode_is_taken(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    check_auth_mode()


def test_places_are_absolute_before_they_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan, context = planned(RECIPES / "demo.yaml", overrides=["runtime.workers=2"], store="here/store", data=Path("there"))
    assert (context.store.root, context.data_root) == (str(tmp_path / "here/store"), str(tmp_path / "there"))
    assert context.runtime.workers == plan.recipe.runtime.workers == 2
    assert planned(RECIPES / "demo.yaml", overrides=["sweep={}"], store="here")[0].recipe.sweep == {}


def test_being_stopped_ends_the_driver_in_order() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        end_on_sigterm()
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("event", "reported"),
    [
        (StageEvent(key="k", kind="train", label="rcl", what="started"), "train   rcl  started"),
        (StageEvent(key="k", kind="bank", label="rcl", what="started", message="bank of 1.0 MiB"), "bank    rcl  started: bank of 1.0 MiB"),
        (
            StageEvent(key="k", kind="train", label="rcl", what="step", step=5, num_steps=50, loss=0.5, sentences_per_s=99.6),
            "step 5/50, loss 0.5000, 100 sentences/s",
        ),
        (
            StageEvent(key="k", kind="train", label="rcl", what="dev", step=5, num_steps=50, task="stsb-dev", score=81.234, is_best=True),
            "step 5/50, stsb-dev 81.23 (best so far)",
        ),
        (StageEvent(key="k", kind="bank", label="rcl", what="finished", seconds=2.0), "done in 2.0 s"),
        (StageEvent(key="k", kind="bank", label="rcl", what="failed", message="DataError: no"), "FAILED: DataError: no"),
    ],
)
def test_an_event_is_a_line_for_people(event: StageEvent, reported: str) -> None:
    assert event.line.endswith(reported)
