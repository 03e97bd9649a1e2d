"""Prepare batches in a thread and copy them to a GPU while it computes; random states of the GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

import torch
from torch import Tensor

from sentdist.learning.encoder.tokens import Batch

AHEAD = 2  # batches: one is copied while the other is made

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Made(Generic[T]):
    """An item from the thread, or why there is none."""

    item: T | None = None
    error: BaseException | None = None
    is_end: bool = False


@contextmanager
def made_ahead(make: Callable[[], Iterator[T]], *, ahead: int = AHEAD) -> Iterator[Iterator[T]]:
    """Iterate over `make()` in a thread, up to `ahead` items in advance.

    An error in the thread is raised in place of its item. The thread ends with the context, at once after the item it is making. The items
    must not depend on work between two of them, and the thread must not draw from
    torch's default generators: then the items equal those without a thread.
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
    """A batch that is being copied. arrival: the event for the GPU's streams when it is complete; None if nothing was copied."""

    batch: Batch
    arrival: torch.cuda.Event | None = None


class Sender:
    """Copies batches to a device without blocking: from pinned memory, on a separate stream.

    Tokens stay on the host, pinned: masked language modelling reads their ids and would wait for a GPU.
    On a CPU batches are unchanged.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def send(self, batch: Batch) -> SentBatch:
        """Start the copy; in any thread."""
        if self._stream is None:
            return SentBatch(batch=batch)
        # A thread's default device is the first GPU; leaving the stream's context returns to it, which would create a context there.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            there = batch.pinned().to(self._device)
            arrival = torch.cuda.Event()
            arrival.record(self._stream)
        return SentBatch(batch=there, arrival=arrival)

    def receive(self, sent: SentBatch) -> Batch:
        """Return the batch to the computing thread: operations started from now on run after the copy."""
        if sent.arrival is not None:
            computing = torch.cuda.current_stream(self._device)
            computing.wait_event(sent.arrival)
            for tensor in sent.batch.beside_tokens:
                tensor.record_stream(computing)  # its memory belongs to the copying stream, which must not reuse it earlier
        return sent.batch


def begin_to_host(tensor: Tensor) -> Callable[[], Tensor]:
    """Start copying a tensor to the host once it is computed; calling the result returns the copy.

    The call waits for this copy only; reading the tensor itself would wait for all work the GPU was given since.
    """
    if tensor.device.type != "cuda":
        return tensor.cpu
    with torch.cuda.device(tensor.device):  # a thread's default device is the first GPU, where pinning would create a context
        there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    there.copy_(tensor, non_blocking=True)
    arrival = torch.cuda.Event()
    arrival.record(torch.cuda.current_stream(tensor.device))

    def arrived() -> Tensor:
        arrival.synchronize()
        return there

    return arrived


def device_random_state() -> Tensor | None:
    """Return the state of the GPU's default generator, which dropout uses; None if no GPU was used yet."""
    return torch.cuda.get_rng_state() if torch.cuda.is_available() and torch.cuda.is_initialized() else None


def set_device_random_state(state: Tensor | None) -> None:
    """Restore the state of `device_random_state`; no effect for None or without a GPU."""
    if state is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state)


def drawn_again() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return contexts of a forward pass and its recomputation for `torch.utils.checkpoint`: both draw the same on the GPU.

    torch itself keeps the state only of GPUs with a tensor among the arguments: none for a function and sentences on the host.
    """
    return nullcontext(), _with_state(device_random_state())


@contextmanager
def _with_state(state: Tensor | None) -> Iterator[None]:
    after = device_random_state()
    set_device_random_state(state)
    try:
        yield
    finally:
        set_device_random_state(after)
