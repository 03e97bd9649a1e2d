"""Running a model that needs padding: sentences grouped by length, results laid flat again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sentdist.learning.encoder.batch import TokenBatch
from sentdist.learning.encoder.flat_attention import group_borders

_GROUP_COST = 4000.0  # squared tokens; a group costs one whole forward here, so groups are fewer than inside attention


def padded_layers(model: PreTrainedModel, tokens: TokenBatch, *, pad_id: int) -> list[Tensor]:
    """Return all hidden states as flat (T, D) tensors, embeddings first, computed in padded groups of similar length."""
    lengths = np.asarray(tokens.lengths)
    order = np.argsort(lengths, kind="stable")
    borders = group_borders(lengths[order], group_cost=_GROUP_COST)
    sentences = tokens.token_ids.split(list(tokens.lengths))
    groups = []
    for first, last in pairwise(borders):
        members = [sentences[index] for index in order[first:last]]
        token_ids = torch.nn.utils.rnn.pad_sequence(members, batch_first=True, padding_value=pad_id)
        row_lengths = torch.as_tensor(lengths[order[first:last]], device=token_ids.device)
        mask = torch.arange(token_ids.shape[1], device=token_ids.device) < row_lengths[:, None]
        output = model(input_ids=token_ids, attention_mask=mask.long(), output_hidden_states=True)
        groups.append([layer[mask] for layer in output.hidden_states])
    starts = np.cumsum(lengths) - lengths
    token_order = np.concatenate([np.arange(lengths[index]) + starts[index] for index in order])
    back = torch.from_numpy(np.argsort(token_order)).to(tokens.token_ids.device)
    return [torch.cat(layer).index_select(0, back) for layer in zip(*groups, strict=True)]
