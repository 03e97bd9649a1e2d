"""Classifiers, adversaries and loss of the auxiliary tasks (John et al. 2019, ACL P19-1041)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.gather import by_share
from sentdist.learning.gradient_buckets import average_gradients
from sentdist.learning.objective import Objective, OwnRate, cross_entropy_of_tags, cross_entropy_of_words, entropy
from sentdist.learning.targets import TargetReader, WordShares, as_tensors
from sentdist.objectives.channels import Channels

WIDEST = 640
LEAK = 0.2  # slope of LeakyReLU below 0: TensorFlow's default, with which John et al. trained


class Adversary(nn.Module):
    """Predict logits (S, V) from a channel: linear, LeakyReLU, dropout, linear; the hidden width is the channel's, at most 640."""

    def __init__(self, width: int, num_classes: int, *, dropout: float = 0.2) -> None:
        super().__init__()
        hidden = min(width, WIDEST)
        self.layers = nn.Sequential(nn.Linear(width, hidden), nn.LeakyReLU(LEAK), nn.Dropout(dropout), nn.Linear(hidden, num_classes))

    def forward(self, channel_SD: Tensor) -> Tensor:
        logits_SV: Tensor = self.layers(channel_SD)
        return logits_SV


class Adversaries:
    """D_P guesses tags from the word channel, D_B guesses words from the tag channel; they have a separate Adam.

    They take one step for each step of the encoder, on the same batch (John et al. 2019, ACL P19-1041; Adam at 1e-3 as in the rest of their
    model). The engine does not own them: no part of the encoder's optimizer, clipping or ZeRO.
    All ranks must construct them with the same random state and call `step` together; gradients are averaged, so parameters stay equal.
    """

    def __init__(self, *, channels: Channels, targets: TargetReader, learning_rate: float = 1e-3, dropout: float = 0.2) -> None:
        self.channels, self._targets = channels, targets
        self.of_tags = Adversary(channels.bow, targets.num_tags, dropout=dropout).eval()
        self.of_words = Adversary(channels.pos, targets.num_words, dropout=dropout).eval()
        self._optimizer = torch.optim.Adam(self.parameters(), lr=learning_rate)
        self.num_steps = 0

    def to(self, device: torch.device | str) -> None:
        """Move to a device, before the first step."""
        self.of_tags.to(device)
        self.of_words.to(device)

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters of both adversaries, in a fixed order."""
        return [*self.of_tags.parameters(), *self.of_words.parameters()]

    def frozen(self, pos_SD: Tensor, bow_SD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of tags and words with dropout off; the gradient reaches the channels, not the adversaries."""
        return _frozen(self.of_tags, bow_SD), _frozen(self.of_words, pos_SD)

    def loss(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Return L_adv = CE(t_P, D_P(h_B)) + CE(t_B, D_B(h_P)) in nats, with its gradient for both, from this rank's detached (C·B, D)."""
        pos_SD, bow_SD = self.channels.split(embeddings)
        tags_SV, words = as_tensors(self._targets.rows(batch.own_sentence_ids), like=embeddings)
        return cross_entropy_of_tags(self.of_tags(bow_SD), tags_SV) + cross_entropy_of_words(self.of_words(pos_SD), words)

    def step(self, embeddings: Tensor, batch: Batch) -> None:
        """Take one step of Adam on L_adv, mean over the embeddings of all ranks, from this rank's detached (C·B, D); collective."""
        self._train(True)
        loss = self.loss(embeddings, batch)
        by_share(loss, batch.num_rows, of=batch.num_rows_of_all).backward()
        average_gradients(self.parameters())
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._train(False)
        self.num_steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Return parameters, optimizer and number of steps, equal on all ranks."""
        return {
            "of_tags": self.of_tags.state_dict(),
            "of_words": self.of_words.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "num_steps": self.num_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of `state_dict`."""
        self.of_tags.load_state_dict(state["of_tags"])
        self.of_words.load_state_dict(state["of_words"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.num_steps = state["num_steps"]

    def _train(self, mode: bool) -> None:
        self.of_tags.train(mode)
        self.of_words.train(mode)


def _frozen(adversary: Adversary, channel_SD: Tensor) -> Tensor:
    constants = {name: parameter.detach() for name, parameter in adversary.named_parameters()}
    logits_SV: Tensor = functional_call(adversary, constants, (channel_SD,))
    return logits_SV


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
    """λ_P, λ_B of the two classifiers, α_P, α_B of the two adversaries."""

    pos: float
    bow: float
    adversary_pos: float
    adversary_bow: float


class AuxiliaryLoss(nn.Module, Objective):
    """The auxiliary objective with its two classifiers and adversaries; see `Auxiliary` for the equation.

    Memory: two (C·B, words) tensors in float32. `learning_rate` is the classifiers'; None: the encoder's.
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
        super().__init__()
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
        if self.adversaries is not None:
            self.adversaries.step(embeddings, batch)

    def extra_state(self) -> dict[str, Any]:
        return {} if self.adversaries is None else self.adversaries.state_dict()

    def load_extra_state(self, state: dict[str, Any]) -> None:
        if self.adversaries is not None:
            self.adversaries.load_state_dict(state)

    def forward(self, embeddings: Tensor, batch: Batch) -> Tensor:
        """Return the scalar loss of the (C·B, D) embeddings of `batch.tokens`."""
        tags_SV, words = as_tensors(self._targets.rows(batch.own_sentence_ids), like=embeddings)
        pos_SD, bow_SD = self.channels.split(embeddings)
        of_tags = self.weights.pos * cross_entropy_of_tags(self.pos(pos_SD), tags_SV)
        of_words = self.weights.bow * cross_entropy_of_words(self.bow(bow_SD), words)
        loss = of_tags + of_words
        return loss if self.adversaries is None else loss - self._evasion(self.adversaries, pos_SD, bow_SD, tags_SV, words)

    def _evasion(self, adversaries: Adversaries, pos_SD: Tensor, bow_SD: Tensor, tags_SV: Tensor, words: WordShares) -> Tensor:
        """Return α_P times the uncertainty of D_P about the tags plus α_B times that of D_B about the words."""
        tag_logits, word_logits = adversaries.frozen(pos_SD, bow_SD)
        if self.form == "entropy":
            unsure_of_tags, unsure_of_words = entropy(tag_logits, tags_SV.sum(dim=-1) > 0), entropy(word_logits, words.mass > 0)
        else:
            unsure_of_tags, unsure_of_words = cross_entropy_of_tags(tag_logits, tags_SV), cross_entropy_of_words(word_logits, words)
        grown = 1.0 if self.warmup_steps == 0 else min(1.0, adversaries.num_steps / self.warmup_steps)
        return grown * (self.weights.adversary_pos * unsure_of_tags + self.weights.adversary_bow * unsure_of_words)
