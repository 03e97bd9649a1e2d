"""A process on a GPU beside its steps: what ranks say to one another, a memory that is full, given back, and kept whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import ResourceError
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.learning.freed_memory import give_back_gpu_memory
from sentdist.learning.gather import GPU_BACKEND, _GatherRows
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from sentdist.objectives.info_nce import InfoNCE
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderSpec, Training
from sentdist.recipe.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.fit import explain_full_gpu
from sentdist.store.store import ArtifactStore
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import word_batches
from tests.support import make

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


def spoken(rank: int, world_size: int) -> dict[str, object]:
    """Each collective that a training uses, alone in a group, in the types that it uses; on the host."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    found: dict[str, object] = {}
    for dtype in (torch.float32, torch.float16):
        rows = torch.arange(6.0, device=device, dtype=dtype).view(3, 2).requires_grad_()
        gathered: Tensor = _GatherRows.apply(rows)
        gathered.square().sum().backward()
        assert rows.grad is not None
        found[str(dtype)] = (gathered.detach().cpu(), rows.grad.cpu())
    pair = torch.tensor([1.5, 2.5], device=device, dtype=torch.float64)
    dist.all_reduce(pair)
    said: list[object] = [None]
    dist.all_gather_object(said, {"rank": rank})
    on_host = torch.tensor([3.0])
    dist.all_reduce(on_host)  # by gloo, in the same group
    dist.barrier()
    return found | {"pair": pair.cpu(), "said": said, "host": on_host}


def test_every_collective_is_served() -> None:
    pytest.importorskip("torch", minversion="2.13")  # which gave two of them their names
    found = run_in_processes(spoken, 1, backend=GPU_BACKEND, device="cuda")[0]
    for name in ("torch.float32", "torch.float16"):
        gathered, grad = found[name]
        torch.testing.assert_close(gathered.float(), torch.arange(6.0).view(3, 2))
        torch.testing.assert_close(grad.float(), 2 * torch.arange(6.0).view(3, 2))
    assert found["pair"].tolist() == [1.5, 2.5] and found["said"] == [{"rank": 0}] and found["host"].tolist() == [3.0]


def train(folder: Path, *, num_rows: int) -> None:
    encoder = SentenceEncoder.load(folder)
    objective = make.info_nce(temperature=0.05)
    engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=2), device="cuda")
    list(train_steps(engine, objective, word_batches(encoder, 2, num_rows=num_rows)))


def test_a_memory_that_is_full_is_reported_in_a_sentence_and_the_process_goes_on(folder: Path, tmp_path: Path) -> None:
    corpus = RowsCorpus(source="words", source_revision="words", columns=("anchor", "positive", "negative"))
    stage = Train(
        encoder=EncoderSpec(checkpoint="tiny", revision="tiny"), corpus=corpus, objective=InfoNCE(temperature=0.05),
        training=Training(batch_size=64), seed=0,
    )  # fmt: skip
    runtime = Runtime(device="cuda", gpus_per_worker=1)
    context = Context(store=ArtifactStore(str(tmp_path)), runtime=runtime, folders={"tiny": str(folder)})
    give_back_gpu_memory()
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        with (
            pytest.raises(
                ResourceError, match=r"full with 192 sentences at a time .*Set runtime\..*micro_batch=\d+, which .*changes (no|a) result"
            ),
            explain_full_gpu(stage, context),
        ):
            torch.empty(torch.cuda.mem_get_info()[1], dtype=torch.uint8, device="cuda")
        train(folder, num_rows=4)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_what_a_stage_held_is_given_back_to_the_gpu(folder: Path) -> None:
    train(folder, num_rows=4)  # cuBLAS makes its tables, one for this thread and one for that of backward passes, and keeps them
    give_back_gpu_memory()
    before = torch.cuda.memory_reserved()
    train(folder, num_rows=16)
    assert torch.cuda.memory_reserved() >= before
    held = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_reserved() >= before + 2**28
    del held
    give_back_gpu_memory()
    assert torch.cuda.memory_reserved() <= before + 2**26  # tables of cuBLAS stay


def test_torch_reads_what_is_chosen_for_its_allocator_when_memory_is_first_asked_for() -> None:
    program = """
import torch
from sentdist.learning.freed_memory import keep_gpu_memory_whole
torch.cuda.is_available()
keep_gpu_memory_whole()
kept = torch.ones(2**24, device="cuda")
assert all(one["is_expandable"] for one in torch.cuda.memory_snapshot()), torch.cuda.memory_snapshot()
"""
    environment = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
