"""What a sum of objectives hands on to its terms: to each its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.objective import Objective, WeightedSum

BATCH = Batch(tokens=collate([[1, 2], [3]]), num_columns=2, first_row=0, sentence_ids=np.array([[0], [1]]))


class Noting(Objective):
    """Has the number of its steps as its state, and notes where it was set to start from."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps
        self.starts: list[str] = []

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        return embeddings.sum()

    def start_from(self, folder: Path, *, where: str) -> None:
        self.starts.append(f"{where}: {folder}")

    def after_step(self, embeddings: Tensor, batch: Batch) -> None:
        self.steps += 1

    def extra_state(self) -> dict[str, Any]:
        return {"steps": self.steps} if self.steps else {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


@pytest.mark.parametrize("counts", [(3, 5), (0, 5), (3, 0)])
def test_each_term_goes_on_from_its_own_state(counts: tuple[int, int]) -> None:
    before, after = (tuple(map(Noting, numbers)) for numbers in (counts, (0, 0)))
    WeightedSum([(1.0, term) for term in after]).load_extra_state(WeightedSum([(1.0, term) for term in before]).extra_state())
    assert tuple(term.steps for term in after) == counts


def test_every_term_hears_of_a_step_and_of_what_training_starts_from(tmp_path: Path) -> None:
    terms = Noting(), Noting()
    together = WeightedSum([(1.0, terms[0]), (0.5, terms[1])])
    together.start_from(tmp_path, where="train")
    assert float(together(torch.ones(2, 4), BATCH)) == 12.0
    together.after_step(torch.ones(2, 4), BATCH)
    assert [(term.steps, term.starts) for term in terms] == [(1, [f"train: {tmp_path}"])] * 2
