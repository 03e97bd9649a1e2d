"""Attention as one operation of a GPU: its kernels have bounds, and a batch that goes beyond them is given to them in runs.

On a pretended GPU, whose kernels count random numbers and sentences as those of torch 2.13 do; tests/gpu asks a real one the same.
"""

from __future__ import annotations

import pytest
import torch

from sentdist.learning.encoder import fused_attention
from sentdist.learning.encoder.fused_attention import MOST_SENTENCES, by_length
from tests.support.attended import MANY, attended
from tests.support.pretend_gpu import pretended_gpu


def test_masks_of_forward_and_backward_are_the_same_however_many_sentences_there_are() -> None:
    with pretended_gpu() as gpu:
        found = attended(MANY, num_heads=12, width=8, p=0.25, dtype=torch.float32, device=gpu)
    assert float(found.disagreement().max()) < 1e-4  # float32 sums
    assert 0.01 < float((found.context == 0.0).float().mean()) < 0.5  # short sentences lose all their weights at times


@pytest.mark.usefixtures("plain_layers")  # the pretended kernels compute by the same operations
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_sentences_than_a_grid_has_places(dtype: torch.dtype) -> None:
    lengths = [1] * MOST_SENTENCES + [2, 1, 3]
    with pretended_gpu() as gpu:
        there = attended(lengths, num_heads=1, width=8, p=0.0, dtype=dtype, device=gpu)
    here = attended(lengths, num_heads=1, width=8, p=0.0, dtype=dtype, device=torch.device("cpu"))
    torch.testing.assert_close(there.context, here.context)
    torch.testing.assert_close(there.gradients, here.gradients)


@pytest.mark.usefixtures("plain_layers")  # as above
def test_a_call_is_told_of_its_own_longest_sentence_not_of_one_in_another_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch refuses a longest sentence that has more tokens than the call."""
    monkeypatch.setattr(fused_attention, "MOST_SENTENCES", 2)
    lengths, shape = [9, 1, 2, 1, 3], {"num_heads": 1, "width": 8, "p": 0.0, "dtype": torch.float32}
    with pretended_gpu() as gpu:
        there = attended(lengths, **shape, device=gpu)  # type: ignore[arg-type]
    here = attended(lengths, **shape, device=torch.device("cpu"))  # type: ignore[arg-type]
    torch.testing.assert_close(there.gradients, here.gradients)


@pytest.mark.usefixtures("plain_layers")  # as above
def test_dropout_that_drops_nothing_is_attention_without_it_in_the_order_of_the_tokens() -> None:
    lengths, shape = [3, 1, 9, 3, 2, 1], {"num_heads": 2, "width": 8, "dtype": torch.float32}
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
