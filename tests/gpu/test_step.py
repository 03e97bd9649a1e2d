"""What a GPU does differently within a step: attention as one operation, batches that come on a stream of their own, nobody who waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.kernels.flat_attention import fused_attention, has_flash
from sentdist.kernels.grouped_attention import MOST_SENTENCES, grouped_attention, length_groups
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.gather import GPU_BACKEND
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from sentdist.learning.prefetch import Sender
from tests.gpu.engines import by_deepspeed_without_waiting
from tests.gpu.waiting import refuse_waiting, refusing
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import word_batches
from tests.support import make
from tests.support.attended import MANY, attended
from tests.support.objective_steps import NAMES, on, step_within

pytestmark = pytest.mark.gpu

LENGTHS = (1, 7, 64, 3, 128, 20, 20)


@pytest.mark.parametrize("width", [32, 64])
def test_flash_attention_is_the_groups(width: int) -> None:
    gpu, num_tokens, num_heads = torch.device("cuda"), sum(LENGTHS), 4
    torch.manual_seed(0)
    inputs = [torch.randn(num_tokens, num_heads, width, device=gpu, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    weight = torch.randn(num_tokens, num_heads, width, device=gpu, dtype=torch.bfloat16)
    bounds = torch.tensor([0, *accumulate(LENGTHS)], dtype=torch.int32, device=gpu)
    assert has_flash(gpu, torch.bfloat16, width)
    one = fused_attention(*inputs, lengths=LENGTHS, boundaries=bounds, scale=width**-0.5, p=0.0)
    groups = grouped_attention(*inputs, length_groups(LENGTHS, gpu, num_heads=num_heads), scale=width**-0.5, p=0.0, band=None)
    pairs = zip(
        [one, *torch.autograd.grad((one * weight).sum(), inputs)],
        [groups, *torch.autograd.grad((groups * weight).sum(), inputs)],
        strict=True,
    )
    for found, expected in pairs:
        assert float((found - expected).detach().float().norm() / expected.detach().float().norm()) < 2e-2  # digits of bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_the_mean_and_is_drawn_from_the_gpus_generator(dtype: torch.dtype) -> None:
    gpu, length, width = torch.device("cuda"), 16, 32
    values = torch.ones(length * 512, 4, width, device=gpu, dtype=dtype)
    bounds = torch.arange(0, len(values) + 1, length, dtype=torch.int32, device=gpu)

    def drawn() -> Tensor:
        torch.manual_seed(3)
        same, lengths = (values, values, values), [length] * (len(bounds) - 1)
        if dtype == torch.float32:
            return grouped_attention(*same, length_groups(lengths, gpu, num_heads=4), scale=1.0, p=0.25, band=None)
        return fused_attention(*same, lengths=lengths, boundaries=bounds, scale=1.0, p=0.25).float()

    assert float(drawn().mean()) == pytest.approx(1.0, abs=0.01)
    # 16 equal weights, each kept with 0.75 and then 1/0.75 as large: variance 0.25 / 0.75 / 16
    assert float(drawn()[..., 0].var()) == pytest.approx(1 / 48, rel=0.1)
    assert torch.equal(drawn(), drawn())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.05)])  # other masks would be off by 1
def test_masks_of_forward_and_backward_are_the_same_however_many_sentences_there_are(dtype: torch.dtype, tolerance: float) -> None:
    found = attended(MANY, num_heads=12, width=32, p=0.25, dtype=dtype, device=torch.device("cuda"))
    assert float(found.disagreement().max()) < tolerance
    assert 0.01 < float((found.context == 0.0).float().mean()) < 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_sentences_than_a_grid_has_places(dtype: torch.dtype) -> None:
    lengths = [1] * MOST_SENTENCES + [2, 1, 3]
    found = attended(lengths, num_heads=1, width=8, p=0.0, dtype=dtype, device=torch.device("cuda"))
    alone = found.context[:MOST_SENTENCES]
    # A sentence of one token attends to itself; in float32 the kernel multiplies three TF32 numbers for one, since Ampere.
    torch.testing.assert_close(alone, found.value[:MOST_SENTENCES], rtol=1e-6 if dtype == torch.float32 else 0.0, atol=0.0)
    here = attended(lengths, num_heads=1, width=8, p=0.0, dtype=torch.float32, device=torch.device("cpu"))
    torch.testing.assert_close(found.context[MOST_SENTENCES:], here.context[MOST_SENTENCES:], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("micro_batch", [None, 5])
@pytest.mark.parametrize("name", NAMES)
def test_nobody_waits_within_a_step_of_any_objective(name: str, micro_batch: int | None, folder: Path) -> None:
    step_within(refusing, name, folder, on("cuda"), micro_batch=micro_batch)


@pytest.mark.parametrize("precision", ["bf16"])
def test_nobody_waits_within_a_step_and_what_comes_is_what_was_sent(precision: str, folder: Path) -> None:
    """torch raises at whatever waits for the GPU, between two steps that are read."""
    encoder = SentenceEncoder.load(folder, drophead=0.2)
    batches = [replace(batch, augmented=torch.full((2, 2, 8, 5), float(number))) for number, batch in enumerate(word_batches(encoder, 9))]
    objective = make.info_nce(temperature=0.05)
    engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=9, precision=precision), device="cuda")
    sender = Sender(engine.device)
    received: list[Batch] = []

    def arriving() -> Iterator[Batch]:
        for number, sent in enumerate([sender.send(batch) for batch in batches]):
            received.append(sender.receive(sent))
            if number == 3:
                refuse_waiting("error")
            yield received[-1]
            if number == 6:
                refuse_waiting("default")

    try:
        steps = train_steps(engine, objective, arriving(), is_read=lambda step: step in (0, 1, 2, 8), is_read_late=lambda step: step == 5)
        reports = list(steps)
    finally:
        refuse_waiting("default")
    assert [(report.step, report.is_latest) for report in reports] == [(step, step in (0, 1, 2, 8)) for step in range(9)]
    assert all(0.0 < report.loss < 10.0 for report in reports), "also of those that came by a copy of their own"
    for number, batch in enumerate(received):
        assert batch.augmented is not None and batch.augmented.is_cuda and batch.tokens.token_ids.is_pinned()
        assert torch.equal(batch.augmented.cpu(), torch.full((2, 2, 8, 5), float(number)))


def test_nobody_waits_within_a_step_of_deepspeed(folder: Path) -> None:
    pytest.importorskip("deepspeed")
    assert run_in_processes(by_deepspeed_without_waiting, 1, str(folder), backend=GPU_BACKEND, device="cuda") == [9]
