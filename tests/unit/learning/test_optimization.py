"""Learning rates: from step to step, and which parameters get which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sentdist.errors import RecipeError
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.learning.optimization import Learner, Optimization, adamw, parameter_groups, schedule
from tests.parity.toy import ToyEncoder
from tests.support import make
from tests.support.tiny_encoders import SENTENCES, WIDTH, tiny_encoder

RATE, DECAY = 1e-3, 0.95


# Where a family keeps its layers; layer 3 of 4 is the last.
LAYERS = {
    "bert": r"encoder\.layer\.(\d)\.",
    "t5": r"encoder\.block\.(\d)\.",
    "distilbert": r"transformer\.layer\.(\d)\.",
}


def learner_of(family: str, folder: Path) -> Learner:
    depth = {"n_layers": 4} if family == "distilbert" else {"num_hidden_layers": 4}
    torch.manual_seed(0)
    objective = make.regression(width=WIDTH, loss="mse")
    encoder = SentenceEncoder.load(tiny_encoder(folder / family, family, **depth))
    return Learner(encoder, objective)


def rates_of(module: nn.Module, layer_decay: float) -> dict[str, float]:
    optimization = Optimization(num_steps=1, lr=RATE, layer_decay=layer_decay)
    rates = {id(parameter): group["lr"] for group in parameter_groups(module, optimization) for parameter in group["params"]}
    return {name: rates[id(parameter)] for name, parameter in module.named_parameters()}


def expected_rate(family: str, name: str) -> float:
    """The released code's loop: from the last layer, which has the base rate, each layer below has 0.95 of it;
    all the rest has the base rate. So has the table of distances, which all of T5's layers read: with the first layer's rate, it had less
    than MPNet's, which lies outside the layers."""
    layer = None if "relative_attention_bias" in name else re.search(LAYERS[family], name)
    rate = RATE
    for _ in range(0 if layer is None else 3 - int(layer.group(1))):
        rate *= DECAY
    return rate


@pytest.mark.parametrize("family", list(LAYERS))
def test_layers_get_less_than_those_above(family: str, tmp_path: Path) -> None:
    learner = learner_of(family, tmp_path)
    found = rates_of(learner, DECAY)
    assert found == pytest.approx({name: expected_rate(family, name) for name in found})
    rates = sorted(set(found.values()))
    assert rates == pytest.approx([RATE * DECAY**3, RATE * DECAY**2, RATE * DECAY, RATE])
    full = {name for name, rate in found.items() if rate == RATE}
    assert {"heads.head.linear.weight", "heads.head.linear.bias"} <= full
    assert any("embeddings" in name or name == "encoder.model.shared.weight" for name in full)


def test_every_parameter_is_in_one_group_and_matrices_alone_decay(tmp_path: Path) -> None:
    learner = learner_of("bert", tmp_path)
    groups = parameter_groups(learner, Optimization(num_steps=1, lr=RATE, layer_decay=DECAY, weight_decay=0.01))
    assert groups[0]["lr"] == RATE  # what a run reports
    assert TorchEngine(learner, Optimization(num_steps=1, lr=RATE, layer_decay=DECAY, warmup_fraction=0.0)).lr == RATE
    assert sorted(id(one) for group in groups for one in group["params"]) == sorted(map(id, learner.parameters()))
    assert all(group["weight_decay"] == (0.01 if one.ndim >= 2 else 0.0) for group in groups for one in group["params"])


def test_a_step_is_that_of_a_loop_over_parameters(tmp_path: Path) -> None:
    """AdamW's first step, written out: p ← p − lr·wd·p − lr·g/(|g| + ε), since both bias-corrected moments are those of one gradient."""
    learner = learner_of("bert", tmp_path)
    optimization = Optimization(num_steps=1, lr=RATE, layer_decay=DECAY, weight_decay=0.1)
    optimizer = adamw(learner, optimization)
    tokens = learner.encoder.tokenize(list(SENTENCES), max_length=20)
    learner(tokens).square().sum().backward()
    before: dict[str, Tensor] = {name: one.detach().clone() for name, one in learner.named_parameters() if one.grad is not None}
    optimizer.step()
    for name, parameter in learner.named_parameters():
        if name not in before:
            continue
        rate, decay = expected_rate("bert", name), 0.1 if parameter.ndim >= 2 else 0.0
        assert parameter.grad is not None
        step = parameter.grad / (parameter.grad.abs() + 1e-8)
        # Weights are of size 1 in float32: 1e-7, ten times smaller than a step's difference between two layers.
        torch.testing.assert_close(parameter.detach(), before[name] * (1 - rate * decay) - rate * step, rtol=0, atol=2e-6)


def test_a_head_may_have_a_learning_rate_of_its_own(tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path / "bert", "bert"))
    learner = Learner(encoder, make.regression(width=WIDTH, loss="mse", head_learning_rate=0.5))
    rates = rates_of(learner, 1.0)
    assert {rate for name, rate in rates.items() if name.startswith("heads.")} == {0.5}
    assert {rate for name, rate in rates.items() if name.startswith("encoder.")} == {RATE}


def test_relations_do_not_decay_though_they_are_a_matrix() -> None:
    learner = Learner(nn.Linear(2, 2), make.relational(relations=("a", "b"), width=WIDTH, relation_learning_rate=0.5))
    groups = parameter_groups(learner, Optimization(num_steps=1, lr=RATE, weight_decay=0.01))
    assert learner.heads is not None
    (own,) = (group for group in groups if group["lr"] == 0.5)
    assert own["params"] == list(learner.heads.parameters()) and own["weight_decay"] == 0.0


def test_a_decay_without_layers_is_refused(tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path / "albert", "albert"))
    with pytest.raises(RecipeError, match=r"layer_decay"):
        parameter_groups(encoder, Optimization(num_steps=1, layer_decay=0.95))
    assert parameter_groups(encoder, Optimization(num_steps=1))


@pytest.mark.parametrize(
    ("num_steps", "warmup_fraction", "stretch", "rates"),
    [(4, 0.5, 1.0, [0.0, 0.5, 1.0, 0.5]), (4, 0.0, 2.0, [1.0, 7 / 8, 6 / 8, 5 / 8]), (1, 1.0, 5.0, [1.0]), (2, 1.0, 1.0, [0.0, 0.5])],
)
def test_rates_of_all_steps(num_steps: int, warmup_fraction: float, stretch: float, rates: list[float]) -> None:
    optimization = Optimization(num_steps=num_steps, lr=1e-3, warmup_fraction=warmup_fraction, schedule_stretch=stretch)
    optimizer = adamw(ToyEncoder(), optimization)
    found, scheduled = [], schedule(optimizer, optimization)
    for _ in range(num_steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduled.step()
    assert found == pytest.approx([1e-3 * rate for rate in rates])
