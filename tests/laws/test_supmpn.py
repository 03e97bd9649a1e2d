"""What holds for SupMPN's loss whatever the embeddings are."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sentdist.objectives.entropy import entropy_info_nce
from sentdist.objectives.info_nce import info_nce
from sentdist.objectives.supmpn import supmpn

seeds = st.integers(0, 2**31)
temperatures = st.sampled_from([1.0, 0.3, 0.05])
counts = st.integers(1, 4)
CLOSE = {"rtol": 1e-10, "atol": 1e-10}  # float64; cosines to 1e-15, divided by temperatures down to 0.05


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def columns(seed: int, num_positives: int, num_negatives: int, num_rows: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    return randn(seed, num_rows, 5), randn(seed + 1, num_rows, num_positives, 5), randn(seed + 2, num_rows, num_negatives, 5)


@given(seeds, temperatures, st.integers(0, 3), st.sampled_from([0.0, 0.04, -0.5]), st.sampled_from(["excluded", "zero"]))
def test_one_positive_is_multiple_negatives_ranking(seed: int, temperature: float, num_negatives: int, phi: float, masked: str) -> None:
    anchors, positives, negatives = columns(seed, 1, num_negatives)
    candidates = torch.cat([positives.flatten(0, 1), negatives.flatten(0, 1)])
    found = supmpn(anchors, positives, negatives, first_row=0, temperature=temperature, masked=masked, phi=phi)  # type: ignore[arg-type]
    if phi == 0:
        torch.testing.assert_close(found, info_nce(anchors, candidates, first_row=0, temperature=temperature), **CLOSE)
    else:
        torch.testing.assert_close(found, entropy_info_nce(anchors, candidates, first_row=0, temperature=temperature, phi=phi), **CLOSE)


@given(seeds, temperatures, counts)
def test_equal_positives_count_as_one_positive_against_their_copies(seed: int, temperature: float, num_positives: int) -> None:
    """P copies of one positive: the mean over k is one term, while those of other anchors are rivals P times."""
    anchors, positives, negatives = columns(seed, 1, 2)
    copies = positives.expand(-1, num_positives, -1)
    found = supmpn(anchors, copies, negatives, first_row=0, temperature=temperature)
    own = torch.cosine_similarity(anchors, positives[:, 0], dim=1) / temperature
    rest = torch.cosine_similarity(anchors[:, None], positives[:, 0][None], dim=2) / temperature
    off = ~torch.eye(6, dtype=torch.bool)
    negative = (torch.cosine_similarity(anchors[:, None], negatives.flatten(0, 1)[None], dim=2) / temperature).exp().sum(dim=1)
    rivals = num_positives * (rest.exp() * off).sum(dim=1) + negative
    torch.testing.assert_close(found, (torch.log1p(rivals / own.exp())).mean(), **CLOSE)


@given(seeds, temperatures, counts, st.integers(0, 3))
def test_the_released_mask_is_never_below_and_equal_for_one_positive(
    seed: int, temperature: float, num_positives: int, negatives: int
) -> None:
    """Zero for −∞ adds P − 1 to every denominator."""
    inputs = columns(seed, num_positives, negatives)
    excluded, zero = (supmpn(*inputs, first_row=0, temperature=temperature, masked=masked) for masked in ("excluded", "zero"))  # type: ignore[arg-type]
    if num_positives == 1:
        torch.testing.assert_close(zero, excluded, **CLOSE)
    else:
        assert zero > excluded
        # d log(denominator) ≤ (P − 1)/denominator, and no denominator is below (number of rivals)·e^{−1/τ}.
        rivals = 5 * num_positives + 6 * negatives
        assert zero - excluded <= (num_positives - 1) / (rivals * math.exp(-1 / temperature))


@given(seeds, counts, counts)
def test_a_common_rotation_and_lengths_change_nothing(seed: int, num_positives: int, num_negatives: int) -> None:
    inputs = columns(seed, num_positives, num_negatives)
    rotation, _ = torch.linalg.qr(randn(seed + 4, 5, 5))
    lengths = [randn(seed + 5, *tensor.shape[:-1], 1).abs() + 0.1 for tensor in inputs]
    moved = [tensor * length @ rotation for tensor, length in zip(inputs, lengths, strict=True)]
    settings_ = {"first_row": 0, "temperature": 0.3, "phi": 0.1}
    torch.testing.assert_close(supmpn(*moved, **settings_), supmpn(*inputs, **settings_), **CLOSE)  # type: ignore[arg-type]


@given(seeds, seeds)
def test_the_order_of_rows_and_of_an_anchors_own_sentences_changes_nothing(seed: int, shuffle: int) -> None:
    anchors, positives, negatives = columns(seed, 3, 2)
    generator = torch.Generator().manual_seed(shuffle)
    rows, of_positives, of_negatives = (torch.randperm(count, generator=generator) for count in (6, 3, 2))
    moved = supmpn(anchors[rows], positives[rows][:, of_positives], negatives[rows][:, of_negatives], first_row=0, temperature=0.3, phi=0.1)
    torch.testing.assert_close(moved, supmpn(anchors, positives, negatives, first_row=0, temperature=0.3, phi=0.1), **CLOSE)


@given(seeds, st.integers(1, 5), st.sampled_from(["excluded", "zero"]), st.sampled_from([0.0, 0.3]))
def test_rows_of_a_batch_average_to_the_batch(seed: int, cut: int, masked: str, phi: float) -> None:
    anchors, positives, negatives = columns(seed, 3, 2)

    def loss(rows: Tensor, first_row: int) -> Tensor:
        return supmpn(rows, positives, negatives, first_row=first_row, temperature=0.3, masked=masked, phi=phi)  # type: ignore[arg-type]

    torch.testing.assert_close((cut * loss(anchors[:cut], 0) + (6 - cut) * loss(anchors[cut:], cut)) / 6, loss(anchors, 0), **CLOSE)


@given(seeds, st.floats(-1, 1), st.floats(0.001, 1))
def test_the_loss_rises_with_phi(seed: int, phi: float, more: float) -> None:
    """L + φ·H with H ≥ 0."""
    lower, higher = (supmpn(*columns(seed, 3, 2), first_row=0, temperature=0.3, phi=value) for value in (phi, phi + more))
    assert higher > lower


@pytest.mark.parametrize(("num_positives", "num_negatives"), [(1, 1), (5, 5), (5, 0)])
def test_floor(num_positives: int, num_negatives: int) -> None:
    """ln(1 + ((M − 1)P + MQ)·e^{−2/τ}): own positives along the anchor, every other column against it;
    so there are 1 + (M − 1)P + MQ columns."""
    num_rows = 8
    positives = torch.full((num_rows, num_positives, 1), -1.0, dtype=torch.float64)
    positives[0] = 1.0
    negatives = torch.full((num_rows, num_negatives, 1), -1.0, dtype=torch.float64)
    lowest = supmpn(torch.ones(1, 1, dtype=torch.float64), positives, negatives, first_row=0, temperature=1.0)
    rivals = (num_rows - 1) * num_positives + num_rows * num_negatives
    assert float(lowest) == pytest.approx(math.log(1 + rivals * math.exp(-2)))


def test_a_row_without_rivals_costs_nothing_and_has_a_gradient() -> None:
    anchors, positives = randn(0, 1, 5).requires_grad_(), randn(1, 1, 3, 5)
    loss = supmpn(anchors, positives, torch.empty(1, 0, 5, dtype=torch.float64), first_row=0, temperature=0.05)
    assert loss.item() == 0
    assert torch.autograd.grad(loss, anchors)[0].abs().max() == 0
