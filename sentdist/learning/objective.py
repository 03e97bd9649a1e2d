"""What an objective is: a scalar to minimize, from the embeddings of a batch, and the state that goes with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.batch import Batch
from sentdist.learning.gather import gather_rows
from sentdist.learning.relation_file import Relations


@dataclass(frozen=True, kw_only=True)
class OwnRate:
    """Parameters with a learning rate or a weight decay of their own; None: those of the encoder."""

    parameters: tuple[nn.Parameter, ...]
    learning_rate: float | None = None
    weight_decay: float | None = None


class Objective:
    """A method's loss as the training loop calls it, with whatever state the method has: nats, mean over this rank's B anchors.

    A method overrides the hooks that it needs; as they stand here they do nothing. What it learns beside the encoder are parameters of an
    `nn.Module`: then the engine moves them, and checkpoints have them.

    reads_embeddings: False for one that works on the sentences themselves; it is not given their embeddings.
    keeps_heads: whether training goes on with the parameters that the objective of the start has learned (see `start_from`).
    adds_to_embeddings: whether what it saves beside the encoder is added to embeddings, which must then keep their length.
    """

    reads_embeddings: bool = True
    keeps_heads: bool = False
    adds_to_embeddings: bool = False

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`, column by column, against the candidates of all ranks."""
        raise NotImplementedError

    def own_rates(self) -> Iterator[OwnRate]:
        """The parameters that do not move at the encoder's rate."""
        yield from ()

    def start_from(self, folder: Path, *, where: str) -> None:
        """Take over what this objective keeps of the encoder in `folder`, which training starts from. where: the training, for errors.

        Raises:
            EncoderError: it is not there, or of another shape.
        """

    def place_on(self, device: torch.device) -> None:
        """Move what the engine does not move; once, before the first step."""

    def after_step(self, embeddings: Tensor, batch: Batch) -> None:
        """What is done once the encoder has taken its step, from the detached (C·B, D) embeddings; collective."""

    def extra_state(self) -> dict[str, Any]:
        """What a checkpoint needs beside parameters and random state, equal on all ranks; empty where there is nothing."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from what `extra_state` gave."""

    def save_into(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Write what scoring reads beside the encoder's own files. weights: this objective's state dict on the host."""

    def relations(self) -> Relations | None:
        """The vectors of relations as they are now, where there are some; collective, for ZeRO may share them out."""
        return None


class FunctionObjective(nn.Module, Objective):
    """An objective from a function of embeddings and batch, and of the parameters that it learns, if any.

    learned: by name, (value to start from, learning rate; None: the encoder's). No weight decay: they are no matrices.
    """

    def __init__(self, function: Callable[..., Tensor], **learned: tuple[float, float | None]) -> None:
        super().__init__()
        self._function = function
        self._rates = {name: rate for name, (_, rate) in learned.items()}
        for name, (start, _) in learned.items():
            # Its own and not a ParameterDict's: ZeRO stage 3 has at hand what belongs to the module that is called.
            self.register_parameter(name, nn.Parameter(torch.tensor([start])))

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`."""
        loss: Tensor = self._function(embeddings, batch, **dict(self.named_parameters()))
        return loss

    def own_rates(self) -> Iterator[OwnRate]:
        for name, rate in self._rates.items():
            yield OwnRate(parameters=(self.get_parameter(name),), learning_rate=rate)


def cosine_logits(anchors_BD: Tensor, candidates_MD: Tensor, *, temperature: float | Tensor) -> Tensor:
    """cos(anchor, candidate) / temperature, (B, M), or (N, B, M) for (N, M, D) candidates.

    Computed in float32 at least, whatever the embeddings' type: in bfloat16 a logit of 20 is known to ±0.06. The gradient goes through the
    normalisation (`∂cos(a,b)/∂a = (b/‖b‖ − cos(a,b)·a/‖a‖)/‖a‖`).
    """
    anchors_BD, candidates_MD = at_least_float32(anchors_BD), at_least_float32(candidates_MD)
    return F.normalize(anchors_BD, dim=-1) @ F.normalize(candidates_MD, dim=-1).transpose(-1, -2) / temperature


def own_candidates(anchors_BD: Tensor, *, first_row: int) -> Tensor:
    """(B,) column of each anchor's own positive: anchor b is row `first_row + b` of the global batch."""
    return torch.arange(first_row, first_row + anchors_BD.shape[0], device=anchors_BD.device)


def anchors_and_candidates(embeddings: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """This rank's anchors (B, D) and all ranks' candidates ((C−1)·M, D):
    first the M positives, then the M hard negatives where there are some.

    embeddings: (C·B, D), column by column. One gather for all columns.
    """
    columns_CBD = split_columns(embeddings, batch)
    anchors_BD, others_BCD = columns_CBD[0], columns_CBD[1:].transpose(0, 1)
    candidates_MCD = gather_rows(others_BCD, of=batch.num_rows_of_all)
    if candidates_MCD.shape[0] != batch.num_rows_of_all:
        raise DataError(
            where="batch",
            found=f"{candidates_MCD.shape[0]} rows gathered from all ranks",
            expected=f"the {batch.num_rows_of_all} rows of the global batch",
            remedy="Give every rank the rows that gather.local_rows names.",
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


def check_finite(value: float, *, where: str, remedy: str) -> None:
    """RecipeError unless `value` is finite."""
    if not math.isfinite(value):
        raise RecipeError(where=where, found=repr(value), expected="a finite number", remedy=remedy)


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32; one in float64 stays as it is."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
