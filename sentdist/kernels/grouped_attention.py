"""Attention within sentences by torch's `scaled_dot_product_attention`, in groups of similar length: the way without compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.kernels.interface import Band
from sentdist.kernels.tensors import sent_to

_GROUP_COST = 600.0  # what one more group costs, in squared tokens of a sentence; measured on a CPU, flat between 300 and 1500
MOST_SENTENCES = 65_535  # of a call: they are the third dimension of a CUDA kernel's grid
# Random numbers of a call on a GPU, sentences · heads · length²: the forward pass of torch's memory-efficient kernel counts them in 32
# bits, the backward pass in 64 and signed (torch 2.13, kernel_forward.h and kernel_backward.h): beyond these the masks would differ.
MOST_DRAWS = 2**31


@dataclass(frozen=True, kw_only=True)
class LengthGroup:
    """Sentences of similar length, padded to the longest of them."""

    size: int  # n
    length: int  # L
    tokens: Tensor  # (n·L,) the token of each slot; after a sentence's end its last one again
    is_padding: Tensor | None  # (n, L) bool, true after a sentence's end; None if all have length L


@dataclass(frozen=True, kw_only=True)
class LengthGroups:
    """The sentences of a flat tensor in groups of similar length, prepared once per step and read by every layer."""

    groups: tuple[LengthGroup, ...]  # by rising length
    slots: Tensor  # (T,) the slot of each token


def group_borders(sorted_lengths: np.ndarray, *, group_cost: float = _GROUP_COST) -> list[int]:
    """Cut rising lengths into groups with the least Σ n·L² + group_cost · (number of groups); return the borders 0 … S.

    Exact dynamic program over the distinct lengths (at most as many as the longest sentence has tokens).
    """
    distinct, first = np.unique(sorted_lengths, return_index=True)
    ends = np.append(first[1:], len(sorted_lengths))
    best, cut = np.zeros(len(distinct) + 1), np.zeros(len(distinct) + 1, dtype=np.int64)
    for stop in range(1, len(distinct) + 1):
        costs = best[:stop] + (ends[stop - 1] - first[:stop]) * float(distinct[stop - 1]) ** 2 + group_cost
        cut[stop] = int(costs.argmin())
        best[stop] = costs[cut[stop]]
    borders, stop = [len(sorted_lengths)], len(distinct)
    while stop > 0:
        stop = int(cut[stop])
        borders.append(int(first[stop]))
    return borders[::-1]


def length_groups(lengths: Sequence[int], device: torch.device, *, num_heads: int) -> LengthGroups:
    """Prepare the groups for S sentences: arithmetic on the host, then copies to the device."""
    length_S = np.asarray(lengths, dtype=np.int64)
    start_S = np.cumsum(length_S) - length_S
    order = np.argsort(length_S, kind="stable")
    groups: list[LengthGroup] = []
    slots = np.empty(int(length_S.sum()), dtype=np.int64)
    num_slots = 0
    for first, last in pairwise(group_borders(length_S[order])):
        longest = int(length_S[order[last - 1]])
        at_once = max(1, min(MOST_SENTENCES, MOST_DRAWS // (num_heads * longest**2)))
        for start in range(first, last, at_once):
            members = order[start : min(start + at_once, last)]
            column = np.arange(longest)
            inside = column < length_S[members][:, None]
            tokens = start_S[members][:, None] + np.minimum(column, length_S[members][:, None] - 1)
            slots[tokens[inside]] = num_slots + np.flatnonzero(inside)
            is_padding = None if inside.all() else sent_to(torch.from_numpy(~inside), device)
            groups.append(
                LengthGroup(
                    size=len(members), length=longest, tokens=sent_to(torch.from_numpy(tokens.ravel()), device), is_padding=is_padding
                )
            )
            num_slots += tokens.size
    return LengthGroups(groups=tuple(groups), slots=sent_to(torch.from_numpy(slots), device))


def grouped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grouped: LengthGroups,
    *,
    scale: float,
    p: float,
    band: Band | None,
    distances: Tensor | None = None,
) -> Tensor:
    """softmax(q kᵀ · scale + distances) v within each sentence and band, (T, H, head width), weights dropped with probability `p`."""
    dtype, num_heads, width = query.dtype, query.shape[1], query.shape[2]
    is_causal = band is not None and band.is_whole_past and distances is None  # padding comes last, where no causal token looks
    if distances is not None:  # sums of scores and distances keep the digits of float32
        query, key, value = (one.to(torch.promote_types(dtype, torch.float32)) for one in (query, key, value))
    contexts = []
    with torch.autocast(query.device.type, enabled=False):
        for group in grouped.groups:
            shape = (group.size, group.length, num_heads, width)
            query_NHLW, key_NHLW, value_NHLW = (
                one.index_select(0, group.tokens).view(shape).transpose(1, 2) for one in (query, key, value)
            )
            mask = None if is_causal else _mask(group, band, None if distances is None else distances.to(query.dtype))
            context = nn.functional.scaled_dot_product_attention(
                query_NHLW, key_NHLW, value_NHLW, attn_mask=mask, dropout_p=p, is_causal=is_causal, scale=scale
            )
            contexts.append(context.transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts).index_select(0, grouped.slots).to(dtype)


def _mask(group: LengthGroup, band: Band | None, distances: Tensor | None) -> Tensor | None:
    """Return what is added to scores, or bool, true where a token sees another; padding sees everything, since no row may be empty."""
    sees = None if band is None else ~band.hidden(group.length, group.tokens.device)
    if group.is_padding is not None:
        is_real = ~group.is_padding[:, None, None, :]
        sees = (is_real if sees is None else sees & is_real) | group.is_padding[:, None, :, None]
    if distances is None:
        return sees
    middle = distances.shape[1] // 2
    of_pairs = distances[:, middle - group.length + 1 : middle + group.length].unfold(1, group.length, 1).flip(1)
    return of_pairs if sees is None else of_pairs.masked_fill(~sees, -torch.inf)
