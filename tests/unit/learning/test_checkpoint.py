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


def test_a_checkpoint_of_an_older_version_is_read_though_its_stopping_has_a_field_more(tmp_path: Path) -> None:
    progress = Progress(step=12, stopping=EarlyStopping(patience=2).after(3.5))
    write_progress(tmp_path, progress, FACTS)
    written = json.loads((tmp_path / "progress.json").read_text())
    written["progress"]["stopping"]["min_delta"] = 0.0
    (tmp_path / "progress.json").write_text(json.dumps(written))
    assert read_progress(tmp_path) == (progress, FACTS)


@pytest.mark.parametrize("content", [None, "", "{", "[]", json.dumps({"progress": {"step": 3}})])
def test_a_damaged_progress_says_which(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "progress.json").write_text(content)
    with pytest.raises(StoreError, match=r"progress\.json.*older checkpoint"):
        read_progress(tmp_path)


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="another place for checkpoints"):
        write_progress(tmp_path / "file", Progress(step=1), FACTS)


def test_the_random_state_of_a_gpu_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_device = torch.Generator()
    for name, stand_in in (
        ("is_available", lambda: True), ("is_initialized", lambda: True),
        ("get_rng_state", of_device.get_state), ("set_rng_state", of_device.set_state),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    save_rng(tmp_path, rank=0, world_size=1)
    expected = torch.rand(3, generator=of_device)
    load_rng(tmp_path, rank=0, world_size=1)
    assert torch.equal(torch.rand(3, generator=of_device), expected)


def test_random_state_returns_to_its_rank_and_world_only(tmp_path: Path) -> None:
    torch.manual_seed(1)
    save_rng(tmp_path, rank=0, world_size=2)
    expected = torch.rand(3)
    for rank, world_size, is_restored in ((0, 2, True), (0, 4, False), (1, 2, False)):
        torch.manual_seed(2)
        load_rng(tmp_path, rank=rank, world_size=world_size)
        assert torch.equal(torch.rand(3), expected) is is_restored
