"""A learned temperature has a rate of its own and a lowest value, goes through checkpoints and stands beside the encoder."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sentdist.learning.engine import TorchEngine
from sentdist.learning.heads import HEADS_FILE
from sentdist.learning.learner import Learner
from sentdist.learning.optimization import Optimization, parameter_groups
from sentdist.objectives.symmetric_info_nce import LOWEST
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from tests.parity.ranks import made, toy_batch, toy_embeddings
from tests.parity.toy import ToyEncoder
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = pytest.mark.parity

LEARNED: Json = {"name": "symmetric_info_nce", "temperature": 0.1, "learn_temperature": True, "temperature_learning_rate": 0.05}


def test_it_has_a_group_of_its_own_and_stays_at_its_lowest() -> None:
    objective = made(LEARNED)
    assert isinstance(objective, torch.nn.Module)
    groups = parameter_groups(Learner(ToyEncoder(), objective), Optimization(num_steps=1, lr=1e-3, weight_decay=0.01))
    (own,) = (group for group in groups if group["lr"] == 0.05)
    assert own["params"] == list(objective.parameters()) and own["weight_decay"] == 0.0
    with torch.no_grad():
        own["params"][0].fill_(math.log(LOWEST / 2))
    embeddings, batch = toy_embeddings(3).flatten(0, 1), toy_batch(3)
    lowest = made({"name": "symmetric_info_nce", "temperature": LOWEST})(embeddings, batch)
    torch.testing.assert_close(objective(embeddings, batch), lowest)


def test_it_goes_through_checkpoints_and_stands_beside_the_encoder(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = tiny_values(tiny_encoder_dir, methods={"learned": {"objective": LEARNED}}, baseline=None)
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    stage = next(stage for stage in plan.stages if isinstance(stage, Train))
    build_here(stage.corpus, context)

    def session() -> TrainSession:
        return TrainSession(stage, context, make_engine=TorchEngine, bank=None)

    whole = session()
    list(whole.events())
    first = session()
    list(itertools.islice(first.events(), 3))
    first.save(tmp_path / "checkpoint")
    second = session()
    second.load(tmp_path / "checkpoint")
    list(second.events())
    ours, theirs = whole.engine.weights(), second.engine.weights()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    whole.finish(tmp_path / "out")
    (log_temperature,) = load_file(tmp_path / "out" / HEADS_FILE).values()
    assert abs(math.exp(log_temperature.item()) - 0.1) > 1e-3, "it has moved"
