"""Attention as one operation of a GPU: its kernels have bounds, and a batch that goes beyond them is given to them in runs.

On a pretended GPU, whose kernels count random numbers and sentences as those of torch 2.13 do; tests/gpu asks a real one the same.
"""

from __future__ import annotations

import pytest
import torch

from sentdist.learning.encoder import fused_attention
from sentdist.learning.encoder.fused_attention import MOST_SENTENCES, sentences_at_once
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
    monkeypatch.setattr(fused_attention, "sentences_at_once", lambda *_, **__: 2)
    lengths, shape = [9, 1, 2, 1, 3], {"num_heads": 1, "width": 8, "p": 0.0, "dtype": torch.float32}
    with pretended_gpu() as gpu:
        there = attended(lengths, **shape, device=gpu)  # type: ignore[arg-type]
    here = attended(lengths, **shape, device=torch.device("cpu"))  # type: ignore[arg-type]
    torch.testing.assert_close(there.gradients, here.gradients)


def test_how_many_sentences_a_call_takes() -> None:
    assert sentences_at_once("flash", num_heads=12, longest=8192, p=0.1) == 4096
    assert sentences_at_once("efficient", num_heads=12, longest=8192, p=0.0) == MOST_SENTENCES
    assert sentences_at_once("efficient", num_heads=12, longest=32, p=0.1) == MOST_SENTENCES
    assert sentences_at_once("efficient", num_heads=12, longest=512, p=0.1) == 682
    assert sentences_at_once("efficient", num_heads=64, longest=8192, p=0.1) == 1
