"""Learning rates: from step to step, and which parameters get which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from sentdist.errors import RecipeError
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.optimization import Learner, Optimization, parameter_groups
from tests.support import make
from tests.support.tiny_encoders import WIDTH, tiny_encoder

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


def test_a_decay_without_layers_is_refused(tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path / "albert", "albert"))
    with pytest.raises(RecipeError, match=r"layer_decay"):
        parameter_groups(encoder, Optimization(num_steps=1, layer_decay=0.95))
    assert parameter_groups(encoder, Optimization(num_steps=1))
