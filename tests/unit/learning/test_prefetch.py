"""Batches that are made ahead: the same ones in the same order, never too many, and no thread is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from sentdist.errors import DataError
from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.prefetch import Sender, SentBatch, made_ahead


def _threads() -> int:
    return sum(thread.name == "batches" for thread in threading.enumerate())


def test_items_come_in_order_and_two_of_them_are_made_before_they_are_drawn() -> None:
    made: list[int] = []
    drawn = 0
    too_many: list[tuple[int, int]] = []
    two_are_made = threading.Event()

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            if len(made) == 2:
                two_are_made.set()
            if len(made) > drawn + 3:  # two that wait, and the one that is asked for
                too_many.append((len(made), drawn))
            yield number

    with made_ahead(items) as found:
        assert two_are_made.wait(60.0)
        for number, item in enumerate(found):
            assert item == number
            drawn += 1
    assert made == list(range(20)) and not too_many
    assert not _threads()


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise DataError(where="corpus", found="nothing", expected="a sentence", remedy="Look.")

    with made_ahead(items) as found:
        assert next(found) == 1 and next(found) == 2
        with pytest.raises(DataError, match="corpus: found nothing"):
            next(found)
    assert not _threads()


@pytest.mark.parametrize("num_drawn", [0, 3])
def test_whoever_stops_early_leaves_no_thread(num_drawn: int) -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    def some() -> Iterator[int]:
        with made_ahead(endless) as found:
            for _ in range(num_drawn):
                yield next(found)

    assert list(some()) == list(range(1, num_drawn + 1))
    assert not _threads()
    broken = some()
    next(broken, None)
    broken.close()  # type: ignore[attr-defined]  # it is a generator
    assert not _threads()


def test_an_error_of_the_reader_leaves_no_thread() -> None:
    with pytest.raises(KeyError), made_ahead(lambda: iter(range(100))) as found:
        raise KeyError(next(found))
    assert not _threads()


class PretendedDriver:
    """Two GPUs as CUDA shows them to a process: each thread begins on the first, and whoever sets a device makes a context on it."""

    def __init__(self) -> None:
        self.contexts: set[int] = set()
        self._here = threading.local()

    @property
    def current(self) -> int:
        return getattr(self._here, "device", 0)

    def set_device(self, device: int) -> None:
        self._here.device = device
        self.contexts.add(device)

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        """torch.cuda.device: goes back without making a context."""
        before = self.current
        self.set_device(device.index)
        yield
        self._here.device = before

    @contextmanager
    def stream(self, stream: SimpleNamespace) -> Iterator[None]:
        """torch.cuda.stream: goes back to the stream that was, and so to the device that was."""
        before = self.current
        self.set_device(stream.device.index)
        yield
        self.set_device(before)


def test_the_thread_that_sends_leaves_the_first_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, gpu = PretendedDriver(), torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device", driver.device)
    monkeypatch.setattr(torch.cuda, "stream", driver.stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(device=device))
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda stream: None))
    used: list[int] = []

    def pinned() -> Batch:
        used.append(driver.current)
        tokens: Any = None
        return Batch(tokens=tokens, num_columns=1, first_row=0, sentence_ids=np.zeros((1, 1)))

    batch: Any = SimpleNamespace(pinned=pinned)

    driver.set_device(1)  # as Ray Train does in the thread that trains
    sender = Sender(gpu)
    with made_ahead(lambda: iter([sender.send(batch) for _ in range(2)])) as sent:
        assert len(list(sent)) == 2
    assert used == [1, 1]
    assert driver.contexts == {1}


def test_a_copy_runs_on_a_stream_of_its_own_and_is_over_when_that_has_come_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stream that computes it would wait for all work before it. An event of another stream says nothing of the copy."""
    happened: list[str] = []

    @contextmanager
    def within(stream: str) -> Iterator[None]:
        happened.append(f"begins on {stream}")
        yield

    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "copying")
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda stream: happened.append(f"ends on {stream}")))
    there = SimpleNamespace()
    batch: Any = SimpleNamespace(pinned=lambda: SimpleNamespace(to=lambda device: happened.append("copied") or there))
    assert Sender(torch.device("cuda", 0)).send(batch).batch is there
    assert happened == ["begins on copying", "copied", "ends on copying"]


def test_who_computes_waits_for_the_copy_and_keeps_its_memory_from_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied belongs to the copying stream, which takes the memory for the next batch as soon as nobody holds the tensor,
    though the computing stream has still to read it: it must know of each."""
    done: list[tuple[str, object]] = []
    computing = SimpleNamespace(wait_event=lambda event: done.append(("waits", event)))
    monkeypatch.setattr(torch.cuda, "Stream", Mock())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computing)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: done.append(("recorded", id(tensor))) if stream is computing else None
    )
    moved = {"labels": torch.ones(1), "relations": torch.ones(1, dtype=torch.int64), "augmented": torch.ones(1)}
    tokens = TokenBatch(token_ids=torch.zeros(1, dtype=torch.int64), boundaries=torch.tensor([0, 1], dtype=torch.int32), lengths=(1,))
    batch = Batch(tokens=tokens, num_columns=1, first_row=0, sentence_ids=np.zeros((1, 1)), **moved)
    on_device = [value for value in vars(batch.to("meta")).values() if isinstance(value, torch.Tensor) and value.is_meta]
    assert len(on_device) == len(moved), "these are all that a batch has on its way"
    arrival: Any = object()
    assert Sender(torch.device("cuda", 1)).receive(SentBatch(batch=batch, arrival=arrival)) is batch
    assert done[0] == ("waits", arrival) and sorted(done[1:]) == sorted(("recorded", id(tensor)) for tensor in moved.values())
