"""Channels, weights, warm-up and the state of the auxiliary tasks."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from sentdist.errors import RecipeError
from sentdist.learning.objective import Projected
from sentdist.learning.relation_file import Relations, read_relations, write_relations
from sentdist.objectives.channels import Channels
from sentdist.objectives.learned.auxiliary import Adversaries, Adversary, AuxiliaryLoss, AuxiliaryWeights
from tests.parity.target_tables import RandomTargets
from tests.parity.test_auxiliary import CHANNELS, TARGETS, WEIGHTS, B, D, batch_of, made, random_embeddings
from tests.support import make


@pytest.mark.parametrize(("width", "pos", "bow"), [(768, 128, 640), (384, 64, 320), (1024, 171, 853)])
def test_channels_are_scaled_to_the_width(width: int, pos: int, bow: int) -> None:
    assert Channels.of(width) == Channels(pos=pos, bow=bow)
    assert Channels.of(width, (10, width - 10)) == Channels(pos=10, bow=width - 10)


@pytest.mark.parametrize("sizes", [(128, 640), (0, 384), (-1, 385), (384, 0)])
def test_channels_that_do_not_add_up_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(RecipeError, match=r"auxiliary\.channels.*384.*\[64, 320\]"):
        Channels.of(384, sizes)


def test_tags_come_first() -> None:
    pos, bow = Channels(pos=2, bow=3).split(torch.arange(5.0)[None])
    assert pos.tolist() == [[0.0, 1.0]]
    assert bow.tolist() == [[2.0, 3.0, 4.0]]


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_weights_out_of_range_are_refused(value: float) -> None:
    with pytest.raises(RecipeError, match=r"weights\.bow"):
        AuxiliaryWeights(pos=0.7, bow=value, adversary_pos=0.3, adversary_bow=0.2)


def test_other_forms_and_negative_warm_ups_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"auxiliary\.adversary"):
        AuxiliaryLoss(channels=CHANNELS, targets=TARGETS, weights=WEIGHTS, form="minimax")
    with pytest.raises(RecipeError, match="warmup"):
        AuxiliaryLoss(channels=CHANNELS, targets=TARGETS, weights=WEIGHTS, warmup_steps=-1)


def test_without_adversaries_only_the_classifiers_count() -> None:
    objective, _ = made()
    alone = AuxiliaryLoss(channels=CHANNELS, targets=TARGETS, weights=WEIGHTS).double()
    alone.load_state_dict(objective.state_dict())
    silent = AuxiliaryLoss(
        channels=CHANNELS,
        targets=TARGETS,
        weights=AuxiliaryWeights(pos=0.7, bow=0.4, adversary_pos=0.0, adversary_bow=0.0),
        adversaries=made()[1],
    ).double()
    silent.load_state_dict(objective.state_dict())
    embeddings, batch = random_embeddings(), batch_of(range(B))
    assert alone(embeddings, batch).item() == silent(embeddings, batch).item()
    assert alone(embeddings, batch).item() > objective(embeddings, batch).item()


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


def test_adversaries_go_on_from_their_state_as_if_nothing_had_happened() -> None:
    _, adversaries = made(dropout=0.2)
    _, resumed = made(dropout=0.2)
    embeddings, batch = random_embeddings().detach(), batch_of(range(B))
    adversaries.step(embeddings, batch)
    resumed.load_state_dict(copy.deepcopy(adversaries.state_dict()))  # as through a file
    for one in (adversaries, resumed):
        torch.manual_seed(8)  # the checkpoint keeps the random state; here it is set
        one.step(embeddings, batch)
    assert resumed.num_steps == 2
    for ours, theirs in zip(adversaries.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_adversaries_drop_a_fifth_of_their_hidden_values_while_they_learn_and_at_no_other_time() -> None:
    adversaries = Adversaries(channels=CHANNELS, targets=TARGETS)
    assert [one.layers[2].p for one in (adversaries.of_tags, adversaries.of_words, Adversary(8, 3))] == [0.2] * 3
    embeddings, batch = random_embeddings().detach(), batch_of(range(B))
    learned = []
    for seed in (1, 2):
        _, adversaries = made(dropout=0.5)
        torch.manual_seed(seed)
        for _ in range(2):
            assert all(map(torch.equal, *(adversaries.frozen(*CHANNELS.split(embeddings)) for _ in range(2))))
            adversaries.step(embeddings, batch)
        assert all(map(torch.equal, *(adversaries.frozen(*CHANNELS.split(embeddings)) for _ in range(2))))
        learned.append(adversaries)
    for one, other in ((learned[0].of_tags, learned[1].of_tags), (learned[0].of_words, learned[1].of_words)):
        assert not any(map(torch.equal, one.parameters(), other.parameters())), "other values were dropped"


def test_adversaries_learn_what_the_other_channel_gives_away() -> None:
    """Tags written into the words' channel are found; noise in its place is not."""
    targets = RandomTargets(64, num_tags=4)
    channels = Channels(pos=3, bow=4)
    batch = batch_of(range(B))
    ids = batch.sentence_ids.ravel()
    losses = {}
    for name, bow in (("reported", 20 * torch.from_numpy(targets.pos_SV[ids])), ("silent", torch.zeros(len(ids), 4))):
        torch.manual_seed(0)
        adversaries = Adversaries(channels=channels, targets=targets, learning_rate=0.01)
        embeddings = torch.cat([torch.zeros(len(ids), 3), bow], dim=1)
        for _ in range(100):
            adversaries.step(embeddings, batch)
        losses[name] = adversaries.loss(embeddings, batch).item()
    assert losses["reported"] < losses["silent"] - 0.05


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


def test_a_projection_hands_on_steps_and_state() -> None:
    objective, adversaries = made()
    projected, (_, alone) = Projected(objective, width=D).double(), made()
    embeddings, batch = random_embeddings().detach(), batch_of(range(B))
    projected.after_step(embeddings, batch)
    alone.step(embeddings, batch)
    assert all(map(torch.equal, adversaries.parameters(), alone.parameters())), "of what is evaluated, which is not projected"
    other, resumed = made()
    Projected(other, width=D).load_extra_state(copy.deepcopy(projected.extra_state()))
    assert resumed.num_steps == adversaries.num_steps == 1
    kept = make.regression(width=D, loss="mse", keep_head=True)
    assert [Projected(one, width=D).keeps_heads for one in (objective, kept)] == [False, True]


def test_a_projection_starts_as_wide_as_it_is_set() -> None:
    start = Projected(make.info_nce(temperature=0.05), width=64, initializer_range=0.5).head.dense.weight.detach()
    assert float(start.std()) == pytest.approx(0.5, rel=0.06)  # 4096 draws: the error of a standard deviation is 1 %
