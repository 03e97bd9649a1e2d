"""The average of encoders: each weight is the mean, and the folder is one that loads."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from sentdist.inference.export import average_encoders


def test_weights_are_means_and_the_rest_is_the_first_ones(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_encoder_dir, other)
    first = load_file(tiny_encoder_dir / "model.safetensors")
    moved = {name: weights + 2.0 if weights.is_floating_point() else weights for name, weights in first.items()}
    save_file(moved, other / "model.safetensors", metadata={"format": "pt"})
    average_encoders([tiny_encoder_dir, other], tmp_path / "mean")
    found = load_file(tmp_path / "mean/model.safetensors")
    assert found.keys() == first.keys()
    for name, weights in first.items():
        expected = weights + 1.0 if weights.is_floating_point() else weights
        torch.testing.assert_close(found[name], expected)
    assert (tmp_path / "mean/config.json").read_text() == (tiny_encoder_dir / "config.json").read_text()
