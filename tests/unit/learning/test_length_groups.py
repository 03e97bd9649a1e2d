"""How sentences of unlike length share products and forward passes: as few as cost least, each sentence in one of them."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from sentdist.learning.encoder.grouped_attention import group_borders, length_groups
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder


def cost(lengths: np.ndarray, borders: tuple[int, ...], group_cost: float) -> float:
    return sum((last - first) * float(lengths[last - 1]) ** 2 + group_cost for first, last in pairwise(borders))


@pytest.mark.parametrize("group_cost", [0.0, 30.0, 600.0])
def test_no_other_cut_costs_less(group_cost: float) -> None:
    """Every way to cut ten sentences, tried one by one."""
    random = np.random.default_rng(0)
    for _ in range(5):
        lengths = np.sort(random.integers(3, 30, size=10))
        cuts = [(0, *inner, 10) for count in range(10) for inner in combinations(range(1, 10), count)]
        least = min(cost(lengths, cut, group_cost) for cut in cuts)
        assert cost(lengths, tuple(group_borders(lengths, group_cost=group_cost)), group_cost) == least


def test_attention_takes_sentences_of_near_lengths_in_one_product_and_long_ones_by_themselves() -> None:
    """Thirty lengths are not thirty products; and a hundred short sentences are not padded to a long one's length."""
    near = length_groups(range(4, 34), torch.device("cpu"), num_heads=2)
    assert len(near.groups) <= 8
    unlike = length_groups([*[8] * 100, 60], torch.device("cpu"), num_heads=2)
    assert [(group.size, group.length) for group in unlike.groups] == [(200, 8), (2, 60)]


@pytest.mark.parametrize("dir_name", ["tiny_padded_dir", "tiny_encoder_dir"])
@pytest.mark.parametrize(("pooling", "reads_all"), [("mean", False), ("first_last", True)])
def test_only_a_pooling_that_reads_all_layers_has_them_kept(
    pooling: str, reads_all: bool, dir_name: str, request: pytest.FixtureRequest
) -> None:
    """Padded and flat: of 28 layers 27 would be held for nothing."""
    encoder = SentenceEncoder.load(request.getfixturevalue(dir_name), pooling=pooling).eval()
    asked: list[bool] = []
    encoder.model.register_forward_pre_hook(
        lambda module, args, given: asked.append(bool(given.get("output_hidden_states"))), with_kwargs=True
    )
    encoder(encoder.tokenize(["a man", "a man " * 20]))
    assert asked and set(asked) == {reads_all}
