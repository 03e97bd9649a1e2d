"""What holds for the auxiliary tasks whatever the embeddings and the targets are."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sentdist.learning.objective import cross_entropy_of_tags, cross_entropy_of_words, entropy
from sentdist.learning.targets import WordShares
from sentdist.objectives.channels import Channels

seeds = st.integers(0, 2**31)
CLOSE = {"rtol": 1e-10, "atol": 1e-10}  # float64, a dozen terms of size 1 to 10


def logits_and_shares(seed: int, num_rows: int = 6, num_classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(num_rows, num_classes, dtype=torch.float64, generator=generator)
    counts = torch.randint(0, 3, (num_rows, num_classes), generator=generator).double()
    return logits, counts / counts.sum(dim=1, keepdim=True).clamp(min=1)


def sparse(shares: Tensor) -> WordShares:
    rows, words = shares.nonzero(as_tuple=True)
    return WordShares(rows=rows, words=words, shares=shares[rows, words], num_rows=len(shares))


@given(seeds)
def test_sparse_words_count_as_dense_ones(seed: int) -> None:
    logits, shares = logits_and_shares(seed)
    logits.requires_grad_()
    dense, thin = cross_entropy_of_tags(logits, shares), cross_entropy_of_words(logits, sparse(shares))
    torch.testing.assert_close(thin, dense, **CLOSE)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (thin, dense)), **CLOSE)


@given(seeds)
def test_cross_entropy_is_least_at_the_targets(seed: int) -> None:
    """CE(t, ŷ) = H(t) + KL(t ‖ ŷ) ≥ H(t)."""
    logits, shares = logits_and_shares(seed)
    shares = shares * 0.9 + 0.02  # away from 0, so that logits of the targets exist
    shares = shares / shares.sum(dim=1, keepdim=True)
    own = -(shares * shares.log()).sum(dim=1).mean()
    torch.testing.assert_close(cross_entropy_of_tags(shares.log(), shares), own, **CLOSE)
    assert cross_entropy_of_tags(logits, shares) >= own - 1e-12


@given(seeds, st.floats(-50, 50))
def test_a_shift_of_all_logits_changes_nothing(seed: int, shift: float) -> None:
    logits, shares = logits_and_shares(seed)
    counted = shares.sum(dim=1) > 0
    torch.testing.assert_close(cross_entropy_of_tags(logits + shift, shares), cross_entropy_of_tags(logits, shares), **CLOSE)
    torch.testing.assert_close(entropy(logits + shift, counted), entropy(logits, counted), **CLOSE)


@given(seeds)
def test_entropy_lies_between_zero_and_that_of_guessing(seed: int) -> None:
    logits, _ = logits_and_shares(seed)
    ones = torch.ones(len(logits), dtype=torch.bool)
    assert 0 <= entropy(logits, ones) <= math.log(logits.shape[1]) + 1e-12
    assert math.isclose(float(entropy(torch.zeros_like(logits), ones)), math.log(logits.shape[1]), rel_tol=1e-12)


@given(seeds, st.integers(1, 5))
def test_rows_of_a_batch_average_to_the_batch(seed: int, cut: int) -> None:
    logits, shares = logits_and_shares(seed)
    counted = shares.sum(dim=1) > 0
    for loss in (
        lambda part: cross_entropy_of_tags(logits[part], shares[part]),
        lambda part: cross_entropy_of_words(logits[part], sparse(shares[part])),
        lambda part: entropy(logits[part], counted[part]),
    ):
        parts = (cut * loss(slice(0, cut)) + (6 - cut) * loss(slice(cut, 6))) / 6
        torch.testing.assert_close(parts, loss(slice(0, 6)), **CLOSE)


@given(st.integers(3, 4096))
def test_channels_of_any_width_add_up(width: int) -> None:
    channels = Channels.of(width)
    assert channels.pos + channels.bow == width
    assert min(channels.pos, channels.bow) >= 1
