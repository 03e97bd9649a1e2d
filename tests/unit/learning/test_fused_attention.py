"""Attention as one operation of a GPU: its kernels have bounds, and a batch that goes beyond them is given to them in runs.

On a pretended GPU, whose kernels count random numbers and sentences as those of torch 2.13 do; tests/gpu asks a real one the same.
"""

from __future__ import annotations

import pytest
import torch

from sentdist.learning.encoder.fused_attention import MOST_SENTENCES, by_length
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
