"""On one GPU as on a CPU: every objective, micro-batches with dropout, a checkpoint, embeddings, every engine."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning import grad_cache
from sentdist.learning.checkpoint import Progress
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.gather import GPU_BACKEND
from sentdist.learning.grad_cache import TOKENS_MULTIPLE, encode_in_micro_batches, mean_over_blocks, micro_batches, sum_over_micro_batches
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Optimization
from sentdist.learning.precision import apply_matmul_precision
from sentdist.objectives.info_nce import info_nce
from tests.gpu.engines import by_deepspeed, by_torch
from tests.parity.processes import run_in_processes
from tests.parity.word_batches import WORDS, word_batches
from tests.support import make
from tests.support.objective_steps import NAMES, on, two_steps

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("micro_batch", [None, 5])
@pytest.mark.parametrize("name", NAMES)
def test_every_objective_learns_what_it_learns_on_a_cpu(name: str, micro_batch: int | None, folder: Path) -> None:
    here = two_steps(name, folder, on("cpu"), micro_batch=micro_batch)
    there = two_steps(name, folder, on("cuda"), micro_batch=micro_batch)
    assert there.losses == pytest.approx(here.losses, rel=1e-4)
    assert there.gradients.keys() == here.gradients.keys()
    assert there.distance(here) < 2e-4  # float32 sums in another order, through two layers and a loss


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_rounded_products_are_near_float32(precision: str, name: str, folder: Path) -> None:
    apply_matmul_precision(torch.device("cuda"), precision)
    here, there = two_steps(name, folder, on("cpu")), two_steps(name, folder, on("cuda"), precision=precision)
    assert there.losses == pytest.approx(here.losses, rel=2e-2)  # embeddings are known to 0.4 %
    assert there.distance(here) < 0.1


def gradients(encoder: SentenceEncoder, embed: object) -> tuple[Tensor, float]:
    """All gradients as one vector, and what the GPU draws next."""
    torch.manual_seed(7)
    encoder.zero_grad()
    embeddings = embed()  # type: ignore[operator]
    embeddings.square().mul(torch.linspace(-1, 1, embeddings.shape[-1], device="cuda")).sum().backward()
    found = torch.cat([parameter.grad.flatten() for parameter in encoder.parameters() if parameter.grad is not None])
    return found, float(torch.rand((), device="cuda"))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputed_micro_batches_draw_the_same_dropout(precision: str, folder: Path) -> None:
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.3, attention_dropout=0.3)
    engine = TorchEngine(encoder, Optimization(num_steps=1, precision=precision), device="cuda")
    tokens = encoder.tokenize(WORDS * 4)
    dealt = micro_batches(tokens.lengths, size=10)

    def kept() -> Tensor:
        parts = [engine.encode(tokens.take(rows).filled(TOKENS_MULTIPLE))[: len(rows)] for rows in dealt]
        return torch.cat(parts)[torch.argsort(torch.tensor(list(itertools.chain.from_iterable(dealt))))]

    def sums(part: TokenBatch) -> Tensor:
        return engine.encode(part).sum(dim=0)

    pairs = (
        (kept, lambda: encode_in_micro_batches(engine.encode, tokens, micro_batch=10)),
        (
            lambda: torch.stack([sums(tokens.take(rows)) for rows in dealt]).sum(dim=0),
            lambda: sum_over_micro_batches(sums, tokens, micro_batch=10),
        ),
    )
    for plain, recomputed in pairs:
        (expected, drawn_next), (found, found_next) = gradients(encoder, plain), gradients(encoder, recomputed)
        # Other masks would be off by the size of the gradient itself. Micro-batches are added up in another order, in bf16 in few digits.
        assert float((found - expected).norm() / expected.norm()) < (1e-2 if precision == "bf16" else 1e-4)
        assert found_next == drawn_next


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputed_layers_draw_the_same_dropout(precision: str, folder: Path) -> None:
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.3, attention_dropout=0.3)
    engine = TorchEngine(encoder, Optimization(num_steps=1, precision=precision), device="cuda")
    tokens = encoder.tokenize(WORDS * 4)
    expected, drawn_next = gradients(encoder, lambda: engine.encode(tokens))
    encoder.recompute_layers()
    found, found_next = gradients(encoder, lambda: engine.encode(tokens))
    assert float((found - expected).norm() / expected.norm()) < (1e-2 if precision == "bf16" else 1e-4)
    assert found_next == drawn_next


def test_a_model_that_runs_padded_learns_what_it_learns_on_a_cpu(tiny_padded_dir: Path) -> None:
    def learnt(device: str) -> Tensor:
        encoder = SentenceEncoder.load(tiny_padded_dir, hidden_dropout=0.0, attention_dropout=0.0)
        assert not encoder.is_flat
        engine = TorchEngine(encoder, Optimization(num_steps=1), device=device)
        embeddings = engine.encode(encoder.tokenize([" ".join(WORDS[: 1 + number]) for number in range(10)]))
        (embeddings * torch.linspace(-1, 1, embeddings.shape[-1], device=device)).square().sum().backward()
        return torch.cat([parameter.grad.flatten().cpu() for parameter in encoder.parameters() if parameter.grad is not None])

    here = learnt("cpu")
    assert float((learnt("cuda") - here).norm() / here.norm()) < 2e-4


def test_blocks_of_anchors_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows = torch.randn(600, 64, device="cuda", requires_grad=True)

    def loss_and_gradient(at_once: int) -> tuple[float, Tensor]:
        monkeypatch.setattr(grad_cache, "logits_at_once", lambda device: at_once)
        loss = mean_over_blocks(
            lambda first, last: info_nce(rows[first:last], rows[200:], first_row=first, temperature=0.05),
            num_rows=200, num_columns=400, device=rows.device,
        )  # fmt: skip
        return loss.item(), torch.autograd.grad(loss, rows)[0]

    (whole, expected), (blocks, found) = loss_and_gradient(2**30), loss_and_gradient(2**12)
    assert blocks == pytest.approx(whole, rel=1e-5)
    assert float((found - expected).norm() / expected.norm()) < 1e-4


def test_a_resumed_training_equals_one_that_was_not_interrupted(folder: Path, tmp_path: Path) -> None:
    def fresh() -> tuple[Engine, list]:
        encoder = SentenceEncoder.load(folder, hidden_dropout=0.3, attention_dropout=0.3)
        return TorchEngine(encoder, Optimization(num_steps=8, lr=1e-3), device="cuda"), word_batches(encoder, 8)

    engine, batches = fresh()
    torch.manual_seed(1)
    steps = train_steps(engine, make.info_nce(temperature=0.05), batches)
    before = [report.loss for report in itertools.islice(steps, 4)]
    engine.save(tmp_path, progress=Progress(step=4))
    whole = before + [report.loss for report in steps]
    resumed, batches = fresh()
    torch.rand(10, device="cuda")  # a fresh process knows nothing of the old one's random state
    step = resumed.load(tmp_path).step
    rest = [report.loss for report in train_steps(resumed, make.info_nce(temperature=0.05), batches[step:], start=step)]
    # Some sums on a GPU are added up in no fixed order; another dropout mask would be off by tenths.
    assert before + rest == pytest.approx(whole, rel=1e-3)


def test_embeddings_are_those_of_a_cpu(folder: Path) -> None:
    encoder = SentenceEncoder.load(folder).eval()
    sentences = [" ".join(WORDS[: 1 + number % len(WORDS)]) for number in range(200)]
    here = encode(encoder, sentences)
    encoder.to("cuda")
    np.testing.assert_allclose(encode(encoder, sentences), here, atol=1e-4 * np.abs(here).max())
    halved = encode(encoder, sentences, precision="bf16")
    cosines = (halved * here).sum(axis=1) / np.linalg.norm(halved, axis=1) / np.linalg.norm(here, axis=1)
    assert cosines.min() > 0.995


@pytest.mark.parametrize(("precision", "near"), [("fp32", 1e-4), ("bf16", 1e-2)])
def test_every_zero_stage_learns_what_the_torch_engine_learns(precision: str, near: float, folder: Path) -> None:
    pytest.importorskip("deepspeed")
    losses, weights = run_in_processes(by_torch, 1, str(folder), precision, backend=GPU_BACKEND, device="cuda")[0]
    for found, found_weights in run_in_processes(by_deepspeed, 1, str(folder), precision, backend=GPU_BACKEND, device="cuda")[0]:
        assert found == pytest.approx(losses, rel=near)
        assert found_weights.keys() == weights.keys()
