"""Batches that are made before they are read: in a thread of their own, and copied to a GPU beside its work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

import torch

from sentdist.learning.encoder.batch import Batch

AHEAD = 2  # batches: one is copied while the other is made

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Made(Generic[T]):
    """What the thread hands over: an item, or why there is none."""

    item: T | None = None
    error: BaseException | None = None
    is_end: bool = False


@contextmanager
def made_ahead(make: Callable[[], Iterator[T]], *, ahead: int = AHEAD) -> Iterator[Iterator[T]]:
    """The items of `make()`, drawn from it in a thread, up to `ahead` of them before they are asked for.

    An error in there is raised where the item would have come, after those before it. The thread is gone when the context ends: at once
    after the item that it is making. The items must not depend on what is done between two of them, and nothing in there may draw from
    torch's default generators: then they are those that `make()` gives without a thread.
    """
    made: SimpleQueue[_Made[T]] = SimpleQueue()
    room = threading.Semaphore(ahead)
    is_over = threading.Event()

    def work() -> None:
        try:
            items = make()
            while room.acquire() and not is_over.is_set():
                made.put(_Made(item=next(items)))
        except StopIteration:
            made.put(_Made(is_end=True))
        except BaseException as error:
            made.put(_Made(error=error))

    def drawn() -> Iterator[T]:
        while not (one := made.get()).is_end:
            if one.error is not None:
                raise one.error
            room.release()
            assert one.item is not None
            yield one.item

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        yield drawn()
    finally:
        is_over.set()
        room.release()
        thread.join()


@dataclass(frozen=True, kw_only=True)
class SentBatch:
    """A batch on its way. arrival: when it is there, for the GPU's own streams; None where nothing was copied."""

    batch: Batch
    arrival: torch.cuda.Event | None = None


class Sender:
    """Takes batches to a device, without making anybody wait: from pinned memory, on a stream beside the one that computes.

    Tokens stay on the host, pinned: whoever hides some of them (masked language modelling) asks where they are, and would wait for a GPU.
    On a CPU batches stay as they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def send(self, batch: Batch) -> SentBatch:
        """Begin to copy; in any thread."""
        if self._stream is None:
            return SentBatch(batch=batch)
        # A thread's own device is the first GPU, whatever others compute on; a stream's end goes back to it, which makes a context there.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            there = batch.pinned().to(self._device)
            arrival = torch.cuda.Event()
            arrival.record(self._stream)
        return SentBatch(batch=there, arrival=arrival)

    def receive(self, sent: SentBatch) -> Batch:
        """The batch, for the thread that computes: what it starts from now on runs after the copy."""
        if sent.arrival is not None:
            computing = torch.cuda.current_stream(self._device)
            computing.wait_event(sent.arrival)
            for tensor in sent.batch.beside_tokens:
                tensor.record_stream(computing)  # its memory is the copying stream's, which must not reuse it before
        return sent.batch
