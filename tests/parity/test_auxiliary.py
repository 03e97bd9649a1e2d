"""The auxiliary tasks equal obvious loops in float64, value and gradient, in both adversarial forms, for one rank and for several;
channels, warm-up and the state of adversaries and projections."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.errors import RecipeError
from sentdist.learning.encoder.tokens import Batch, TokenBatch
from sentdist.learning.gather import by_share, local_rows
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.learning.objective import Projected
from sentdist.learning.relation_file import Relations, read_relations, write_relations
from sentdist.objectives.channels import Channels
from sentdist.objectives.learned.auxiliary import Adversaries, Adversary, AuxiliaryLoss, AuxiliaryWeights
from tests.parity.processes import run_in_processes
from tests.parity.target_tables import RandomTargets
from tests.support import make

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
        known = [(WEIGHTS.pos, linear(objective.pos.linear, pos), tags), (WEIGHTS.bow, linear(objective.bow.linear, bow), words)]
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


def test_channels_are_scaled_to_the_width_tags_first() -> None:
    for width, pos, bow in ((768, 128, 640), (1024, 171, 853), (3, 1, 2)):
        assert Channels.of(width) == Channels(pos=pos, bow=bow)
    assert Channels.of(384, (10, 374)) == Channels(pos=10, bow=374)
    assert [part.tolist() for part in Channels(pos=2, bow=3).split(torch.arange(5.0)[None])] == [[[0.0, 1.0]], [[2.0, 3.0, 4.0]]]


def test_senseless_values_are_refused() -> None:
    for sizes in ((128, 640), (0, 384), (384, 0)):
        with pytest.raises(RecipeError, match=r"auxiliary\.channels"):
            Channels.of(384, sizes)


@pytest.mark.parametrize("form", ["entropy", "reversal"])
def test_a_sentence_without_tag_and_word_is_left_as_it_is(form: str) -> None:
    targets, batch = RandomTargets(64), batch_of(range(B))
    targets.pos_SV[::4] = 0.0  # those that have no word, too
    weights = AuxiliaryWeights(pos=1.0, bow=1.0, adversary_pos=1.0, adversary_bow=1.0)
    adversaries = Adversaries(channels=CHANNELS, targets=targets)
    objective = AuxiliaryLoss(channels=CHANNELS, targets=targets, weights=weights, adversaries=adversaries, form=form)
    embeddings = random_embeddings().detach().float().requires_grad_()
    objective(embeddings, batch).backward()
    assert embeddings.grad is not None
    is_moved = (embeddings.grad != 0).any(dim=1).tolist()
    assert is_moved == (batch.own_sentence_ids % 4 != 0).tolist() and not all(is_moved)


def test_warm_up_lets_the_adversaries_in_step_by_step() -> None:
    objective, adversaries = made("reversal", warmup_steps=4)
    at_once, _ = made("reversal")
    embeddings, batch = random_embeddings(), batch_of(range(B))
    state = adversaries.state_dict()
    alone = AuxiliaryLoss(channels=CHANNELS, targets=TARGETS, weights=objective.weights).double()
    alone.load_state_dict(objective.state_dict())
    known, whole = alone(embeddings, batch).item(), at_once(embeddings, batch).item()
    for steps, grown in ((0, 0.0), (1, 0.25), (4, 1.0), (9, 1.0)):
        adversaries.load_state_dict(state | {"num_steps": steps})
        assert objective(embeddings, batch).item() == pytest.approx(known + grown * (whole - known), rel=1e-12)


def test_adversaries_are_as_wide_as_their_channel_up_to_640() -> None:
    assert [Adversary(width, 3).layers[0].out_features for width in (64, 640, 853)] == [64, 640, 640]


def test_a_projection_stands_before_its_own_objective_only() -> None:
    torch.manual_seed(0)
    inner = make.info_nce(temperature=0.05)
    projected = Projected(inner, width=7).double()
    embeddings, batch = random_embeddings(), batch_of(range(B))
    assert projected(embeddings, batch).item() == inner(torch.tanh(projected.head.dense(embeddings)), batch).item()
    assert projected(embeddings, batch).item() != inner(embeddings, batch).item()


def test_a_projection_hands_on_what_its_objective_learns_and_keeps(tmp_path: Path) -> None:
    inner = make.relational(relations=("near", "far"), width=7, relation_learning_rate=0.5, keep_relations=True)
    projected = Projected(inner, width=7)
    (own,) = projected.own_rates()
    assert (own.parameters, own.learning_rate, own.weight_decay) == (tuple(inner.table.parameters()), 0.5, 0.0)
    write_relations(tmp_path, Relations(names=("far", "other"), vectors=np.stack([np.full(7, 3.0), np.ones(7)]).astype(np.float32)))
    projected.start_from(tmp_path, where="here")
    said = projected.relations()
    assert said is not None and said.names == ("near", "far")
    assert said.vectors[1].tolist() == [3.0] * 7 and 0 < np.abs(said.vectors[0]).max() < 0.2, "what the start does not know stays random"
    best = {name: tensor + 1.0 for name, tensor in projected.state_dict().items()}  # weights of another step than the last
    projected.save_into(tmp_path, best)
    np.testing.assert_allclose(read_relations(tmp_path).vectors, said.vectors + 1.0, rtol=1e-6)
