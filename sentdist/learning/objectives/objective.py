"""What an objective is: a scalar to minimize, from the embeddings of a batch."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sentdist.errors import DataError, RecipeError
from sentdist.learning.batch import Batch
from sentdist.learning.gather import gather_rows


class Objective(Protocol):
    """A method's loss as the training loop calls it: nats, mean over this rank's B anchors against the candidates of all ranks.

    One that works on the sentences themselves says `reads_embeddings = False`, and is not given their embeddings.
    """

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`, column by column."""
        ...


def cosine_logits(anchors_BD: Tensor, candidates_MD: Tensor, *, temperature: float) -> Tensor:
    """cos(anchor, candidate) / temperature, (B, M), or (N, B, M) for (N, M, D) candidates.

    Computed in float32 at least, whatever the embeddings' type: in bfloat16 a logit of 20 is known to ±0.06. The gradient goes through the
    normalisation (`∂cos(a,b)/∂a = (b/‖b‖ − cos(a,b)·a/‖a‖)/‖a‖`).
    """
    anchors_BD, candidates_MD = _at_least_float32(anchors_BD), _at_least_float32(candidates_MD)
    return F.normalize(anchors_BD, dim=-1) @ F.normalize(candidates_MD, dim=-1).transpose(-1, -2) / temperature


def own_candidates(anchors_BD: Tensor, *, first_row: int) -> Tensor:
    """(B,) column of each anchor's own positive: anchor b is row `first_row + b` of the global batch."""
    return torch.arange(first_row, first_row + anchors_BD.shape[0], device=anchors_BD.device)


def anchors_and_candidates(embeddings: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """This rank's anchors (B, D) and all ranks' candidates ((C−1)·M, D): first the M positives, then the M hard negatives where there are some.

    embeddings: (C·B, D), column by column. One gather for all columns.
    """
    columns_CBD = split_columns(embeddings, batch)
    anchors_BD, others_BCD = columns_CBD[0], columns_CBD[1:].transpose(0, 1)
    candidates_MCD = gather_rows(others_BCD)
    if candidates_MCD.shape[0] != batch.sentence_ids.shape[1]:
        raise DataError(
            where="batch",
            found=f"{candidates_MCD.shape[0]} rows gathered from all ranks",
            expected=f"the {batch.sentence_ids.shape[1]} rows of the global batch",
            remedy="Give every rank an equal share of the batch (gather.local_rows).",
        )
    return anchors_BD, candidates_MCD.transpose(0, 1).flatten(0, 1)


def split_columns(embeddings: Tensor, batch: Batch) -> Tensor:
    """(C, B, D) from (C·B, D)."""
    if batch.num_columns < 2 or embeddings.shape[0] != batch.num_columns * batch.num_rows:
        raise DataError(
            where="batch",
            found=f"{embeddings.shape[0]} embeddings in {batch.num_columns} columns",
            expected="at least an anchor and a positive for every row",
            remedy="Build the corpus with columns anchor, positive and, if wanted, negative.",
        )
    return embeddings.unflatten(0, (batch.num_columns, batch.num_rows))


def check_temperature(value: float, *, where: str) -> None:
    """RecipeError unless `value` is finite and above zero."""
    if not (math.isfinite(value) and value > 0):
        raise RecipeError(
            where=where,
            found=repr(value),
            expected="a finite number above 0",
            remedy="It divides the cosines: 1 as the RCL paper prints its equations, 0.05 as most encoders were trained.",
        )


def check_finite(value: float, *, where: str, remedy: str) -> None:
    """RecipeError unless `value` is finite."""
    if not math.isfinite(value):
        raise RecipeError(where=where, found=repr(value), expected="a finite number", remedy=remedy)


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
