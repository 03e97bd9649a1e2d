"""Attention as one operation of a GPU, whose kernels have bounds; dropout masks and DropHead: rates, scales, what they touch and when."""

from __future__ import annotations

import pytest
import torch

from sentdist.kernels import cpp_kernels
from sentdist.kernels.flat_attention import Segments, flat_attention
from sentdist.kernels.grouped_attention import length_groups
from sentdist.kernels.tensors import dropout, head_scales, heads_of_which_one_is_kept
from tests.support.attended import BANDS, attended
from tests.support.pretend_gpu import pretended_gpu
from tests.support.pretend_kernels import KERNELS, aten


@pytest.mark.parametrize(("dtype", "num_key_heads"), [(torch.float32, 1), (torch.bfloat16, 2)])
@pytest.mark.parametrize("name", BANDS)
def test_flash_attention_and_groups_give_what_compiled_kernels_give(
    name: str, dtype: torch.dtype, num_key_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"num_heads": 4, "width": 8, "p": 0.0, "dtype": dtype, "num_key_heads": num_key_heads, **BANDS[name]}
    lengths, called = [9, 1, 2, 24, 1, 3], []
    flash = KERNELS[aten._flash_attention_forward]
    monkeypatch.setitem(KERNELS, aten._flash_attention_forward, lambda *args, **named: called.append(1) or flash(*args, **named))
    with pretended_gpu() as gpu:
        there = attended(lengths, **shape, device=gpu)  # type: ignore[arg-type]
    here = attended(lengths, **shape, device=torch.device("cpu"))  # type: ignore[arg-type]
    assert len(called) == (1 if dtype == torch.bfloat16 else 0)
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(there.context, here.context, **tolerance)
    torch.testing.assert_close(there.gradients, here.gradients, **tolerance)


@pytest.mark.parametrize("has_distances", [False, True])
@pytest.mark.parametrize("name", BANDS)
def test_groups_draw_the_same_masks_in_both_passes(name: str, has_distances: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_kernels, "supports_attention", lambda *states: False)
    shape = {"num_heads": 4, "width": 8, "dtype": torch.float32, "device": CPU, "has_distances": has_distances, **BANDS[name]}
    found = attended([3] * 70 + [24] + [2] * 69, p=0.25, **shape)  # type: ignore[arg-type]
    assert float(found.disagreement().max()) < 1e-4  # float32 sums
    assert 0.01 < float((found.context == 0.0).float().mean()) < 0.5  # short sentences lose all their weights at times


def test_a_group_has_as_many_sentences_as_a_call_may_draw_numbers_for() -> None:
    found = length_groups([512] * 700, CPU, num_heads=12)
    assert [group.size for group in found.groups] == [682, 18]
    assert torch.equal(torch.cat([group.tokens for group in found.groups])[found.slots], torch.arange(700 * 512))


CPU = torch.device("cpu")


def test_dropout_scales_values_and_gradient_alike() -> None:
    torch.manual_seed(0)
    values = torch.ones(400, 100, requires_grad=True)
    dropped = dropout(values, 0.2)
    dropped.sum().backward()
    assert set(dropped.unique().tolist()) == {0.0, 1.25}
    assert values.grad is not None
    assert torch.equal(values.grad, dropped)


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


def test_what_a_gpu_draws_where_all_heads_were_dropped_is_what_drawing_again_gives() -> None:
    """Each of the seven patterns of three heads, against Π p^(1−m) (1−p)^m / (1 − p³)."""
    torch.manual_seed(0)
    num_draws, p = 200_000, 0.7
    kept = heads_of_which_one_is_kept(torch.zeros(num_draws, 3), p)
    found = torch.bincount((kept * torch.tensor([1, 2, 4])).sum(dim=1).long(), minlength=8) / num_draws
    for pattern in range(8):
        ones = pattern.bit_count()
        expected = 0.0 if pattern == 0 else p ** (3 - ones) * (1 - p) ** ones / (1 - p**3)
        assert float(found[pattern]) == pytest.approx(expected, abs=5 * (expected * (1 - expected) / num_draws) ** 0.5)  # 5 σ


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
