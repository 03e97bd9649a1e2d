"""Of word embeddings the rows travel that a step has read, and gradients are, to the bit, those of a table that travels whole."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.families import FLAT_FAMILIES
from sentdist.learning import gather, gradient_buckets
from sentdist.learning import gradient_buckets as word_rows
from sentdist.learning.checkpoint import Progress
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.gradient_buckets import GradientBuckets, WordRows
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import word_batches
from tests.support import make
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, Outcome, on, two_steps
from tests.support.pretend_gpu import nobody_waits, pretended_gpu
from tests.support.tiny_encoders import tiny_encoder

pytestmark = pytest.mark.parity

OPTIMIZATION = Optimization(num_steps=6, lr=1e-3, clip_norm=0.5)
ENGINES: dict[str, Callable[[nn.Module, Optimization], Engine]] = {"torch": TorchEngine, "deepspeed": DeepSpeedEngine}
PADDED_FAMILIES = ("umt5", "deberta-v2", "megatron-bert")
UNLIKE = ("bert", "t5", "qwen3", "deberta-v2")  # of each way in which a table of words is read one
OTHERS = sorted({*FLAT_FAMILIES, *PADDED_FAMILIES} - {*UNLIKE})


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


@pytest.mark.parametrize("families", [UNLIKE, pytest.param(OTHERS, marks=pytest.mark.nightly)], ids=["unlike", "others"])
def test_every_family_has_on_both_engines(families: Sequence[str], tmp_path: Path) -> None:
    folders = {family: str(tiny_encoder(tmp_path / family, family)) for family in families}
    for found in run_in_processes(_trained, 2, folders):
        for case, ((by_rows, whole), (of_rows, of_all)) in found.items():
            assert of_rows < of_all, case
            assert by_rows.keys() == whole.keys()
            assert all(torch.equal(by_rows[name], whole[name]) for name in whole), case


@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")
def test_nobody_waits_for_a_gpu_to_learn_which_rows_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(tensor: Tensor, *, async_op: bool, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> SimpleNamespace:
        if op is dist.ReduceOp.SUM:
            tensor *= 2  # a second rank brings the same
        return SimpleNamespace(wait=lambda: None)

    for module in (gather, gradient_buckets):
        monkeypatch.setattr(module, "rank_and_world_size", lambda: (0, 2))
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    with pretended_gpu() as gpu:
        table = nn.Parameter(torch.zeros(10, 2).to(gpu))
        rows = WordRows(table, padding=0)
        buckets = GradientBuckets([table], words=[rows])
        for step in range(3):
            rows.read(torch.tensor([3, 7, 3]))
            table.grad = torch.zeros(10, 2).to(gpu)
            table.grad[torch.tensor([3, 7])] = 1.0
            with nobody_waits() if step else nullcontext(), travelled(0.5) as numbers:  # in the first it is seen that no other has one
                with buckets.travelling():
                    pass
                buckets.arrive()
            assert numbers == [3 * 2]
            assert table.grad.cpu().sum(dim=1).tolist() == [0, 0, 0, 2, 0, 0, 0, 2, 0, 0]


class NextRow(nn.Embedding):
    """Reads other rows than those of its tokens."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward((ids + 1) % self.num_embeddings)


def _reads_elsewhere(folder: str) -> SentenceEncoder:
    encoder = SentenceEncoder.load(folder)
    words = cast(nn.Embedding, encoder.model.get_input_embeddings())
    other = NextRow(*words.weight.shape)
    other.weight = words.weight
    encoder.model.set_input_embeddings(other)
    return encoder


def _elsewhere(rank: int, world_size: int, folder: str) -> tuple[bool, int]:
    (by_rows, whole), (of_rows, of_all) = _steps_both_ways(rank, world_size, partial(_reads_elsewhere, folder), TorchEngine)
    return all(torch.equal(by_rows[name], whole[name]) for name in whole), of_all - of_rows


def test_a_model_that_reads_other_rows_sends_all(tiny_encoder_dir: Path) -> None:
    assert run_in_processes(_elsewhere, 2, str(tiny_encoder_dir)) == [(True, 0)] * 2


def _resumed(rank: int, world_size: int, folder: str, checkpoint: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights after 6 steps: of three ranks that went through, looking at their dev scores on the way; of three that were interrupted."""
    ends, batches = [], None
    for stops in (False, True):
        encoder = SentenceEncoder.load(folder)
        batches = batches or word_batches(encoder, 6, rank=rank, world_size=world_size, num_rows=6)
        torch.manual_seed(rank)
        engine = TorchEngine(Learner(encoder, make.info_nce()), OPTIMIZATION)
        with travelled(1.0):
            for _ in train_steps(engine, make.info_nce(), batches[:3]):
                pass
            if stops:
                engine.save(Path(checkpoint), progress=Progress(step=3))
                encoder = SentenceEncoder.load(folder)
                engine = TorchEngine(Learner(encoder, make.info_nce()), OPTIMIZATION)
                engine.load(Path(checkpoint))
            else:
                encoder.eval()
                with torch.no_grad():
                    engine.encode(batches[5].tokens)
                encoder.train()
            for _ in train_steps(engine, make.info_nce(), batches[3:], start=3):
                pass
        ends.append(engine.weights())
    return ends[0], ends[1]


def test_a_training_that_was_interrupted_ends_as_one_that_was_not_on_three_ranks(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """There a sum depends on a number's place, and a row's on which others travel: those of that step alone."""
    through, interrupted = run_in_processes(_resumed, 3, str(tiny_encoder_dir), str(tmp_path / "checkpoint"))[0]
    assert all(torch.equal(through[name], interrupted[name]) for name in through)
