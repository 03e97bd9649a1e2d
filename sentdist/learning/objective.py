"""Objectives as the training loop calls them: base class, functions, sums, projections; shared logits and cross-entropies; saved heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from sentdist.errors import DataError, EncoderError, RecipeError
from sentdist.files import drop_remedy, reading
from sentdist.learning.encoder.pooling import PoolingHead
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.gather import gather_rows
from sentdist.learning.relation_file import Relations
from sentdist.learning.targets import WordShares


@dataclass(frozen=True, kw_only=True)
class OwnRate:
    """Parameters with their own learning rate or weight decay; None: the encoder's."""

    parameters: tuple[nn.Parameter, ...]
    learning_rate: float | None = None
    weight_decay: float | None = None


class Objective:
    """A method's loss with its state, as the training loop calls it: nats, mean over this rank's B anchors.

    A method overrides the hooks it needs; the defaults do nothing. What it learns besides the encoder are parameters of an
    `nn.Module`, which the engine updates and checkpoints contain.
    """

    reads_embeddings: bool = True  # False: it uses the sentences only and gets no embeddings of them
    keeps_heads: bool = False  # start with the parameters that the start's objective has learned (see `start_from`)
    adds_to_embeddings: bool = False  # what it saves is added to embeddings, which must then keep their length

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Return a scalar from the (C·B, D) embeddings of `batch.tokens`, column by column, against the candidates of all ranks."""
        raise NotImplementedError

    def own_rates(self) -> Iterator[OwnRate]:
        """Yield the parameters with another rate than the encoder's."""
        yield from ()

    def start_from(self, folder: Path, *, where: str) -> None:
        """Load what this objective keeps of the encoder in `folder`, which training starts from; EncoderError at `where` if it does not
        fit.
        """

    def place_on(self, device: torch.device) -> None:
        """Move what the engine does not move; called once, before the first step."""

    def after_step(self, embeddings: Tensor, batch: Batch) -> None:
        """Run after the encoder's step, with the detached (C·B, D) embeddings; collective."""

    def extra_state(self) -> dict[str, Any]:
        """Return what a checkpoint needs besides parameters and random state, equal on all ranks."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the state of `extra_state`."""

    def save_into(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Write the files that scoring reads beside the encoder's. weights: this objective's state dict on the host."""

    def relations(self) -> Relations | None:
        """Return the current relation vectors, if any; collective, since ZeRO may shard them."""
        return None


class FunctionObjective(nn.Module, Objective):
    """An objective from a function of embeddings, batch and learned parameters, if any.

    learned: name -> (initial value, learning rate; None: the encoder's). No weight decay: they are no matrices.
    """

    def __init__(self, function: Callable[..., Tensor], **learned: tuple[float, float | None]) -> None:
        super().__init__()
        self._function = function
        self._rates = {name: rate for name, (_, rate) in learned.items()}
        for name, (start, _) in learned.items():
            # Not in a ParameterDict: ZeRO stage 3 gathers the parameters of the module that is called.
            self.register_parameter(name, nn.Parameter(torch.tensor([start])))

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        loss: Tensor = self._function(embeddings, batch, **dict(self.named_parameters()))
        return loss

    def own_rates(self) -> Iterator[OwnRate]:
        for name, rate in self._rates.items():
            yield OwnRate(parameters=(self.get_parameter(name),), learning_rate=rate)


def cosine_logits(anchors_BD: Tensor, candidates_MD: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return cos(anchor, candidate) / temperature, (B, M), or (N, B, M) for (N, M, D) candidates.

    Computed in float32 at least: in bfloat16 a logit of 20 is known to ±0.06. The gradient goes through the
    normalisation (`∂cos(a,b)/∂a = (b/‖b‖ − cos(a,b)·a/‖a‖)/‖a‖`).
    """
    anchors_BD, candidates_MD = at_least_float32(anchors_BD), at_least_float32(candidates_MD)
    return F.normalize(anchors_BD, dim=-1) @ F.normalize(candidates_MD, dim=-1).transpose(-1, -2) / temperature


def own_candidates(anchors_BD: Tensor, *, first_row: int) -> Tensor:
    """Return the (B,) column of each anchor's own positive: anchor b is row `first_row + b` of the global batch."""
    return torch.arange(first_row, first_row + anchors_BD.shape[0], device=anchors_BD.device)


def anchors_and_candidates(embeddings: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return this rank's anchors (B, D) and all ranks' candidates ((C−1)·M, D): the M positives, then the M hard negatives, if any.

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
            remedy="Give every rank its rows of gather.local_rows.",
        )
    return anchors_BD, candidates_MCD.transpose(0, 1).flatten(0, 1)


def split_columns(embeddings: Tensor, batch: Batch) -> Tensor:
    """Return (C, B, D) from (C·B, D)."""
    if batch.num_columns < 2 or embeddings.shape[0] != batch.num_columns * batch.num_rows:
        raise DataError(
            where="batch",
            found=f"{embeddings.shape[0]} embeddings in {batch.num_columns} columns",
            expected="at least an anchor and a positive for every row",
            remedy="Build the corpus with columns anchor, positive and, optionally, negative.",
        )
    return embeddings.unflatten(0, (batch.num_columns, batch.num_rows))


def check_finite(value: float, *, where: str, remedy: str) -> None:
    """Raise RecipeError unless `value` is finite."""
    if not math.isfinite(value):
        raise RecipeError(where=where, found=repr(value), expected="a finite number", remedy=remedy)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return the tensor in float32, or unchanged if it is float64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


HEADS_FILE = "heads.safetensors"


def save_heads(folder: Path, weights: dict[str, Tensor], *, objective: str) -> None:
    """Write an objective's parameters, if any, into an encoder's folder. objective: its name."""
    if weights:
        tensors = {name: tensor.contiguous() for name, tensor in weights.items()}
        save_file(tensors, folder / HEADS_FILE, metadata={"objective": objective})


def load_heads(module: nn.Module, folder: Path, *, where: str) -> None:
    """Load the parameters beside an encoder; EncoderError if there are none or their shapes differ."""
    path = folder / HEADS_FILE
    weights = read_heads(path) if path.exists() else {}
    if _shapes(weights) != _shapes(module.state_dict()):
        raise EncoderError(
            where=where,
            found=f"heads of shapes {_shapes(weights)}" if weights else "a checkpoint without heads",
            expected="the head of an earlier stage with the same objective and features",
            remedy="Leave keep_head out: training then starts with a new head.",
        )
    module.load_state_dict(weights)


def read_heads(path: Path) -> dict[str, Tensor]:
    """Read a file of `save_heads`; EncoderError if it is damaged."""
    with reading(path, expected="the heads of an encoder", kind=EncoderError, remedy=drop_remedy(path.parent)):
        return load_file(path)


def part_of(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def _shapes(weights: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


class WeightedSum(nn.Module, Objective):
    """Σ_t w_t · L_t: methods combined, which no paper has. Units and reduction are those of the terms.

    terms: (weight, objective) in the order of the recipe; those with parameters are submodules, named by their place.
    """

    def __init__(self, terms: Sequence[tuple[float, Objective]]) -> None:
        super().__init__()
        for number, (weight, _) in enumerate(terms):
            check_finite(weight, where=f"sum.terms[{number}].weight", remedy="1 leaves the term unscaled.")
        self._weights = tuple(weight for weight, _ in terms)
        self._objectives = tuple(objective for _, objective in terms)
        modules = {str(number): objective for number, (_, objective) in enumerate(terms) if isinstance(objective, nn.Module)}
        self.terms = nn.ModuleDict(modules)
        self.reads_embeddings = any(objective.reads_embeddings for objective in self._objectives)
        self.keeps_heads = any(objective.keeps_heads for objective in self._objectives)
        self.adds_to_embeddings = any(objective.adds_to_embeddings for objective in self._objectives)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        losses = [weight * objective(embeddings, batch) for weight, objective in zip(self._weights, self._objectives, strict=True)]
        return torch.stack(losses).sum()

    def own_rates(self) -> Iterator[OwnRate]:
        for objective in self._objectives:
            yield from objective.own_rates()

    def start_from(self, folder: Path, *, where: str) -> None:
        """Load all heads if one term keeps its head."""
        if self.keeps_heads:
            load_heads(self, folder, where=f"{where}: keep_head")
        for objective in self._objectives:
            if not objective.keeps_heads:
                objective.start_from(folder, where=where)

    def place_on(self, device: torch.device) -> None:
        for objective in self._objectives:
            objective.place_on(device)

    def after_step(self, embeddings: Tensor, batch: Batch) -> None:
        for objective in self._objectives:
            objective.after_step(embeddings, batch)

    def extra_state(self) -> dict[str, Any]:
        states = {str(number): objective.extra_state() for number, objective in enumerate(self._objectives)}
        return {number: state for number, state in states.items() if state}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        for number, part in state.items():
            self._objectives[int(number)].load_extra_state(part)

    def save_into(self, folder: Path, weights: dict[str, Tensor]) -> None:
        for number, objective in enumerate(self._objectives):
            objective.save_into(folder, part_of(weights, f"terms.{number}."))

    def relations(self) -> Relations | None:
        return next((found for objective in self._objectives if (found := objective.relations()) is not None), None)


class Projected(WeightedSum):
    """L(tanh(W h + b)): the objective L sees a projection of the embeddings h, while other terms and the evaluation see h itself.

    Alone, with pooling cls, this is pooling cls_mlp_train_only: the layer is trained and dropped at test (Gao et al. 2021, arXiv
    2104.08821, unsupervised SimCSE). It is part of the objective so that auxiliary tasks can read what is evaluated.
    """

    def __init__(self, objective: Objective, *, width: int, initializer_range: float = 0.02) -> None:
        super().__init__([(1.0, objective)])
        self.head = PoolingHead(width, initializer_range=initializer_range)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        return super().forward(self.head(embeddings), batch)


def cross_entropy_of_tags(logits_SV: Tensor, shares_SV: Tensor) -> Tensor:
    """CE(t, ŷ) = −Σ_c t_c log ŷ_c with ŷ the softmax of logits (S, V) and t soft labels (S, V): nats, mean over S.

    A row whose shares are all 0 counts 0 in the mean. Source: John et al. 2019 (ACL P19-1041), without the label smoothing of their code.
    """
    log_total_S = logits_SV.logsumexp(dim=-1)
    return (shares_SV.sum(dim=-1) * log_total_S - (shares_SV * logits_SV).sum(dim=-1)).mean()


def cross_entropy_of_words(logits_SV: Tensor, words: WordShares) -> Tensor:
    """Like `cross_entropy_of_tags` for sparse labels, without a second (S, V) tensor. A sentence without a word counts 0 in the mean."""
    log_total_S = logits_SV.logsumexp(dim=-1)
    reached_S = words.summed(words.shares * logits_SV[words.rows, words.words])
    return (words.mass * log_total_S - reached_S).mean()


def entropy(logits_SV: Tensor, counted_S: Tensor) -> Tensor:
    """H(ŷ) = −Σ ŷ log ŷ of the softmax of logits (S, V): nats, mean over S, in [0, ln V]; rows not in `counted_S` (bool) count 0."""
    log_shares_SV = logits_SV.log_softmax(dim=-1)
    return (-(log_shares_SV.exp() * log_shares_SV).sum(dim=-1) * counted_S).mean()
