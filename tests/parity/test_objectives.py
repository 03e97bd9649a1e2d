"""Every objective on embeddings equals its equation as `wiring/reference.py` writes it out, in float64, value and gradient, on one rank
and on two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sentdist.errors import RecipeError
from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.supmpn import supmpn
from sentdist.recipe.objectives import OBJECTIVES
from tests.parity.processes import run_in_processes
from tests.parity.ranks import FLOAT64, M, ToyBank64, loss_and_gradients, made, toy_batch, toy_embeddings
from tests.parity.wiring.declared import Rows
from tests.parity.wiring.reference import loss_of
from tests.support.planning import plan_of, small_recipe

pytestmark = pytest.mark.parity

Values = dict[str, Any]


BUFFERED: Values = {"name": "regression", "slope": 2.5, "threshold": 0.25}


# Values, columns, positives among them. Auxiliary tasks and masked language modelling have files of their own.
CASES: list[tuple[Values, int, int]] = [
    ({"name": "info_nce"}, 2, 1),
    ({"name": "info_nce", "temperature": 0.05}, 3, 1),
    ({"name": "entropy", "phi": 0.04}, 2, 1),
    ({"name": "entropy", "phi": -0.7, "temperature": 0.05}, 3, 1),
    ({"name": "rcl", "temperature": 0.3}, 2, 1),
    ({"name": "rcl", "temperature": 0.05, "regulator_temperature": 0.3, "regulator_weight": 0.5}, 3, 1),
    ({"name": "regulators", "temperature": 0.3}, 3, 2),
    ({"name": "rse"}, 2, 1),
    ({"name": "rse", "temperature": 1.0, "phi": -0.3}, 3, 1),
    ({"name": "supmpn"}, 3, 1),
    ({"name": "supmpn", "temperature": 1.0, "phi": -0.3}, 4, 3),
    ({"name": "supmpn", "temperature": 1.0, "phi": 0.04, "masked": "zero"}, 6, 3),
    *(
        ({**BUFFERED, "loss": loss, "boundary": boundary}, 2, 1)
        for loss in ("translated_relu", "smooth_k2")
        for boundary in ("none", "left_mask", "clamp", "one_sided")
    ),
    ({**BUFFERED, "features": "uv"}, 2, 1),
    ({**BUFFERED, "features": "diff"}, 2, 1),
    ({"name": "regression", "loss": "l1"}, 2, 1),
    ({"name": "regression", "loss": "mse", "boundary": "clamp"}, 2, 1),
    ({"name": "regression", "loss": "cross_entropy"}, 2, 1),
    ({"name": "cosent"}, 2, 1),
    ({"name": "cosent", "temperature": 0.3}, 2, 1),
    ({"name": "angle"}, 2, 1),
    ({"name": "angle", "temperature": 0.3}, 2, 1),
    ({"name": "triplet", "margin": 0.3}, 3, 1),
    ({"name": "triplet", "distance": "manhattan", "margin": 2.0}, 3, 1),
    ({"name": "triplet", "distance": "cosine", "margin": 0.2}, 3, 1),
    ({"name": "symmetric_info_nce", "temperature": 0.2}, 3, 1),
    ({"name": "symmetric_info_nce", "temperature": 0.3, "learn_temperature": True, "temperature_learning_rate": 0.1}, 2, 1),
]


def expected_of(values: Values, embeddings_CMD: Tensor, num_positives: int) -> tuple[Tensor, list[Tensor]]:
    """Loss and gradients as `loss_and_gradients` gives them, by the reference."""
    objective = made(values, num_columns=len(embeddings_CMD), num_positives=num_positives)
    heads = dict(objective.named_parameters()) if isinstance(objective, nn.Module) else {}
    batch = toy_batch(len(embeddings_CMD), num_positives=num_positives)
    rows = Rows(
        columns=tuple(tuple(map(str, column)) for column in batch.sentence_ids),
        num_positives=num_positives,
        labels=batch.labels,
        top=5.0,
        relations=batch.relations,
        banks=tuple({str(number): row for number, row in enumerate(table)} for table in ToyBank64.table),
    )
    embeddings_CMD = embeddings_CMD.clone().requires_grad_()
    loss = loss_of(list(embeddings_CMD), values, rows, heads)
    return loss.detach(), list(torch.autograd.grad(loss, [embeddings_CMD, *heads.values()]))


def _of_all_cases(rank: int, world_size: int) -> list[tuple[float, list[Tensor]]]:
    return [loss_and_gradients(rank, world_size, *case) for case in CASES]


@pytest.fixture(scope="module")
def on_two_ranks() -> list[list[tuple[float, list[Tensor]]]]:
    """By rank, then by case: all cases in one start of processes."""
    return run_in_processes(_of_all_cases, 2)


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: "-".join(map(str, CASES[number][0].values())))
def test_value_and_gradient_are_those_of_the_equation_on_one_rank_and_on_two(
    number: int, on_two_ranks: list[list[tuple[float, list[Tensor]]]]
) -> None:
    values, num_columns, num_positives = CASES[number]
    loss, gradients = expected_of(values, toy_embeddings(num_columns), num_positives)
    assert gradients[0].abs().max() > 1e-3
    # torch adds 1e-6 to every difference of a triplet's distances
    close = {"atol": 1e-5, "rtol": 1e-4} if values["name"] == "triplet" else FLOAT64
    for ranks in ([loss_and_gradients(0, 1, *CASES[number])], [of_rank[number] for of_rank in on_two_ranks]):
        mean = torch.tensor([found for found, _ in ranks], dtype=torch.float64).mean()
        torch.testing.assert_close(mean, loss, **close)
        for _, found in ranks:
            assert len(found) == len(gradients)
            for ours, expected in zip(found, gradients, strict=True):
                torch.testing.assert_close(ours, expected, **close)


def test_cases_try_every_objective_and_every_boundary() -> None:
    assert {values["name"] for values, *_ in CASES} == {*OBJECTIVES} - {"auxiliary", "mlm"}
    losses = {float(expected_of(values, toy_embeddings(2), 1)[0]) for values, *_ in CASES if values.get("loss") == "smooth_k2"}
    assert len(losses) == 4, "predictions lie on both sides of the labels' range"


@pytest.mark.parametrize("name", ["entropy", "rse", "supmpn", "cosent", "angle", "triplet"])
def test_of_half_precision_it_is_computed_in_float32(name: str) -> None:
    values, num_columns, num_positives = next(case for case in CASES if case[0]["name"] == name)
    embeddings = toy_embeddings(num_columns).bfloat16()
    objective = made(values, num_columns=num_columns, num_positives=num_positives, dtype=torch.float32)
    found = objective(embeddings.flatten(0, 1), toy_batch(num_columns, num_positives=num_positives))
    assert found.dtype == torch.float32
    expected, _ = expected_of(values, embeddings.double(), num_positives)
    torch.testing.assert_close(found.detach().double(), expected, rtol=1e-4, atol=1e-5)  # float32 logits of size 20


def test_logit_gradient_of_eq_2_is_the_closed_form() -> None:
    """∂J_i/∂z_m = (p_m − 1[m=i]) − φ p_m (1[m≠i](log p_m + 1) − A), A = Σ_{j≠i} p_j (log p_j + 1)."""
    phi, own = -0.3, torch.eye(6, dtype=torch.float64)
    # Orthonormal candidates turn an anchor of length 1 into its own cosines: logits are the anchor's components, up to the normalisation.
    draw = torch.Generator().manual_seed(2)
    anchors = torch.nn.functional.normalize(torch.randn(6, 6, dtype=torch.float64, generator=draw), dim=1).requires_grad_()
    (found,) = torch.autograd.grad(entropy_info_nce(anchors, own, first_row=0, temperature=1.0, phi=phi) * 6, anchors)
    z = anchors.detach()
    p = torch.softmax(z, dim=1)
    inner = (1 - own) * (p.log() + 1)
    expected = (p - own) - phi * p * (inner - (p * inner).sum(dim=1, keepdim=True))
    expected = expected - (expected * z).sum(dim=1, keepdim=True) * z  # the normalisation takes away the part along the anchor
    torch.testing.assert_close(found, expected, **FLOAT64)


def test_an_easy_row_keeps_its_small_loss() -> None:
    """−log σ(own − rivals) is not lost in the rounding of float32: own cosine 1, every rival −1 at τ = 0.05 gives 7·e^{−40}."""
    positives, negatives = torch.full((4, 1, 1), -1.0), torch.full((4, 1, 1), -1.0)
    positives[0] = 1.0
    found = float(supmpn(torch.ones(1, 1), positives, negatives, first_row=0, temperature=0.05))
    assert found == pytest.approx(7 * torch.tensor(-40.0).double().exp().item(), rel=1e-4)


def test_rows_that_do_not_fit_are_refused_by_the_loss_and_while_planning() -> None:
    for name, num_columns in (("cosent", 3), ("angle", 3), ("triplet", 2)):
        with pytest.raises(ValueError, match="values to unpack"):
            made({"name": name})(toy_embeddings(num_columns).flatten(0, 1), toy_batch(num_columns))
    pairs = {"source": "nli/pairs", "columns": ["one", "two"]}
    for corpus, objective, word in (
        ({}, {"name": "cosent"}, "labels"),
        ({}, {"name": "angle"}, "labels"),
        ({"corpus": pairs}, {"name": "triplet"}, "hard negatives"),
        ({}, {"name": "triplet", "distance": "cosine", "margin": 5}, "margin"),
        ({}, {"name": "symmetric_info_nce", "temperature_learning_rate": 0.1}, "temperature"),
        ({}, {"name": "symmetric_info_nce", "learn_temperature": True, "temperature": 0.001}, "temperature"),
    ):
        with pytest.raises(RecipeError, match=word):
            plan_of(small_recipe(**corpus, methods={"base": {}, "new": {"objective": objective}}))


@pytest.mark.parametrize("name", ["CoSENT", "AnglE", "symmetric", "triplet-euclidean", "triplet-manhattan", "triplet-cosine"])
def test_losses_are_those_of_sentence_transformers(name: str) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    model, distance = SentenceTransformer(modules=[nn.Identity()]), name.removeprefix("triplet-")
    columns_CMD = toy_embeddings(3 if "triplet" in name else 2).requires_grad_()
    batch, close = toy_batch(len(columns_CMD)), {"atol": 1e-10, "rtol": 1e-10}  # theirs sums in another order
    if name == "CoSENT":
        theirs, values = losses.CoSENTLoss(model, scale=20.0), {"name": "cosent"}
    elif name == "AnglE":
        theirs, values = losses.AnglELoss(model, scale=20.0), {"name": "angle"}
    elif name == "symmetric":
        both = ("query_to_doc", "doc_to_query")
        theirs = losses.MultipleNegativesRankingLoss(model, scale=20.0, directions=both, partition_mode="per_direction")
        values = {"name": "symmetric_info_nce"}
    else:
        metric = getattr(losses.TripletDistanceMetric, distance.upper())
        theirs, values = losses.TripletLoss(model, distance_metric=metric, triplet_margin=0.7), {"name": "triplet", "distance": distance}
        values |= {"margin": 0.7}
        close = {"atol": 1e-6, "rtol": 1e-6}  # theirs keeps its norms away from 0
    expected = theirs.compute_loss_from_embeddings(list(columns_CMD), torch.zeros(M) if name == "symmetric" else batch.labels)
    found = made(values, num_columns=len(columns_CMD))(columns_CMD.flatten(0, 1), batch)
    torch.testing.assert_close(found, expected, **close)
    torch.testing.assert_close(torch.autograd.grad(found, columns_CMD), torch.autograd.grad(expected, columns_CMD), **close)


NUM_ROWS, WIDTH, NUM_ENCODERS = 8, 5, 2
