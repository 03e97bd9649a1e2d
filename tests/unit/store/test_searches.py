"""The record of a search: what is noted can be read back, in order, also around lines that are damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sentdist.errors import StoreError
from sentdist.store.searches import (
    FinalistsChosen,
    RungReached,
    SearchBegun,
    SearchEvent,
    SearchState,
    TrialEnded,
    TrialSuggested,
    append_event,
    load_events,
    load_search,
    search_names,
)
from sentdist.store.store import ArtifactStore

BEGUN = SearchBegun(identity="one", recipe={"name": "small"}, methods={"rcl": ("training.learning_rate",)}, at=0.0)


def suggested(number: int, rate: float, *, at: float = 10.0) -> TrialSuggested:
    return TrialSuggested(number=number, method="rcl", suggestion={"training.learning_rate": rate}, train=f"t{number}", at=at)


def rung(number: int, share: float, dev: float, *, paid_s: float = 0.0, at: float = 20.0) -> RungReached:
    return RungReached(
        number=number, share=share, key=f"k{number}-{share:g}", step=int(10 * share), dev=dev, last_dev=dev - 1, sentences=int(100 * share),
        seconds=60 * share, paid_s=paid_s, paid_sentences=int(10 * paid_s), paid_for=("a", "b"), at=at,
    )  # fmt: skip


EVENTS: tuple[SearchEvent, ...] = (
    BEGUN,
    suggested(0, 1e-5),
    suggested(1, 1e-4),
    rung(1, 0.5, 60.0, paid_s=30),
    rung(0, 0.5, 50.0, paid_s=40),
    TrialEnded(number=1, state="pruned", at=30.0),
    rung(0, 1.0, 55.0, paid_s=50, at=35.0),
    TrialEnded(number=0, state="finished", at=36.0),
    suggested(2, 2e-5, at=37.0),
)


def kept(store: ArtifactStore, events: tuple[SearchEvent, ...]) -> Path:
    for event in events:
        append_event(store, "small", event)
    return Path(store.base) / "searches" / "small.jsonl"


def test_what_was_noted_is_read_back(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    kept(store, EVENTS)
    assert load_events(store, "small") == EVENTS
    assert search_names(store) == ["small"]
    found = load_search(store, "small")
    assert [(trial.number, trial.state) for trial in found.trials] == [(1, "pruned"), (0, "finished"), (2, "running")]
    assert [(one.share, one.dev, one.paid_s) for one in found.trials[1].rungs] == [(0.5, 50.0, 40), (1.0, 55.0, 50)]
    assert (found.trials[1].dev, found.trials[1].paid_s, found.trials[2].dev) == (55.0, 90, None)
    assert (found.spent_sentences, found.reason) == (1200, None)
    assert found.of_method("rcl") == found.trials
    assert not found.of_method("base")


def test_what_is_known_follows_from_the_lines_one_by_one() -> None:
    state = SearchState()
    for event in (*EVENTS, rung(0, 0.5, 99.0, paid_s=7), rung(7, 0.5, 98.0), TrialEnded(number=7, state="finished")):
        state.take(event)
    assert (state.spent_sentences, state.paid_for, state.best_dev("rcl"), state.best_dev("base")) == (1200, {"a", "b"}, 55.0, None)
    state.take(rung(2, 0.5, 40.0))
    assert state.devs_before(state.trials[2]) == [60.0, 50.0], "a rung that is noted twice, or of an unknown trial, counts for nothing"
    state.take(TrialEnded(number=2, state="failed", error="gone"))
    assert (state.trials[2].state, state.trials[2].error) == ("failed", "gone")
    state.take(rung(2, 1.0, 70.0))
    assert (state.trials[2].state, state.trials[2].error) == ("running", None), "it was tried again"
    assert state.devs_before(state.trials[2]) == [55.0]
    state.take(FinalistsChosen(finalists=(), reason="enough"))
    assert state.record("small").reason == "enough"
    state.take(BEGUN)
    assert state.record("small").reason is None and state.chosen is not None


@pytest.mark.parametrize("damage", [b"\xff\x00\n", b'12345678 {"what": "ended", "number": 1, "state": "pruned"}\n', b"half a li"])
def test_a_damaged_line_costs_itself_alone(damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ArtifactStore(tmp_path)
    file = kept(store, EVENTS[:4])
    with file.open("ab") as opened:
        opened.write(damage)
    kept(store, EVENTS[4:])  # after a torn line, too, the next one stands alone
    with caplog.at_level(logging.WARNING):
        assert load_events(store, "small") == EVENTS
    assert "1 line left out" in caplog.text


def test_a_process_that_finds_lines_of_another_one_notes_nothing_more(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    size = append_event(store, "small", BEGUN)
    size = append_event(store, "small", suggested(0, 0.5), size=size)
    append_event(store, "small", BEGUN)  # submitted a second time
    with pytest.raises(StoreError, match="lines of another process"):
        append_event(store, "small", suggested(1, 0.7), size=size)
    assert len(load_events(store, "small")) == 3
