"""The auxiliary tasks equal obvious loops in float64, value and gradient, in both adversarial forms, for one rank and for several."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.gather import by_share, local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.objectives.channels import Channels
from sentdist.objectives.learned.auxiliary import Adversaries, AuxiliaryLoss, AuxiliaryWeights
from tests.parity.processes import run_in_processes
from tests.parity.target_tables import RandomTargets

pytestmark = pytest.mark.parity

B, D, COLUMNS = 5, 7, 2  # two ranks hold three rows and two
CHANNELS = Channels(pos=3, bow=4)
WEIGHTS = AuxiliaryWeights(pos=0.7, bow=0.4, adversary_pos=0.3, adversary_bow=0.2)
TARGETS = RandomTargets(40)
# Sums of a few dozen float64 terms of size 1.
FLOAT64 = {"atol": 1e-13, "rtol": 1e-11}


def global_ids() -> np.ndarray:
    return np.random.default_rng(3).permutation(40)[: COLUMNS * B].reshape(COLUMNS, B)


def batch_of(rows: range) -> Batch:
    lengths = (1,) * (COLUMNS * len(rows))
    tokens = TokenBatch(
        token_ids=torch.ones(len(lengths), dtype=torch.int64), boundaries=torch.arange(len(lengths) + 1, dtype=torch.int32), lengths=lengths
    )
    return Batch(tokens=tokens, num_columns=COLUMNS, first_row=rows.start, sentence_ids=global_ids())


def made(form: str = "entropy", *, warmup_steps: int = 0, dropout: float = 0.0) -> tuple[AuxiliaryLoss, Adversaries]:
    torch.manual_seed(1)
    adversaries = Adversaries(channels=CHANNELS, targets=TARGETS, dropout=dropout)
    for adversary in (adversaries.of_tags, adversaries.of_words):
        adversary.double()
    objective = AuxiliaryLoss(
        channels=CHANNELS, targets=TARGETS, weights=WEIGHTS, adversaries=adversaries, form=form, warmup_steps=warmup_steps
    ).double()
    return objective, adversaries


def loop_log_softmax(logits: Tensor) -> list[Tensor]:
    total = sum(torch.exp(logit) for logit in logits)
    return [torch.log(torch.exp(logit) / total) for logit in logits]


def linear(layer: torch.nn.Linear, inputs: Tensor) -> Tensor:
    return torch.stack([(row * inputs).sum() for row in layer.weight]) + layer.bias


def adversary_logits(adversary: torch.nn.Module, inputs: Tensor) -> Tensor:
    first, _, _, last = adversary.layers
    hidden = linear(first, inputs)
    hidden = torch.stack([value if value > 0 else 0.2 * value for value in hidden])
    return linear(last, hidden)


def loop_auxiliary(embeddings: Tensor, objective: AuxiliaryLoss, adversaries: Adversaries, form: str) -> Tensor:
    """§2.2 and §2.3 sentence by sentence, with dense targets."""
    total = torch.zeros((), dtype=torch.float64)
    for embedding, sentence in zip(embeddings, global_ids().ravel(), strict=True):
        pos, bow = embedding[:3], embedding[3:]
        tags, words = TARGETS.pos_SV[sentence].astype(float), TARGETS.bow_SV[sentence].astype(float)
        known = [
            (WEIGHTS.pos, linear(objective.pos.linear, pos), tags),
            (WEIGHTS.bow, linear(objective.bow.linear, bow), words),
        ]
        for weight, logits, shares in known:
            total = total - weight * sum(share * log for share, log in zip(shares, loop_log_softmax(logits), strict=True))
        hidden = [
            (WEIGHTS.adversary_pos, adversary_logits(adversaries.of_tags, bow), tags),
            (WEIGHTS.adversary_bow, adversary_logits(adversaries.of_words, pos), words),
        ]
        for weight, logits, shares in hidden:
            logs = loop_log_softmax(logits)
            if form == "entropy":
                unsure = -sum(torch.exp(log) * log for log in logs) * (sum(shares) > 0)
            else:
                unsure = -sum(share * log for share, log in zip(shares, logs, strict=True))
            total = total - weight * unsure
    return total / (COLUMNS * B)


def random_embeddings() -> Tensor:
    return torch.randn(COLUMNS * B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()


@pytest.mark.parametrize("form", ["entropy", "reversal"])
def test_value_and_gradient_equal_loops(form: str) -> None:
    objective, adversaries = made(form)
    embeddings = random_embeddings()
    inputs = [embeddings, *objective.parameters()]
    found = objective(embeddings, batch_of(range(B)))
    expected = loop_auxiliary(embeddings, objective, adversaries, form)
    # Targets are kept in float32; ours and the loops' read the same numbers, so nothing is lost between them.
    torch.testing.assert_close(found, expected, **FLOAT64)
    for ours, loops in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, loops, **FLOAT64)


def test_frozen_adversaries_get_no_gradient_from_the_encoders_loss() -> None:
    objective, adversaries = made(dropout=0.2)
    embeddings = random_embeddings()
    objective(embeddings, batch_of(range(B))).backward()
    assert embeddings.grad is not None
    assert all(parameter.grad is None for parameter in adversaries.parameters())
    assert not {id(parameter) for parameter in adversaries.parameters()} & {id(parameter) for parameter in objective.parameters()}


def test_adversaries_step_is_adam_on_the_dense_cross_entropies() -> None:
    _, adversaries = made()
    _, reference = made()
    embeddings = random_embeddings().detach()
    optimizer = torch.optim.Adam(reference.parameters(), lr=1e-3)
    ids = global_ids().ravel()
    tags, words = (torch.from_numpy(table[ids]).double() for table in (TARGETS.pos_SV, TARGETS.bow_SV))
    for _ in range(3):
        ours = adversaries.loss(embeddings, batch_of(range(B))).item()
        adversaries.step(embeddings, batch_of(range(B)))
        loss = torch.zeros((), dtype=torch.float64)
        for row in range(len(ids)):
            for adversary, channel, shares in (
                (reference.of_tags, embeddings[row, 3:], tags[row]),
                (reference.of_words, embeddings[row, :3], words[row]),
            ):
                logs = loop_log_softmax(adversary_logits(adversary, channel))
                loss = loss - sum(share * log for share, log in zip(shares, logs, strict=True)) / len(ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert math.isclose(ours, loss.item(), rel_tol=1e-10)
    for parameter, loops in zip(adversaries.parameters(), reference.parameters(), strict=True):
        # Adam divides a gradient by its own size, which turns rounding of gradients near 0 into steps.
        torch.testing.assert_close(parameter, loops, atol=1e-9, rtol=1e-9)


def train_a_little(rank: int, world_size: int, form: str) -> tuple[list[float], list[Tensor], list[Tensor]]:
    """Five steps of a linear encoder against its adversaries: losses averaged by the caller, last parameters of both."""
    objective, adversaries = made(form, warmup_steps=3)
    inputs = torch.randn(COLUMNS, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    weight = torch.nn.Parameter(torch.randn(D, D, dtype=torch.float64, generator=torch.Generator().manual_seed(6)))
    parameters = [weight, *objective.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    rows = local_rows(B, rank=rank, world_size=world_size)
    batch = batch_of(rows)
    losses = []
    for _ in range(5):
        embeddings = (inputs[:, rows.start : rows.stop] @ weight).flatten(0, 1)
        loss = by_share(objective(embeddings, batch), batch.num_rows, of=B)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(parameters)
        optimizer.step()
        adversaries.step(embeddings.detach(), batch)
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in parameters], [parameter.detach() for parameter in adversaries.parameters()]


@pytest.mark.parametrize("form", ["entropy", "reversal"])
def test_encoder_and_adversaries_do_not_depend_on_the_number_of_ranks(form: str) -> None:
    losses, parameters, adversaries = train_a_little(0, 1, form)
    ranks = run_in_processes(train_a_little, 2, form)
    for step, loss in enumerate(losses):
        assert math.isclose(sum(rank[0][step] for rank in ranks) / 2, loss, rel_tol=1e-9)
    for _, found, opposing in ranks:
        # As above: Adam's division lets rounding through.
        torch.testing.assert_close(found, parameters, atol=1e-8, rtol=1e-8)
        torch.testing.assert_close(opposing, adversaries, atol=1e-8, rtol=1e-8)
