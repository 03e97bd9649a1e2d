"""What a training keeps of itself: checkpoints are whole or absent, early stopping and the terms of a sum go on from their state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.errors import StoreError
from sentdist.learning.checkpoint import DevScore, EngineFacts, Progress, load_rng, read_progress, save_rng, write_progress
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.objective import Objective, WeightedSum
from sentdist.learning.optimization import EarlyStopping

FACTS = EngineFacts(engine="torch", zero_stage=0, world_size=2)


def test_progress_comes_back_whole(tmp_path: Path) -> None:
    progress = Progress(
        step=120,
        epoch=1,
        step_in_epoch=20,
        best_score=81.25,
        best_step=100,
        stopping=EarlyStopping(steps_per_interval=10).after(3.5),
        history=(DevScore(step=50, score=80.0), DevScore(step=100, score=81.25)),
    )
    write_progress(tmp_path, progress, FACTS)
    assert read_progress(tmp_path) == (progress, FACTS)
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"], "nothing is left beside it"


@pytest.mark.parametrize("content", [None, "{", json.dumps({"progress": {"step": 3}})])
def test_a_damaged_progress_says_which(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "progress.json").write_text(content)
    with pytest.raises(StoreError, match=r"progress\.json"):
        read_progress(tmp_path)


def test_random_state_returns_to_its_rank_and_world_only(tmp_path: Path) -> None:
    torch.manual_seed(1)
    save_rng(tmp_path, rank=0, world_size=2)
    expected = torch.rand(3)
    for rank, world_size, is_restored in ((0, 2, True), (0, 4, False), (1, 2, False)):
        torch.manual_seed(2)
        load_rng(tmp_path, rank=rank, world_size=world_size)
        assert torch.equal(torch.rand(3), expected) is is_restored


def steps_until_over(rule: EarlyStopping, losses: list[float]) -> int | None:
    for step, loss in enumerate(losses, start=1):
        rule = rule.after(loss)
        if rule.is_over:
            return step
    return None


@pytest.mark.parametrize(
    ("losses", "stop"),
    [
        ([5, 1, 4, 1, 3, 1, 2, 1], None),  # means fall though steps jump
        ([2, 4, 9, 9, 9, 9, 1, 1], None),  # one good interval in time
        ([2, 4, 9, 9, 9, 9, 3, 3.1], 8),  # three intervals at or above the lowest mean of 3
        ([2, 4, 9, 9, 9, 9, 3], None),  # the third interval is not complete
    ],
)
def test_patience_on_interval_means(losses: list[float], stop: int | None) -> None:
    assert steps_until_over(EarlyStopping(patience=3, steps_per_interval=2), losses) == stop


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


@pytest.mark.parametrize("counts", [(3, 5), (0, 5)])
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
