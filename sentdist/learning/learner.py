"""What an engine moves: an encoder together with the parameters that an objective brings."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from sentdist.learning.encoder.batch import TokenBatch
from sentdist.learning.heads import part_of
from sentdist.learning.objective import Objective, OwnRate


class Learner(nn.Module):
    """An encoder, and the heads of its objective where it has any (regression head, relation table, classifiers).

    One module, so that one optimizer moves both, one norm clips both, and ZeRO shares both out. `forward` is the encoder's; the objective
    calls its heads itself, as modules: ZeRO stage 3 has their weights at hand only then.
    freeze_encoder: the encoder takes no gradient, so no graph of it is kept and no optimizer has a state for it. What a head shares with it
    (the word embeddings of masked language modelling) is frozen, too.
    """

    def __init__(self, encoder: nn.Module, objective: Objective, *, freeze_encoder: bool = False) -> None:
        super().__init__()
        if freeze_encoder:
            encoder.requires_grad_(False)
        self.encoder = encoder
        self.heads = objective if isinstance(objective, nn.Module) else None
        self._objective = (objective,)  # in a tuple, so that torch does not count its parameters twice

    def forward(self, tokens: TokenBatch) -> Tensor:
        """(S, D) embeddings."""
        embeddings: Tensor = self.encoder(tokens)
        return embeddings

    def own_rates(self) -> Iterator[OwnRate]:
        """The parameters of the objective that do not move at the encoder's rate."""
        return self._objective[0].own_rates()


def encoder_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The encoder's part of a learner's state dict, under the encoder's own names."""
    return part_of(state, "encoder.")


def head_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The objective's part of a learner's state dict; empty where it has no parameters."""
    return part_of(state, "heads.")
