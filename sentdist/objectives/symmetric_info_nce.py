"""InfoNCE in both directions, with a fixed or learned temperature (Radford et al. 2021, CLIP)."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from sentdist.objectives.info_nce import INFONCE
from sentdist.objectives.objective_spec import LossInputs, Needs, ObjectiveSpec, Rate, Temperature
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.encoder.tokens import Batch
    from sentdist.learning.objective import Objective

CLIP = Citation(
    key="clip",
    kind="inproceedings",
    authors=(
        "Alec Radford",
        "Jong Wook Kim",
        "Chris Hallacy",
        "Aditya Ramesh",
        "Gabriel Goh",
        "Sandhini Agarwal",
        "Girish Sastry",
        "Amanda Askell",
        "Pamela Mishkin",
        "Jack Clark",
        "Gretchen Krueger",
        "Ilya Sutskever",
    ),
    title="Learning Transferable Visual Models From Natural Language Supervision",
    where="ICML",
    year=2021,
    url="https://arxiv.org/abs/2103.00020",
    role="contrastive loss in both directions with a learned temperature",
)
LOWEST = 0.01  # temperature: CLIP keeps its logits from being multiplied by more than 100


class SymmetricInfoNCE(ObjectiveSpec):
    """InfoNCE from anchors to positives and from positives to anchors; the temperature is fixed, or an initial value that is learned."""

    title: ClassVar[str] = "contrastive cross-entropy in both directions (Radford et al. 2021)"
    about: ClassVar[str] = "InfoNCE in both directions, its temperature fixed or learned: CLIP"
    citations: ClassVar[tuple[Citation, ...]] = (INFONCE, CLIP)
    needs: ClassVar[Needs] = Needs(columns=2, positives=1, labels="refused")

    name: Literal["symmetric_info_nce"] = "symmetric_info_nce"
    temperature: Temperature = 0.05  # cosines are divided by it; the initial value if it is learned
    hard_negatives: bool = True  # further candidates of the anchors, but not of the positives
    learn_temperature: bool = False  # train the temperature, too
    temperature_learning_rate: Rate | None = None  # of ln τ; null: the encoder's

    @model_validator(mode="after")
    def _rates_are_used(self) -> Self:
        if self.temperature_learning_rate is not None and not self.learn_temperature:
            raise ValueError("temperature_learning_rate: has no effect on a fixed temperature; leave it out or set learn_temperature")
        if self.learn_temperature and self.temperature < LOWEST:
            raise ValueError(f"temperature: found {self.temperature:g}; a learned one stays at or above {LOWEST}")
        return self

    @property
    def has_parameters(self) -> bool:
        return self.learn_temperature

    def make_loss(self, inputs: LossInputs) -> Objective:
        from sentdist.learning.objective import FunctionObjective

        learned = {"log_temperature": (math.log(self.temperature), self.temperature_learning_rate)} if self.learn_temperature else {}
        return FunctionObjective(partial(self.loss_of, inputs=inputs), **learned)

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs, *, log_temperature: Tensor | None = None) -> Tensor:
        """Return the mean over this rank's rows, against the candidates of all ranks."""
        from sentdist.learning.gather import gather_rows
        from sentdist.learning.grad_cache import mean_over_blocks
        from sentdist.learning.objective import split_columns

        columns_CBD = split_columns(embeddings, batch)
        columns_CMD = gather_rows(columns_CBD.transpose(0, 1), of=batch.num_rows_of_all).transpose(0, 1)
        temperature = self.temperature if log_temperature is None else log_temperature.exp().clamp(min=LOWEST)

        def of_block(first: int, last: int) -> Tensor:
            return symmetric_info_nce(
                columns_CBD[0, first:last],
                columns_CBD[1, first:last],
                columns_CMD[0],
                columns_CMD[1:].flatten(0, 1),
                first_row=batch.first_row + first,
                temperature=temperature,
            )

        return mean_over_blocks(of_block, num_rows=batch.num_rows, num_columns=columns_CMD[..., 0].numel(), device=embeddings.device)


def symmetric_info_nce(
    anchors_BD: Tensor, positives_BD: Tensor, all_anchors_MD: Tensor, candidates_KD: Tensor, *, first_row: int, temperature: float | Tensor
) -> Tensor:
    """ℓ_i = ½ ( −ln e^{cos(q_i, p_i)/τ} / Σ_k e^{cos(q_i, c_k)/τ}  −  ln e^{cos(q_i, p_i)/τ} / Σ_j e^{cos(q_j, p_i)/τ} )

    Optimizes: each anchor finds its positive among all candidates, and each positive its anchor among all anchors.
    Units and reduction: nats, mean over the B rows and both directions.
    Range: at or above half the sum of both directions' floors (see `info_nce`).
    Source: Radford et al. 2021 (arXiv 2103.00020), Figure 3, which learns ln(1/τ) and has no hard negatives.
    Args:
        temperature: τ, a number, or a one-element tensor if it is learned.
    Shapes:
        Anchors and positives (B, D) of this rank, rows `first_row` … of the global batch; all anchors (M, D);
        candidates c (M, D) of all ranks, or (2M, D): the M positives, then the M hard negatives.
    """
    from sentdist.objectives.info_nce import info_nce

    forth = info_nce(anchors_BD, candidates_KD, first_row=first_row, temperature=temperature)
    back = info_nce(positives_BD, all_anchors_MD, first_row=first_row, temperature=temperature)
    return (forth + back) / 2
