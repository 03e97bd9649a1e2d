"""Attention among the tokens of each sentence when all sentences of a step lie in one tensor without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from sentdist.learning.regularizers import head_scales, keep_mask

FLAT_ATTENTION = "sentdist_flat"
_GROUP_COST = 600.0  # what one more group costs, in squared tokens of a sentence; measured on a CPU, flat between 300 and 1500


@dataclass(frozen=True, kw_only=True)
class LengthGroup:
    """Sentences of similar length that are attended to in one batched product.

    num_sentences: n. length: L, that of the longest of them.
    is_padding: (n·H, L) bool, true behind a sentence's end; None when all have length L.
    """

    num_sentences: int
    length: int
    is_padding: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Where the sentences of a flat tensor lie, prepared once per step and read by every layer.

    boundaries: (S + 1,) int32. longest: tokens of the longest sentence. num_heads: H.
    num_sentences: S. groups: by rising length.
    row_of_slot: (P·H,) which row of a (T·H, head width) tensor a slot of the groups reads; group by group as (n, H, L), padding included.
    slot_of_row: (T·H,) the inverse.
    """

    boundaries: Tensor
    longest: int
    num_sentences: int
    num_heads: int
    groups: tuple[LengthGroup, ...]
    row_of_slot: Tensor
    slot_of_row: Tensor


def group_borders(sorted_lengths: np.ndarray, *, group_cost: float = _GROUP_COST) -> list[int]:
    """Cut rising lengths into groups so that Σ n·L² + group_cost · (number of groups) is least; returns the borders 0 … S.

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


def segments_of(lengths: Sequence[int], boundaries: Tensor, *, num_heads: int) -> Segments:
    """Prepare the groups for S sentences: arithmetic on the host, then copies to the device of `boundaries`."""
    device = boundaries.device
    length_S = np.asarray(lengths, dtype=np.int64)
    start_S = np.cumsum(length_S) - length_S
    order = np.argsort(length_S, kind="stable")
    borders = group_borders(length_S[order])
    heads = np.arange(num_heads)
    groups, rows, reals = [], [], []
    for first, last in pairwise(borders):
        members = order[first:last]
        longest = int(length_S[members[-1]])
        column = np.arange(longest)
        inside = column < length_S[members][:, None]
        token = start_S[members][:, None] + np.minimum(column, length_S[members][:, None] - 1)
        rows.append((token[:, None, :] * num_heads + heads[:, None]).ravel())
        reals.append(np.repeat(inside[:, None, :], num_heads, axis=1).ravel())
        is_padding = None if inside.all() else torch.from_numpy(np.repeat(~inside, num_heads, axis=0)).to(device)
        groups.append(LengthGroup(num_sentences=len(members), length=longest, is_padding=is_padding))
    row_of_slot, real = np.concatenate(rows), np.concatenate(reals)
    slot_of_row = np.empty(int(length_S.sum()) * num_heads, dtype=np.int64)
    slot_of_row[row_of_slot[real]] = np.flatnonzero(real)
    return Segments(
        boundaries=boundaries,
        longest=int(length_S.max()),
        num_sentences=len(length_S),
        num_heads=num_heads,
        groups=tuple(groups),
        row_of_slot=torch.from_numpy(row_of_slot).to(device),
        slot_of_row=torch.from_numpy(slot_of_row).to(device),
    )


class _GroupedAttention(torch.autograd.Function):
    """softmax(q kᵀ · scale), dropped out, times v, group by group; all of (T·H, head width).

    Written by hand because autograd over a dozen groups a layer spends more time on bookkeeping than on arithmetic.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float, p: float) -> Tensor:
        query_P, key_P, value_P = (rows.index_select(0, segments.row_of_slot) for rows in (query, key, value))
        out_P = torch.empty_like(query_P)
        probabilities, keeps, at = [], [], 0
        for group in segments.groups:
            q, k, v, out = (_batch(rows, at, group, segments.num_heads) for rows in (query_P, key_P, value_P, out_P))
            at += q.shape[0] * group.length
            scores = torch.bmm(q, k.transpose(1, 2)).mul_(scale)
            if group.is_padding is not None:
                scores.masked_fill_(group.is_padding[:, None, :], -torch.inf)
            probability = torch.softmax(scores, dim=-1)
            probabilities.append(probability)
            if p > 0.0:
                keeps.append(keep_mask(probability.shape, p, device=probability.device))
                probability = (probability * keeps[-1]).mul_(1.0 / (1.0 - p))
            torch.bmm(probability, v, out=out)
        ctx.save_for_backward(query_P, key_P, value_P, *probabilities, *keeps)
        ctx.segments, ctx.scale, ctx.p = segments, scale, p
        return out_P.index_select(0, segments.slot_of_row)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query_P, key_P, value_P, *saved = ctx.saved_tensors
        segments, num_groups, at = ctx.segments, len(ctx.segments.groups), 0
        grad_P = grad.index_select(0, segments.row_of_slot)
        grads = [torch.empty_like(query_P) for _ in range(3)]
        for index, group in enumerate(segments.groups):
            q, k, v, grad_out, grad_q, grad_k, grad_v = (
                _batch(rows, at, group, segments.num_heads) for rows in (query_P, key_P, value_P, grad_P, *grads)
            )
            at += q.shape[0] * group.length
            if group.is_padding is not None:  # a padded slot repeats a token, but nobody reads its output
                grad_out.masked_fill_(group.is_padding[:, :, None], 0.0)
            probability = saved[index]
            grad_probability = torch.bmm(grad_out, v.transpose(1, 2))
            dropped = probability
            if ctx.p > 0.0:
                keep = saved[num_groups + index]
                dropped = (probability * keep).mul_(1.0 / (1.0 - ctx.p))
                grad_probability.mul_(keep).mul_(1.0 / (1.0 - ctx.p))
            torch.bmm(dropped.transpose(1, 2), grad_out, out=grad_v)
            grad_scores = torch._softmax_backward_data(grad_probability, probability, -1, probability.dtype).mul_(ctx.scale)
            torch.bmm(grad_scores, k, out=grad_q)
            torch.bmm(grad_scores.transpose(1, 2), q, out=grad_k)
        return *(rows.index_select(0, segments.slot_of_row) for rows in grads), None, None, None


def _batch(rows: Tensor, at: int, group: LengthGroup, num_heads: int) -> Tensor:
    """View the slots of a group as (n·H, L, head width)."""
    size = group.num_sentences * num_heads
    return rows[at : at + size * group.length].view(size, group.length, rows.shape[1])


def flat_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Segments,
    scaling: float | None = None,
    dropout: float = 0.0,
    drophead: float = 0.0,
    **_: object,
) -> tuple[Tensor, None]:
    """Attend within sentences; the signature is that of transformers' AttentionInterface.

    query, key, value: (1, H, T, head width). Returns the context (1, T, H, head width) and no weights.
    dropout: on attention probabilities; drophead: on whole heads. Both act in training only.
    """
    num_heads, num_tokens, width = query.shape[1:]
    p = dropout if module.training else 0.0
    scale = width**-0.5 if scaling is None else scaling
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and p == 0.0:
        bounds, longest = segments.boundaries, segments.longest
        context = cast(Tensor, varlen_attn(query, key, value, bounds, bounds, longest, longest, scale=scale))
    else:
        rows = (states.reshape(num_tokens * num_heads, width) for states in (query, key, value))
        with torch.autocast(query.device.type, enabled=False):
            context = _GroupedAttention.apply(*rows, segments, scale, p).view(num_tokens, num_heads, width)
    if drophead > 0.0 and module.training:
        scales_SH = head_scales(segments.num_sentences, num_heads, drophead, device=context.device).to(context.dtype)
        scales_TH = scales_SH.repeat_interleave(segments.boundaries.diff(), dim=0, output_size=num_tokens)
        context = context * scales_TH[:, :, None]
    return context[None], None


def register_flat_attention() -> None:
    """Make `FLAT_ATTENTION` known to transformers; without a mask function of that name, models pass no mask."""
    AttentionInterface.register(FLAT_ATTENTION, flat_attention)
