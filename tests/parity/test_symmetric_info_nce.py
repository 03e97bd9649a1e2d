"""Symmetric InfoNCE equals loops and sentence-transformers' loss;
a learned temperature has its rate, its gradient, and goes through checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sentdist.errors import RecipeError
from sentdist.learning.engine import TorchEngine
from sentdist.learning.objective import HEADS_FILE
from sentdist.learning.optimization import Learner, Optimization, parameter_groups
from sentdist.objectives.symmetric_info_nce import LOWEST, SymmetricInfoNCE
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from tests.parity.ranks import FLOAT64, M, assert_ranks_agree, made, toy_batch, toy_embeddings
from tests.parity.toy import ToyEncoder
from tests.parity.wiring.declared import Case, Learned, O, Reference, cases_of
from tests.support.planning import small_recipe
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = pytest.mark.parity

REFERENCE = Reference(
    objective="symmetric_info_nce",
    defaults={"temperature": 0.05, "hard_negatives": True, "learn_temperature": False, "temperature_learning_rate": None},
    loss=lambda columns, values, rows, heads: loop(
        columns if values["hard_negatives"] else columns[:2],
        heads["log_temperature"].exp().clamp(min=0.01) if values["learn_temperature"] else values["temperature"],
    ),
    learns={"log_temperature": Learned(field="temperature_learning_rate", decays=False)},
    cases=(
        *cases_of("symmetric_info_nce", {"temperature": (0.05, 0.3), "hard_negatives": (True, False)}, cls="SymmetricInfoNCE"),
        *cases_of(
            "symmetric_info_nce", {"temperature_learning_rate": (None, 0.3)}, cls="SymmetricInfoNCE", base={f"{O}.learn_temperature": True}
        ),
        Case(
            fields=("SymmetricInfoNCE.learn_temperature",),
            base={O: {"name": "symmetric_info_nce"}},
            change={f"{O}.learn_temperature": True, f"{O}.temperature_learning_rate": 0.3},
        ),
    ),
    given={"learn_temperature": True},
)
LEARNED = SymmetricInfoNCE(temperature=0.3, learn_temperature=True, temperature_learning_rate=0.1)
LEARNED_VALUES: Json = {"name": "symmetric_info_nce", "temperature": 0.1, "learn_temperature": True, "temperature_learning_rate": 0.05}


def loop(columns_CMD: Sequence[Tensor], temperature: Tensor | float) -> Tensor:
    anchors, positives, *negatives = [[row / row.norm() for row in column] for column in columns_CMD]
    candidates = [*positives, *(row for column in negatives for row in column)]
    total = torch.zeros((), dtype=torch.float64)
    for i, (anchor, positive) in enumerate(zip(anchors, positives, strict=True)):
        forth = torch.stack([anchor @ candidate / temperature for candidate in candidates])
        back = torch.stack([positive @ other / temperature for other in anchors])
        total = total - torch.log_softmax(forth, dim=0)[i] / 2 - torch.log_softmax(back, dim=0)[i] / 2
    return total / len(anchors)


@pytest.mark.parametrize("num_columns", [2, 3], ids=["positives", "hard-negatives"])
def test_it_equals_a_loop(num_columns: int) -> None:
    columns_CMD = toy_embeddings(num_columns).requires_grad_()
    found = made(SymmetricInfoNCE(temperature=0.2))(columns_CMD.flatten(0, 1), toy_batch(num_columns))
    expected = loop(columns_CMD, torch.tensor(0.2, dtype=torch.float64))
    torch.testing.assert_close(found, expected, **FLOAT64)
    torch.testing.assert_close(torch.autograd.grad(found, columns_CMD), torch.autograd.grad(expected, columns_CMD), **FLOAT64)


def test_it_equals_that_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    columns_CMD = toy_embeddings(2).requires_grad_()
    model, both = SentenceTransformer(modules=[torch.nn.Identity()]), ("query_to_doc", "doc_to_query")
    theirs = MultipleNegativesRankingLoss(model, scale=20.0, directions=both, partition_mode="per_direction")
    expected = theirs.compute_loss_from_embeddings(list(columns_CMD), torch.zeros(M))
    found = made(SymmetricInfoNCE())(columns_CMD.flatten(0, 1), toy_batch(2))
    torch.testing.assert_close(found, expected, **FLOAT64)
    torch.testing.assert_close(torch.autograd.grad(found, columns_CMD), torch.autograd.grad(expected, columns_CMD), **FLOAT64)


def test_the_temperature_s_gradient_is_that_of_the_loop() -> None:
    objective, columns_CMD = made(LEARNED), toy_embeddings(3)
    assert isinstance(objective, torch.nn.Module)
    (log_temperature,) = objective.parameters()
    reference = log_temperature.detach().clone().requires_grad_()
    loss = objective(columns_CMD.flatten(0, 1), toy_batch(3))
    assert math.isclose(math.exp(log_temperature.item()), 0.3, rel_tol=1e-6)  # made in float32
    (found,) = torch.autograd.grad(loss, log_temperature)
    (expected,) = torch.autograd.grad(loop(columns_CMD, reference.exp().squeeze()), reference)
    torch.testing.assert_close(found, expected, **FLOAT64)
    with torch.no_grad():
        log_temperature.fill_(math.log(LOWEST / 2))
    lowest = made(SymmetricInfoNCE(temperature=LOWEST))(columns_CMD.flatten(0, 1), toy_batch(3))
    torch.testing.assert_close(objective(columns_CMD.flatten(0, 1), toy_batch(3)), lowest)


@pytest.mark.parametrize("values", [SymmetricInfoNCE(), LEARNED], ids=["fixed", "learned"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_value_and_gradients_do_not_depend_on_the_number_of_ranks(values: SymmetricInfoNCE, world_size: int) -> None:
    assert_ranks_agree(values, num_columns=3, world_size=world_size)


def test_a_learned_temperature_has_a_group_of_its_own() -> None:
    objective = made(LEARNED)
    assert isinstance(objective, torch.nn.Module)
    groups = parameter_groups(Learner(ToyEncoder(), objective), Optimization(num_steps=1, lr=1e-3, weight_decay=0.01))
    (own,) = (group for group in groups if group["lr"] == 0.1)
    assert own["params"] == list(objective.parameters()) and own["weight_decay"] == 0.0


def test_a_learned_temperature_goes_through_checkpoints_and_stands_beside_the_encoder(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = tiny_values(tiny_encoder_dir, methods={"learned": {"objective": LEARNED_VALUES}}, baseline=None)
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    stage = next(stage for stage in plan.stages if isinstance(stage, Train))
    build_here(stage.corpus, context)

    def session() -> TrainSession:
        return TrainSession(stage, context, make_engine=TorchEngine, bank=None)

    whole = session()
    for _ in whole.events():
        pass
    first = session()
    for number, _ in enumerate(first.events(), start=1):
        if number == 3:
            first.save(tmp_path / "checkpoint")
            break
    second = session()
    second.load(tmp_path / "checkpoint")
    for _ in second.events():
        pass
    ours, theirs = whole.engine.weights(), second.engine.weights()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    whole.finish(tmp_path / "out")
    (log_temperature,) = load_file(tmp_path / "out" / HEADS_FILE).values()
    assert abs(math.exp(log_temperature.item()) - 0.1) > 1e-3, "it has moved"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature_learning_rate": 0.1}, "has no effect on a fixed temperature"),
        ({"learn_temperature": True, "temperature": 0.001}, "stays at or above 0.01"),
    ],
)
def test_values_without_a_meaning_are_refused(values: dict[str, Json], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        small_recipe(methods={"base": {}, "new": {"objective": {"name": "symmetric_info_nce"} | values}})
