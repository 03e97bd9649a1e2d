"""Attention as one operation of a GPU, whose kernels have bounds; dropout masks and DropHead: rates, scales, what they touch and when."""

from __future__ import annotations

import pytest
import torch

from sentdist.kernels.flat_attention import Segments, flat_attention
from sentdist.kernels.fused_attention import MOST_SENTENCES, by_length
from sentdist.kernels.tensors import dropout, head_scales, heads_of_which_one_is_kept
from tests.support.attended import BANDS, MANY, attended
from tests.support.pretend_gpu import pretended_gpu
from tests.support.pretend_kernels import KERNELS, aten


@pytest.mark.parametrize(("is_causal", "num_key_heads"), [(False, 12), (True, 3)])
def test_masks_of_forward_and_backward_are_the_same_however_many_sentences_there_are(is_causal: bool, num_key_heads: int) -> None:
    with pretended_gpu() as gpu:
        found = attended(
            MANY, num_heads=12, width=8, p=0.25, dtype=torch.float32, device=gpu, is_causal=is_causal, num_key_heads=num_key_heads
        )
    assert float(found.disagreement().max()) < 1e-4  # float32 sums
    assert 0.01 < float((found.context == 0.0).float().mean()) < 0.5  # short sentences lose all their weights at times


@pytest.mark.usefixtures("plain_layers")  # as above
def test_dropout_that_drops_nothing_is_attention_without_it_in_the_order_of_the_tokens() -> None:
    is_causal = True
    lengths, shape = [3, 1, 9, 3, 2, 1], {"num_heads": 2, "width": 8, "dtype": torch.float32, "is_causal": is_causal}
    with pretended_gpu() as gpu:
        there = attended(lengths, **shape, p=1e-9, device=gpu)  # type: ignore[arg-type]
    here = attended(lengths, **shape, p=0.0, device=torch.device("cpu"))  # type: ignore[arg-type]
    torch.testing.assert_close(there.context, here.context)
    torch.testing.assert_close(there.gradients, here.gradients)


def test_sentences_of_one_length_are_dropped_out_together_as_many_as_their_random_numbers_allow() -> None:
    lengths = [3, 1, 512, 3, 1, 1]
    found = by_length(lengths, torch.device("cpu"), num_heads=2)
    assert found.runs == ((3, 1), (2, 3), (1, 512))
    sentence_T = torch.repeat_interleave(torch.tensor(lengths))
    assert sentence_T[found.tokens][:9].tolist() == [1, 4, 5, 0, 0, 0, 3, 3, 3]
    assert torch.equal(found.tokens[found.back], torch.arange(sum(lengths)))
    assert by_length([512] * 700, torch.device("cpu"), num_heads=12).runs == ((682, 512), (18, 512))
    assert by_length([8192] * 2, torch.device("cpu"), num_heads=64).runs == ((1, 8192),) * 2
    assert by_length([1] * (MOST_SENTENCES + 1), torch.device("cpu"), num_heads=1).runs == ((MOST_SENTENCES, 1), (1, 1))


@pytest.mark.usefixtures("plain_layers")  # as above
@pytest.mark.parametrize(("dtype", "num_key_heads"), [(torch.float32, 1), (torch.bfloat16, 2)])
@pytest.mark.parametrize("name", BANDS)
def test_bands_and_shared_heads_are_one_operation_there_and_give_what_a_cpu_gives(
    name: str, dtype: torch.dtype, num_key_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But in float32 a window, which torch's kernel for that leaves out of its derivative."""
    shape = {"num_heads": 4, "width": 8, "p": 0.0, "dtype": dtype, "num_key_heads": num_key_heads, **BANDS[name]}
    lengths, called = [9, 1, 2, 24, 1, 3], []
    for kernel in (aten._flash_attention_forward, aten._efficient_attention_forward):
        monkeypatch.setitem(KERNELS, kernel, lambda *args, call=KERNELS[kernel], **named: called.append(1) or call(*args, **named))
    with pretended_gpu() as gpu:
        there = attended(lengths, **shape, device=gpu)  # type: ignore[arg-type]
    here = attended(lengths, **shape, device=torch.device("cpu"))  # type: ignore[arg-type]
    assert len(called) == (0 if dtype == torch.float32 and name in ("causal-window", "window") else 1)
    torch.testing.assert_close(there.context, here.context)
    torch.testing.assert_close(
        there.gradients, here.gradients, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2 if dtype == torch.bfloat16 else 1e-6
    )


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
