"""The parameters that an objective has learned, beside the encoder in its folder: a training that goes on from there may take them over."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sentdist.errors import EncoderError
from sentdist.reading import drop_remedy, reading

HEADS_FILE = "heads.safetensors"


def save_heads(folder: Path, weights: dict[str, Tensor], *, objective: str) -> None:
    """Write an objective's parameters into an encoder's folder, where there are any. objective: its name."""
    if weights:
        tensors = {name: tensor.contiguous() for name, tensor in weights.items()}
        save_file(tensors, folder / HEADS_FILE, metadata={"objective": objective})


def load_heads(module: nn.Module, folder: Path, *, where: str) -> None:
    """Take over the parameters that lie beside an encoder.

    Raises:
        EncoderError: there are none, or of other shapes.
    """
    path = folder / HEADS_FILE
    weights = read_heads(path) if path.exists() else {}
    if _shapes(weights) != _shapes(module.state_dict()):
        raise EncoderError(
            where=where,
            found=f"heads of shapes {_shapes(weights)}" if weights else "a checkpoint without heads",
            expected="the head of an earlier stage with the same objective and features",
            remedy="Leave keep_head out, then training starts with a new head.",
        )
    module.load_state_dict(weights)


def read_heads(path: Path) -> dict[str, Tensor]:
    """The parameters of a file that `save_heads` wrote. EncoderError where it is damaged."""
    with reading(path, expected="the heads of an encoder", kind=EncoderError, remedy=drop_remedy(path.parent)):
        return load_file(path)


def part_of(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, under the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def _shapes(weights: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}
