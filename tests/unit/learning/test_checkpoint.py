"""Checkpoints: whole or absent, and readable again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sentdist.errors import StoreError
from sentdist.learning.checkpoint import (
    DevScore,
    EngineFacts,
    Progress,
    load_rng,
    read_progress,
    save_rng,
    write_progress,
)
from sentdist.learning.early_stopping import EarlyStopping

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
