"""What ranks send one another: gradients travel during the backward pass, of word embeddings the rows that were read, and all are to the
bit what they would be if they travelled whole behind it. A rank whose group is ended stops."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from sentdist.learning import gather, gradient_buckets
from sentdist.learning.engine import TorchEngine
from sentdist.learning.gather import GroupGoneError, gather_rows, held_group, mean_over_ranks, wait_for_all_ranks
from sentdist.learning.gradient_buckets import GradientBuckets, average_gradients
from sentdist.learning.optimization import Optimization
from tests.parity.processes import run_in_processes
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, Outcome, on, two_steps

pytestmark = pytest.mark.parity


class _Arrived:
    def wait(self) -> None:
        pass


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What goes over the network where a second rank always brings the same."""
    tensors: list[Tensor] = []

    def all_reduce(tensor: Tensor, *, async_op: bool) -> _Arrived:
        assert async_op
        tensors.append(tensor.clone())
        tensor *= 2
        return _Arrived()

    for module in (gather, gradient_buckets):
        monkeypatch.setattr(module, "rank_and_world_size", lambda: (0, 2))
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return tensors


def test_buckets_are_filled_from_the_last_parameter_on(sent: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_buckets, "BUCKET_BYTES", 40)
    parameters = [nn.Parameter(torch.zeros(size)) for size in (3, 3, 12, 3, 3, 3, 3)]
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, float(number))
    parameters[-2].grad = None  # keeps its place
    average_gradients(parameters)
    assert [bucket.tolist() for bucket in sent] == [[6] * 3 + [0] * 3 + [4] * 3, [3] * 3, [2] * 12, [1] * 3 + [0] * 3]
    assert parameters[-2].grad is None
    rest = {number: one for number, one in enumerate(parameters) if number != 5}
    assert all(one.grad.tolist() == [number] * len(one) for number, one in rest.items())


class Chain(nn.Module):
    """Layers one after another, of which some steps leave one out."""

    def __init__(self, *, num_layers: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(num_layers))

    def forward(self, rows: Tensor, *, without: int | None = None, seen: Callable[[int], None] = lambda number: None) -> Tensor:
        for number, layer in enumerate(self.layers):
            if number != without:
                rows = torch.tanh(layer(rows))
                rows.register_hook(lambda gradient, number=number: seen(number))
        return rows.square().mean()


@pytest.mark.usefixtures("sent")
def test_a_bucket_leaves_while_earlier_layers_wait_for_their_gradients(sent: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_buckets, "BUCKET_BYTES", 8 * 9 * 4)  # a layer each
    chain = Chain()
    buckets = GradientBuckets(chain.parameters())
    left: list[list[int]] = []
    for _ in range(2):
        sent.clear()
        seen: list[int] = []
        with buckets.overlap_reduce():
            chain(torch.ones(2, 8), seen=lambda number, seen=seen: seen.append(len(sent))).backward()
        left.append([*seen, len(sent)])
        buckets.arrive()
        assert len(sent) == 4
    assert left == [[0, 0, 0, 0, 0], [0, 1, 2, 3, 4]]


@pytest.mark.usefixtures("sent")
def test_a_learner_outlives_its_engine_and_does_not_keep_it() -> None:
    chain = Chain()
    engine = TorchEngine(chain, Optimization(num_steps=2))
    gone = weakref.ref(engine.buckets)
    assert all(parameter._post_accumulate_grad_hooks for parameter in chain.parameters())
    del engine
    gc.collect()
    assert gone() is None
    assert not any(parameter._post_accumulate_grad_hooks for parameter in chain.parameters())


def test_gradients_are_those_sent_after_the_backward_pass_to_the_bit() -> None:
    """A layer is left out of some steps, and first comes in the second; three ranks add in an order that depends on a number's place."""
    for ours, expected in run_in_processes(_both_ways, 3):
        for step, (travelled, after) in enumerate(zip(ours, expected, strict=True)):
            assert travelled.keys() == after.keys()
            for name in after:
                assert torch.equal(travelled[name], after[name]), (step, name)


def _both_ways(rank: int, world_size: int) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    gradient_buckets.BUCKET_BYTES = 3 * 8 * 9 * 4
    chain = Chain(num_layers=7)
    buckets = GradientBuckets(chain.parameters())
    inputs = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(rank))
    found: tuple[list[dict[str, Tensor]], ...] = ([], [])
    for step, rows in enumerate(inputs):
        for gradients, travels in zip(found, (True, False), strict=True):
            chain.zero_grad(set_to_none=True)
            loss = chain(rows, without=1 if step in (0, 3) else None)
            if travels:
                with buckets.overlap_reduce():
                    loss.backward()
                buckets.arrive()
            else:
                loss.backward()
                average_gradients(chain.parameters())
            gradients.append({name: one.grad.clone() for name, one in chain.named_parameters() if one.grad is not None})
    return found[0], found[1]


@contextmanager
def travelled(most_rows: float) -> Iterator[list[int]]:
    """Inside, tables travel by rows up to such a part of them; how many numbers have left in each bucket.

    The vocabulary of a tiny encoder is so small that a batch has half of it.
    """
    begin_mean, numbers = gradient_buckets.begin_mean, list[int]()

    def counted(flat: Tensor) -> Callable[[], None]:
        numbers.append(flat.numel())
        return begin_mean(flat)

    with patch.object(gradient_buckets, "MOST_ROWS", most_rows), patch.object(gradient_buckets, "begin_mean", counted):
        yield numbers


def _by_rows_and_whole(rank: int, world_size: int, folder: str) -> dict[str, tuple[Outcome, Outcome, list[int], list[int]]]:
    found = {}
    for name in NAMES:
        outcomes, numbers = [], []
        for most_rows in (1.0, 0.0):
            with travelled(most_rows) as left:
                outcomes.append(two_steps(name, Path(folder), on("cpu"), micro_batch=6, rank=rank, world_size=world_size))
            numbers.append(left)
        found[name] = (*outcomes, *numbers)
    return cast(Any, found)


def test_every_objective_has_the_gradients_of_a_table_that_travels_whole(tmp_path: Path) -> None:
    folder = maskable_encoder(tmp_path)
    for found in run_in_processes(_by_rows_and_whole, 2, str(folder)):
        for name, (by_rows, whole, of_rows, of_all) in found.items():
            assert by_rows.losses == whole.losses, name
            for part in ("gradients", "weights"):
                ours, expected = getattr(by_rows, part), getattr(whole, part)
                assert ours.keys() == expected.keys()
                assert all(torch.equal(ours[key], expected[key]) for key in expected), (name, part)
            reads_all = name in ("mlm", "sum")  # the words' matrix guesses them, too
            assert (sum(of_rows) == sum(of_all)) == reads_all, name


EXCHANGES: dict[str, Callable[[], object]] = {
    "rows": lambda: gather_rows(torch.ones(2, 3)),
    "losses": lambda: mean_over_ranks(torch.tensor(1.0)),
    "barrier": wait_for_all_ranks,
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_rank_whose_group_is_ended_stops_at_its_next_exchange(exchange: str) -> None:
    assert run_in_processes(_raises_after_end, 2, exchange) == [True, True]


def _raises_after_end(rank: int, world_size: int, exchange: str) -> bool:
    with held_group():
        EXCHANGES[exchange]()
        dist.barrier()
        ending = threading.Thread(target=dist.destroy_process_group)
        ending.start()
        ending.join()
        try:
            EXCHANGES[exchange]()
            return False
        except GroupGoneError:
            return True
        finally:  # the one that `run_in_processes` ends
            dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
