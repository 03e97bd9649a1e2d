"""Running a model that needs padding: sentences grouped by length, results laid flat again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sentdist.learning.encoder.batch import TokenBatch, inverse, sent_to
from sentdist.learning.encoder.grouped_attention import group_borders

_GROUP_COST = 4000.0  # squared tokens; a group costs one whole forward here, so groups are fewer than inside attention


def padded_layers(model: PreTrainedModel, tokens: TokenBatch, *, pad_id: int, every: bool, num_passes: int | None = None) -> list[Tensor]:
    """Return hidden states as flat (T, D) tensors, computed in padded groups of similar length: the last layer's alone, or those of
    `every` layer, embeddings first. Places are computed on the host, so that nobody waits for a device to learn them;
    transformers itself does, where it looks whether a group's mask hides anything.
    num_passes: groups to make; None: what costs least. A group without a sentence computes one for nothing."""
    device = tokens.token_ids.device
    lengths = np.asarray(tokens.lengths)
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    padded_ids = torch.cat([tokens.token_ids, tokens.token_ids.new_full((1,), pad_id)])
    groups, token_order = [], []
    for first, last in pairwise(_borders(lengths[order], num_passes)):
        members = order[first:last] if last > first else order[:1]
        column = np.arange(int(lengths[members[-1]]))
        inside = column < lengths[members][:, None]
        places = np.where(inside, starts[members][:, None] + column, tokens.num_tokens)  # the last one is padding
        token_ids = padded_ids.index_select(0, _there(places.ravel(), device)).view(places.shape)
        mask = _there(inside.astype(np.int64), device)
        output = model(input_ids=token_ids, attention_mask=mask, output_hidden_states=every)
        inside &= last > first
        real = _there(np.flatnonzero(inside), device)
        layers = output.hidden_states if every else (output.last_hidden_state,)
        groups.append([layer.flatten(0, 1).index_select(0, real) for layer in layers])
        token_order.append(places[inside])
    back = _there(inverse(np.concatenate(token_order)), device)
    return [torch.cat(layer).index_select(0, back) for layer in zip(*groups, strict=True)]


def _borders(sorted_lengths: np.ndarray, num_passes: int | None) -> list[int]:
    if num_passes is None:
        return group_borders(sorted_lengths, group_cost=_GROUP_COST)
    return [len(sorted_lengths) * number // num_passes for number in range(num_passes + 1)]


def _there(values: np.ndarray, device: torch.device) -> Tensor:
    return sent_to(torch.from_numpy(values), device)
