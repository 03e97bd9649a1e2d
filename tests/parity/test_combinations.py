"""Objectives added up, with heads and regulators, move encoder and heads equally under every engine, ZeRO stage,
number of ranks and micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sentdist.execution.training.deepspeed_engine import DeepSpeedEngine
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.objective import Objective, WeightedSum
from sentdist.learning.optimization import Learner, Optimization, encoder_weights, head_weights
from sentdist.objectives.objective_spec import LossInputs
from sentdist.objectives.symmetric_info_nce import SymmetricInfoNCE
from tests.parity.processes import run_in_processes
from tests.parity.toy import WIDTH, ToyBank, ToyEncoder, toy_batches
from tests.support import make

pytestmark = pytest.mark.parity

Kind = tuple[str | int, int | None]  # engine, sentences of a micro-batch
KINDS: tuple[Kind, ...] = (("torch", None), ("torch", 5), *((stage, micro) for stage in (0, 1, 2, 3) for micro in (None, 5)))


def relational_and_regulated() -> Objective:
    """RSE's Eq. 2 with RCL's regulators beside it."""
    return WeightedSum(
        [(1.0, make.relational(relations=("same", "other"), width=WIDTH, temperature=0.5)), (0.5, make.regulators(bank=ToyBank(2)))]
    )


def regression_and_regulated() -> Objective:
    """Smooth K2 with RCL's regulators beside it."""
    values = {"label_range": (0.0, 5.0), "loss": "smooth_k2", "slope": 2.0, "threshold": 0.25, "boundary": "one_sided"}
    regression = make.regression(width=WIDTH, **values)
    return WeightedSum([(1.0, regression), (0.5, make.regulators(bank=ToyBank(2)))])


def with_learned_temperature() -> Objective:
    """InfoNCE in both directions, its temperature learned at a rate of its own."""
    values = SymmetricInfoNCE(temperature=0.3, learn_temperature=True, temperature_learning_rate=0.05)
    rows = SimpleNamespace(label="toy", num_columns=3, num_positives=1, labels=None, relation_names=())
    return values.make_loss(LossInputs(rows=rows, width=WIDTH))


def train(rank: int, world_size: int, make: Callable[[], Objective], num_columns: int, kinds: tuple[Kind, ...]) -> list[dict[str, Tensor]]:
    """The weights after 8 steps, by kind of engine."""
    found = []
    for engine_kind, micro_batch in kinds:
        torch.manual_seed(5)
        objective = make()
        learner = Learner(ToyEncoder(), objective)
        optimization = Optimization(num_steps=8, lr=1e-2, warmup_fraction=0.1)
        engine: Engine = (
            TorchEngine(learner, optimization)
            if engine_kind == "torch"
            else DeepSpeedEngine(learner, optimization, zero_stage=int(engine_kind))
        )
        batches = toy_batches(8, rank=rank, world_size=world_size, num_columns=num_columns)
        list(train_steps(engine, objective, batches, micro_batch=micro_batch))
        found.append(engine.weights())
    return found


@pytest.mark.parametrize(
    ("make", "num_columns"),
    [(relational_and_regulated, 3), (with_learned_temperature, 3), pytest.param(regression_and_regulated, 2, marks=pytest.mark.nightly)],
)
def test_equal_under_every_engine(make: Callable[[], Objective], num_columns: int) -> None:
    (expected,) = train(0, 1, make, num_columns, (("torch", None),))
    start = make().state_dict()  # type: ignore[attr-defined]
    assert any((head_weights(expected)[name] - before).abs().max() > 1e-3 for name, before in start.items()), "heads are trained"
    assert encoder_weights(expected).keys() == ToyEncoder().state_dict().keys()
    for kind, found in zip(KINDS, run_in_processes(train, 2, make, num_columns, KINDS)[0], strict=True):
        assert found.keys() == expected.keys()
        for name, weight in expected.items():
            # float32 sums in another order, eight steps of AdamW at up to 1e-2
            torch.testing.assert_close(found[name], weight, rtol=1e-3, atol=2e-5, msg=lambda text, at=(kind, name): f"{at}: {text}")
