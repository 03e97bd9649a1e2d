"""Attention within sentences by batched matrix products over groups of similar length: the fallback without kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.kernels.interface import Band
from sentdist.kernels.tensors import dropout_factors, sent_to, softmax_backward

_GROUP_COST = 600.0  # what one more group costs, in squared tokens of a sentence; measured on a CPU, flat between 300 and 1500


@dataclass(frozen=True, kw_only=True)
class LengthGroup:
    """Sentences of similar length that share one batched product."""

    size: int  # n·H, the products
    length: int  # L, of the longest sentence
    first_slot: int  # start of the group in buffers of all groups, like first_weight
    first_weight: int
    is_padding: Tensor | None  # (n·H, L) bool, true after a sentence's end; None if all have length L

    def rows(self, rows_P: Tensor) -> Tensor:
        """View this group's slots of a (P·H, head width) buffer as (n·H, L, head width)."""
        return rows_P.narrow(0, self.first_slot, self.size * self.length).view(self.size, self.length, rows_P.shape[1])

    def weights(self, weights: Tensor) -> Tensor:
        """View this group's part of a buffer of attention weights as (n·H, L, L)."""
        return weights.narrow(0, self.first_weight, self.size * self.length**2).view(self.size, self.length, self.length)


@dataclass(frozen=True, kw_only=True)
class LengthGroups:
    """The sentences of a flat tensor in groups of similar length, prepared once per step and read by every layer."""

    groups: tuple[LengthGroup, ...]  # by rising length
    row_of_slot: Tensor  # (P·H,) the row of a (T·H, head width) tensor that a slot reads; by group as (n, H, L), padding included
    slot_of_row: Tensor  # (T·H,) the inverse
    num_weights: int  # attention weights of all groups, Σ n·H·L²
    _hidden: dict[tuple[Band, int], Tensor] = field(default_factory=dict)

    def hide(self, scores: Tensor, group: LengthGroup, band: Band | None) -> None:
        """Set the scores of padding and of tokens outside the band to minus infinity.

        Padding slots must see something, although their output is unused: otherwise their gradient would be NaN.
        """
        if group.is_padding is not None and (band is None or band.after != 0):  # a causal token never sees padding
            scores.masked_fill_(group.is_padding[:, None, :], -torch.inf)
        if band is None:
            return
        scores.masked_fill_(self._outside(band, group.length), -torch.inf)
        if group.is_padding is not None and band.after != 0:
            scores.masked_fill_(group.is_padding[:, :, None], 0.0)

    def seen(self, group: LengthGroup, band: Band, *, num_heads: int) -> Tensor:
        """Return (L, L) or (n, 1, L, L) bool, true where `hide` hides nothing."""
        sees = ~self._outside(band, group.length)
        if group.is_padding is None or band.after == 0:
            return sees
        is_padding = group.is_padding[::num_heads, None]
        return (sees & ~is_padding[:, :, None, :]) | is_padding[:, :, :, None]

    def _outside(self, band: Band, length: int) -> Tensor:
        if (band, length) not in self._hidden:
            self._hidden[band, length] = band.hidden(length, self.row_of_slot.device)
        return self._hidden[band, length]


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
    borders = group_borders(length_S[order])
    heads = np.arange(num_heads)
    groups, rows, reals = [], [], []
    num_slots = num_weights = 0
    for first, last in pairwise(borders):
        members = order[first:last]
        longest = int(length_S[members[-1]])
        column = np.arange(longest)
        inside = column < length_S[members][:, None]
        token = start_S[members][:, None] + np.minimum(column, length_S[members][:, None] - 1)
        rows.append((token[:, None, :] * num_heads + heads[:, None]).ravel())
        reals.append(np.repeat(inside[:, None, :], num_heads, axis=1).ravel())
        is_padding = None if inside.all() else sent_to(torch.from_numpy(np.repeat(~inside, num_heads, axis=0)), device)
        size = len(members) * num_heads
        groups.append(LengthGroup(size=size, length=longest, first_slot=num_slots, first_weight=num_weights, is_padding=is_padding))
        num_slots, num_weights = num_slots + size * longest, num_weights + size * longest**2
    row_of_slot, real = np.concatenate(rows), np.concatenate(reals)
    slot_of_row = np.empty(int(length_S.sum()) * num_heads, dtype=np.int64)
    slot_of_row[row_of_slot[real]] = np.flatnonzero(real)
    return LengthGroups(
        groups=tuple(groups),
        row_of_slot=sent_to(torch.from_numpy(row_of_slot), device),
        slot_of_row=sent_to(torch.from_numpy(slot_of_row), device),
        num_weights=num_weights,
    )


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
    is_plain = p == 0.0 and distances is None and not torch.is_grad_enabled()
    if band is not None and is_plain and query.device.type == "cpu":
        return _without_derivative(grouped, query, key, value, band, scale=scale)
    rows = (states.flatten(0, 1) for states in (query, key, value))
    with torch.autocast(query.device.type, enabled=False):
        context: Tensor = GroupedAttention.apply(*rows, grouped, scale, p, band, distances)
    return context.view(query.shape)


class GroupedAttention(torch.autograd.Function):
    """softmax(q kᵀ · scale + distances), dropped out, times v, group by group; all of (T·H, head width).

    Written by hand because autograd over a dozen groups a layer spends more time on bookkeeping than on arithmetic.
    What does not depend on the shape of a group (scaling, dropout) is done once for the weights of all groups, in one buffer.
    Scores, and the gradients of weights, are float32 where states are bfloat16: rounded scores of 60 make weights wrong by a tenth.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        grouped: LengthGroups,
        scale: float,
        p: float,
        band: Band | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        query_P, key_P, value_P = (rows.index_select(0, grouped.row_of_slot) for rows in (query, key, value))
        scores, weights = _exact(query, grouped.num_weights), _exact(query, grouped.num_weights)
        for group in grouped.groups:
            _products(group.rows(query_P), group.rows(key_P).transpose(1, 2), out=group.weights(scores))
        scores.mul_(scale)
        for group in grouped.groups:
            if distances is not None:
                group.weights(scores).unflatten(0, (-1, len(distances))).add_(_of_pairs(distances, group.length))
            grouped.hide(group.weights(scores), group, band)
            torch.softmax(group.weights(scores), dim=-1, out=group.weights(weights))
        kept = weights.to(query.dtype)
        factors = dropout_factors(kept, p) if p > 0.0 else None
        dropped = kept if factors is None else torch.mul(weights, factors, out=scores).to(query.dtype)
        out_P = torch.empty_like(query_P)
        for group in grouped.groups:
            torch.bmm(group.weights(dropped), group.rows(value_P), out=group.rows(out_P))
        ctx.save_for_backward(query_P, key_P, value_P, kept, factors)
        ctx.grouped, ctx.scale = grouped, scale
        ctx.distances_shape = None if distances is None else distances.shape
        return out_P.index_select(0, grouped.slot_of_row)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query_P, key_P, value_P, kept, factors = ctx.saved_tensors
        grouped: LengthGroups = ctx.grouped
        grad_P = grad.index_select(0, grouped.row_of_slot)
        grad_query_P, grad_key_P, grad_value_P = (torch.empty_like(query_P) for _ in range(3))
        dropped = kept if factors is None else kept * factors
        grad_weights, grad_scores = _exact(kept, len(kept)), _exact(kept, len(kept))
        weights = kept.to(grad_weights.dtype)
        for group in grouped.groups:
            if group.is_padding is not None:  # a padded slot repeats a token; its output is unused
                group.rows(grad_P).masked_fill_(group.is_padding[:, :, None], 0.0)
            torch.bmm(group.weights(dropped).transpose(1, 2), group.rows(grad_P), out=group.rows(grad_value_P))
            _products(group.rows(grad_P), group.rows(value_P).transpose(1, 2), out=group.weights(grad_weights))
        if factors is not None:
            grad_weights.mul_(factors)
        for group in grouped.groups:
            softmax_backward(group.weights(grad_weights), group.weights(weights), out=group.weights(grad_scores))
        grad_distances = None
        if ctx.distances_shape is not None:
            grad_distances = grad.new_zeros(ctx.distances_shape, dtype=torch.float32)
            for group in grouped.groups:
                _middle(grad_distances, group.length).add_(_by_distance(group.weights(grad_scores), len(grad_distances)))
        grad_scores = grad_scores.mul_(ctx.scale).to(grad.dtype)
        for group in grouped.groups:
            torch.bmm(group.weights(grad_scores), group.rows(key_P), out=group.rows(grad_query_P))
            torch.bmm(group.weights(grad_scores).transpose(1, 2), group.rows(query_P), out=group.rows(grad_key_P))
        grads = (rows.index_select(0, grouped.slot_of_row) for rows in (grad_query_P, grad_key_P, grad_value_P))
        return *grads, None, None, None, None, grad_distances


def _exact(like: Tensor, count: int) -> Tensor:
    return like.new_empty(count, dtype=torch.promote_types(like.dtype, torch.float32))


def _products(rows: Tensor, columns: Tensor, *, out: Tensor) -> None:
    """Compute batched matrix products, not rounded to the type of the inputs."""
    if rows.dtype == out.dtype:
        torch.bmm(rows, columns, out=out)
    elif rows.is_cuda:
        torch.bmm(rows, columns, out_dtype=out.dtype, out=out)
    else:
        torch.bmm(rows.to(out.dtype), columns.to(out.dtype), out=out)


def _middle(distances: Tensor, length: int) -> Tensor:
    """Return (H, 2 · length - 1): the distances within a sentence of that length."""
    middle = distances.shape[1] // 2
    return distances[:, middle - length + 1 : middle + length]


def _of_pairs(distances: Tensor, length: int) -> Tensor:
    """Return (H, length, length): the number added to the score of each query and key."""
    return _middle(distances, length).unfold(1, length, 1).flip(1)


def _by_distance(values: Tensor, num_heads: int) -> Tensor:
    """Sum (n·H, L, L) values of queries and keys by their distances: (H, 2L - 1) float32.

    Written in rows of 2L numbers and read in rows of one less, each row shifts one place right of the row above it.
    """
    length = values.shape[-1]
    summed = values.unflatten(0, (-1, num_heads)).sum(dim=0, dtype=torch.float32).flip(1)
    rows = nn.functional.pad(summed, (0, length)).flatten(1)[:, : length * (2 * length - 1)]
    return rows.unflatten(1, (length, 2 * length - 1)).sum(dim=1)


def _without_derivative(grouped: LengthGroups, query: Tensor, key: Tensor, value: Tensor, band: Band, *, scale: float) -> Tensor:
    """Attend by torch's kernel, group by group, which skips what a causal token does not see. No derivative, no dropout."""
    num_tokens, num_heads, width = query.shape
    rows_P = [states.reshape(num_tokens * num_heads, width).index_select(0, grouped.row_of_slot) for states in (query, key, value)]
    contexts = []
    for group in grouped.groups:
        query_NHLW, key_NHLW, value_NHLW = (group.rows(one).unflatten(0, (-1, num_heads)) for one in rows_P)
        sees = None if band.is_whole_past else grouped.seen(group, band, num_heads=num_heads)
        context = nn.functional.scaled_dot_product_attention(
            query_NHLW, key_NHLW, value_NHLW, attn_mask=sees, is_causal=band.is_whole_past, scale=scale
        )
        contexts.append(context.flatten(0, 2))
    return torch.cat(contexts).index_select(0, grouped.slot_of_row).view(query.shape)
