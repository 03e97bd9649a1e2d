"""When a driver stops printing what happens on its board. Ray is stood in for."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.execution.board import client as printer
from sentdist.execution.board.events import StageEvent
from sentdist.execution.plan_facts import SweepProgress


def _event(label: str) -> StageEvent:
    return StageEvent(key=label, kind="scores", label=label, what="finished", seconds=1.0)


def test_a_driver_that_is_done_leaves_while_another_sweep_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are built by one board, and the other one has an event in each moment."""
    asked: list[int] = []

    def get(since: int) -> tuple[list[StageEvent], int]:
        return [_event(f"the other's {since}")], since + 1

    def wait(refs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        time.sleep(0.01)
        return refs, []

    def events(since: int | None) -> int:
        asked.append(since or 0)
        return since or 0

    monkeypatch.setattr(printer, "ray", SimpleNamespace(wait=wait, get=get))
    submission = SimpleNamespace(context=SimpleNamespace(store=None), sweep="mine")
    board: Any = SimpleNamespace(events=events, submission=submission, reopen=lambda: None)
    lines: list[str] = []

    def drive() -> None:
        with printer.printed_events(board, SweepProgress({}), lines.append):
            while len(lines) < 3:
                time.sleep(0.01)

    driver = threading.Thread(target=drive, daemon=True)
    driver.start()
    driver.join(10)
    assert not driver.is_alive() and len(lines) <= len(asked) < 50


def test_what_was_reported_before_the_end_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[StageEvent] = []

    def get(since: int) -> tuple[list[StageEvent], int]:
        return reported[since:], len(reported)

    def wait(refs: list[int], timeout: float) -> tuple[list[int], list[int]]:
        time.sleep(0.01)
        return (refs, []) if len(reported) > refs[0] else ([], refs)

    monkeypatch.setattr(printer, "ray", SimpleNamespace(wait=wait, get=get))
    monkeypatch.setattr(printer, "LOOK_UP_S", 0.01)
    submission = SimpleNamespace(context=SimpleNamespace(store=None), sweep="mine")
    board: Any = SimpleNamespace(events=lambda since: since or 0, submission=submission, reopen=lambda: None)
    lines: list[str] = []
    with printer.printed_events(board, SweepProgress({}), lines.append):
        reported.extend(_event(f"stage {number}") for number in range(100))
    assert sum("stage" in line for line in lines) == 100


def test_a_head_that_is_gone_is_reported_once_before_ray_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([True, False, True, *[False] * 9])
    monkeypatch.setattr(printer, "HEAD_S", 0.0)
    monkeypatch.setattr(printer, "takes_connections", lambda _: next(looks))
    monkeypatch.setattr(printer, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address="127.0.0.1:9")))
    head = printer._Head("mine")
    said = [head.notice() for _ in range(9)]
    assert [number for number, line in enumerate(said) if line] == [4], "one failure may be a busy head"
    assert "127.0.0.1:9" in str(said[4]) and "sentdist up" in str(said[4])
