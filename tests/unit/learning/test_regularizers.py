"""Dropout masks and DropHead: rates, scales, what they touch and when."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sentdist.learning.encoder.flat_attention import Segments, flat_attention
from sentdist.learning.encoder.pooling import Dropout, dropout, head_scales, heads_of_which_one_is_kept, keep_mask
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from tests.support.tiny_encoders import SENTENCES

CPU = torch.device("cpu")


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1000, 999), (3,), (0, 4)])
def test_mask_drops_at_its_rate(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    keep = keep_mask(shape, p, device=CPU)
    assert keep.shape == shape
    assert keep.dtype == torch.bool
    if keep.numel() > 1000:  # five standard deviations of a mean of 999,000 draws
        assert abs(float((~keep).float().mean()) - p) < 5 * (p * (1 - p) / keep.numel()) ** 0.5 + 1 / 65536


def test_neighbours_in_one_random_word_are_independent() -> None:
    torch.manual_seed(0)
    keep = keep_mask((500_000, 4), 0.5, device=CPU).float()
    correlations = torch.corrcoef(keep.T) - torch.eye(4)
    assert float(correlations.abs().max()) < 5 / 500_000**0.5


def test_mask_follows_the_generator() -> None:
    torch.manual_seed(3)
    first = keep_mask((100,), 0.5, device=CPU)
    torch.manual_seed(3)
    assert torch.equal(first, keep_mask((100,), 0.5, device=CPU))
    assert not torch.equal(first, keep_mask((100,), 0.5, device=CPU))


def test_dropout_scales_values_and_gradient_alike() -> None:
    torch.manual_seed(0)
    values = torch.ones(400, 100, requires_grad=True)
    dropped = dropout(values, 0.2)
    dropped.sum().backward()
    assert set(dropped.unique().tolist()) == {0.0, 1.25}
    assert values.grad is not None
    assert torch.equal(values.grad, dropped)


def test_every_dropout_of_a_model_is_replaced_and_quiet_at_test(tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, hidden_dropout=0.3, attention_dropout=0.2)
    modules = [module for module in encoder.modules() if isinstance(module, torch.nn.Dropout)]
    assert {type(module) for module in modules} == {Dropout}
    assert {module.p for module in modules} == {0.3, 0.2}
    encoder.eval()
    tokens = encoder.tokenize(SENTENCES)
    with torch.no_grad():
        assert torch.equal(encoder(tokens), encoder(tokens))


def test_head_scales_keep_the_sum_and_never_drop_all() -> None:
    torch.manual_seed(0)
    scales = head_scales(5000, 4, 0.7, device=CPU)
    assert torch.allclose(scales.sum(dim=1), torch.tensor(4.0))
    kept = (scales > 0).sum(dim=1)
    assert int(kept.min()) == 1
    # m_h · H/Σm: every kept head of an example carries the same factor
    assert torch.allclose(scales.max(dim=1).values, 4 / kept)
    # P(kept = k) given that not all are dropped: E[kept] = H(1-p) / (1 - p^H)
    assert float(kept.float().mean()) == pytest.approx(4 * 0.3 / (1 - 0.7**4), abs=0.06)


@pytest.mark.parametrize("p", [0.2, 0.7])
def test_what_a_gpu_draws_where_all_heads_were_dropped_is_what_drawing_again_gives(p: float) -> None:
    """Each of the seven patterns of three heads, against Π p^(1−m) (1−p)^m / (1 − p³)."""
    torch.manual_seed(0)
    num_draws = 200_000
    kept = heads_of_which_one_is_kept(torch.zeros(num_draws, 3), p)
    found = torch.bincount((kept * torch.tensor([1, 2, 4])).sum(dim=1).long(), minlength=8) / num_draws
    for pattern in range(8):
        ones = pattern.bit_count()
        expected = 0.0 if pattern == 0 else p ** (3 - ones) * (1 - p) ** ones / (1 - p**3)
        assert float(found[pattern]) == pytest.approx(expected, abs=5 * (expected * (1 - expected) / num_draws) ** 0.5)  # 5 σ


def test_head_scales_differ_by_example_and_without_ratio_do_nothing() -> None:
    torch.manual_seed(0)
    assert len(head_scales(50, 12, 0.5, device=CPU).unique(dim=0)) > 40
    assert torch.equal(head_scales(3, 12, 0.0, device=CPU), torch.ones(3, 12))


def attend(*, drophead: float, training: bool) -> torch.Tensor:
    """Context (T, H, width) of random states, with value 1 everywhere, so that each head's context is its DropHead factor."""
    lengths = (3, 7, 1, 7)
    boundaries = torch.tensor([0, 3, 10, 11, 18], dtype=torch.int32)
    states = torch.randn(2, 1, 6, 18, 8, generator=torch.Generator().manual_seed(1))
    module = torch.nn.Identity().train(training)
    segments = Segments(lengths=lengths, boundaries=boundaries, num_heads=6, head_width=8)
    context, _ = flat_attention(module, states[0], states[1], torch.ones(1, 6, 18, 8), None, segments=segments, drophead=drophead)
    return context[0]


def test_drophead_uses_one_mask_for_all_tokens_of_a_sentence() -> None:
    torch.manual_seed(0)
    factors = attend(drophead=0.5, training=True)[:, :, 0]
    sentences = factors.split([3, 7, 1, 7])
    assert all(torch.allclose(sentence, sentence[:1].expand_as(sentence)) for sentence in sentences)
    firsts = torch.stack([sentence[0] for sentence in sentences])
    assert len(firsts.unique(dim=0)) > 1
    assert torch.allclose(firsts.sum(dim=1), torch.tensor(6.0))


def test_drophead_is_for_training_only() -> None:
    assert torch.allclose(attend(drophead=0.5, training=False), torch.ones(18, 6, 8))


def test_drophead_changes_what_an_encoder_trains_on_and_not_what_it_says(tiny_encoder_dir: Path) -> None:
    plain = SentenceEncoder.load(tiny_encoder_dir, attention_dropout=0.0, hidden_dropout=0.0)
    dropped = SentenceEncoder.load(tiny_encoder_dir, attention_dropout=0.0, hidden_dropout=0.0, drophead=0.3)
    tokens = plain.tokenize(SENTENCES)
    with torch.no_grad():
        assert not torch.allclose(plain.train()(tokens), dropped.train()(tokens), atol=1e-3)
        assert torch.equal(plain.eval()(tokens), dropped.eval()(tokens))
