"""Of word embeddings the rows travel that a step has read, and gradients are, to the bit, those of a table that travels whole."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning import gradient_buckets, word_rows
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import word_batches
from tests.support import make
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, Outcome, on, two_steps
from tests.support.tiny_encoders import tiny_encoder

pytestmark = pytest.mark.parity

OPTIMIZATION = Optimization(num_steps=6, lr=1e-3, clip_norm=0.5)
ENGINES: dict[str, Callable[[nn.Module, Optimization], Engine]] = {"torch": TorchEngine, "deepspeed": DeepSpeedEngine}


@contextmanager
def travelled(most_rows: float) -> Iterator[list[int]]:
    """Inside, tables travel by rows up to such a part of them; how many numbers have left in each bucket.

    The vocabulary of a tiny encoder is so small that a batch has half of it.
    """
    begin_mean, numbers = gradient_buckets.begin_mean, list[int]()

    def counted(flat: Tensor) -> Callable[[], None]:
        numbers.append(flat.numel())
        return begin_mean(flat)

    with patch.object(word_rows, "MOST_ROWS", most_rows), patch.object(gradient_buckets, "begin_mean", counted):
        yield numbers


def _both_ways(rank: int, world_size: int, folder: str) -> dict[str, tuple[Outcome, Outcome, list[int], list[int]]]:
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
    for found in run_in_processes(_both_ways, 2, str(folder)):
        for name, (by_rows, whole, of_rows, of_all) in found.items():
            assert by_rows.losses == whole.losses, name
            for part in ("gradients", "weights"):
                ours, expected = getattr(by_rows, part), getattr(whole, part)
                assert ours.keys() == expected.keys()
                assert all(torch.equal(ours[key], expected[key]) for key in expected), (name, part)
            reads_all = name in ("mlm", "sum")  # the words' matrix guesses them, too
            assert (sum(of_rows) == sum(of_all)) == reads_all, name


Trained = tuple[list[dict[str, Tensor]], list[int]]  # weights by rows and by whole tables, and how many numbers left


def _steps_both_ways(
    rank: int, world_size: int, load: Callable[[], SentenceEncoder], make_engine: Callable[[nn.Module, Optimization], Engine]
) -> Trained:
    """Of three steps with dropout."""
    weights, numbers = [], []
    for most_rows in (1.0, 0.0):
        encoder = load()
        torch.manual_seed(rank)
        engine = make_engine(encoder, OPTIMIZATION)
        with travelled(most_rows) as left:
            for _ in train_steps(engine, make.info_nce(), word_batches(encoder, 3, rank=rank, world_size=world_size)):
                pass
        weights.append(engine.weights())
        numbers.append(sum(left))
    return weights, numbers


def _trained(rank: int, world_size: int, folders: dict[str, str]) -> dict[tuple[str, str], Trained]:
    return {
        (family, kind): _steps_both_ways(rank, world_size, partial(copy.deepcopy, encoder), make_engine)
        for family, encoder in ((family, SentenceEncoder.load(folder)) for family, folder in folders.items())
        for kind, make_engine in ENGINES.items()
    }


def test_unlike_families_have_on_both_engines(tmp_path: Path) -> None:
    folders = {family: str(tiny_encoder(tmp_path / family, family)) for family in ("bert", "t5")}
    for found in run_in_processes(_trained, 2, folders):
        for case, ((by_rows, whole), (of_rows, of_all)) in found.items():
            assert of_rows < of_all, case
            assert by_rows.keys() == whole.keys()
            assert all(torch.equal(by_rows[name], whole[name]) for name in whole), case
