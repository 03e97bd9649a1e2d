"""The classifiers of the auxiliary tasks, and their objective with them (John et al. 2019, ACL P19-1041)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sentdist.errors import RecipeError
from sentdist.learning.encoder.batch import Batch
from sentdist.learning.objective import Objective, OwnRate, check_finite
from sentdist.learning.soft_labels import cross_entropy_of_tags, cross_entropy_of_words, entropy
from sentdist.learning.targets import TargetReader, WordShares, as_tensors
from sentdist.objectives.channels import Channels
from sentdist.objectives.learned.adversaries import Adversaries


class Classifier(nn.Module):
    """One linear layer from a channel to logits (S, V)."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, num_classes)

    def forward(self, channel_SD: Tensor) -> Tensor:
        logits_SV: Tensor = self.linear(channel_SD)
        return logits_SV


@dataclass(frozen=True, kw_only=True)
class AuxiliaryWeights:
    """λ_P, λ_B of the two classifiers, α_P, α_B of the two adversaries.

    RecipeError unless all are finite and from 0 up.
    """

    pos: float
    bow: float
    adversary_pos: float
    adversary_bow: float

    def __post_init__(self) -> None:
        for name in ("pos", "bow", "adversary_pos", "adversary_bow"):
            value = getattr(self, name)
            where = f"auxiliary.weights.{name}"
            check_finite(value, where=where, remedy="0 leaves the term out.")
            if value < 0:
                raise RecipeError(where=where, found=repr(value), expected="a number from 0 up", remedy="0 leaves the term out.")


class AuxiliaryLoss(nn.Module, Objective):
    """The objective with its two classifiers and its adversaries; the equation stands in objectives/auxiliary.py.

    form, warmup_steps: as there. Memory: two (C·B, words) tensors in float32.
    """

    def __init__(
        self,
        *,
        channels: Channels,
        targets: TargetReader,
        weights: AuxiliaryWeights,
        adversaries: Adversaries | None = None,
        form: str = "entropy",
        warmup_steps: int = 0,
        learning_rate: float | None = None,
    ) -> None:
        """learning_rate: of the classifiers; None: the encoder's. RecipeError for another form or a negative warm-up."""
        super().__init__()
        if form not in ("entropy", "reversal"):
            raise RecipeError(where="auxiliary.adversary", found=repr(form), expected="entropy or reversal", remedy="Choose one of them.")
        if warmup_steps < 0:
            raise RecipeError(where="auxiliary.warmup_steps", found=str(warmup_steps), expected="0 or more", remedy="0 is no warm-up.")
        self.channels, self.form, self.warmup_steps = channels, form, warmup_steps
        self.weights = weights
        self.learning_rate = learning_rate
        self.pos = Classifier(channels.pos, targets.num_tags)
        self.bow = Classifier(channels.bow, targets.num_words)
        self._targets = targets
        self.adversaries = adversaries  # no nn.Module: its parameters are not the encoder's optimizer's

    def own_rates(self) -> Iterator[OwnRate]:
        yield OwnRate(parameters=(*self.pos.parameters(), *self.bow.parameters()), learning_rate=self.learning_rate)

    def place_on(self, device: torch.device) -> None:
        if self.adversaries is not None:
            self.adversaries.to(device)

    def after_step(self, embeddings: Tensor, batch: Batch) -> None:
        """One step of the adversaries."""
        if self.adversaries is not None:
            self.adversaries.step(embeddings, batch)

    def extra_state(self) -> dict[str, Any]:
        return {} if self.adversaries is None else self.adversaries.state_dict()

    def load_extra_state(self, state: dict[str, Any]) -> None:
        if self.adversaries is not None:
            self.adversaries.load_state_dict(state)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Scalar from the (C·B, D) embeddings of `batch.tokens`."""
        tags_SV, words = as_tensors(self._targets.rows(batch.own_sentence_ids), like=embeddings)
        pos_SD, bow_SD = self.channels.split(embeddings)
        of_tags = self.weights.pos * cross_entropy_of_tags(self.pos(pos_SD), tags_SV)
        of_words = self.weights.bow * cross_entropy_of_words(self.bow(bow_SD), words)
        loss = of_tags + of_words
        return loss if self.adversaries is None else loss - self._evasion(self.adversaries, pos_SD, bow_SD, tags_SV, words)

    def _evasion(self, adversaries: Adversaries, pos_SD: Tensor, bow_SD: Tensor, tags_SV: Tensor, words: WordShares) -> Tensor:
        """α_P times how far D_P is from knowing the tags, plus α_B times that of D_B and the words."""
        tag_logits, word_logits = adversaries.frozen(pos_SD, bow_SD)
        if self.form == "entropy":
            unsure_of_tags, unsure_of_words = entropy(tag_logits, tags_SV.sum(dim=-1) > 0), entropy(word_logits, words.mass > 0)
        else:
            unsure_of_tags, unsure_of_words = cross_entropy_of_tags(tag_logits, tags_SV), cross_entropy_of_words(word_logits, words)
        grown = 1.0 if self.warmup_steps == 0 else min(1.0, adversaries.num_steps / self.warmup_steps)
        return grown * (self.weights.adversary_pos * unsure_of_tags + self.weights.adversary_bow * unsure_of_words)
