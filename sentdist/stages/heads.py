"""The parameters that an objective brings, beside the encoder in its artifact: a training that goes on from there may take them over."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from sentdist.errors import EncoderError
from sentdist.learning.learner import Learner
from sentdist.plan.objectives import Regression, terms_of
from sentdist.plan.stages import Train
from sentdist.reading import drop_remedy, reading
from sentdist.stages.context import Context
from sentdist.stages.inputs import folder_of

HEADS_FILE = "heads.safetensors"


def save_heads(stage: Train, folder: Path, weights: dict[str, Tensor]) -> None:
    """Write the objective's parameters into an encoder's folder, where there are any."""
    if weights:
        save_file(
            {name: tensor.contiguous() for name, tensor in weights.items()},
            folder / HEADS_FILE,
            metadata={"objective": stage.objective.name},
        )


def load_heads(stage: Train, context: Context, learner: Learner) -> None:
    """Take over the heads of the encoder that training starts from, where the objective asks for it.

    Raises:
        EncoderError: that encoder has no heads, or heads of another shape.
    """
    if not any(isinstance(term, Regression) and term.keep_head for term in terms_of(stage.objective)):
        return
    assert learner.heads is not None, "an objective that keeps its head has one"
    path = None if stage.start is None else folder_of(stage.start, context) / HEADS_FILE
    weights = _read(path) if path is not None and path.exists() else {}
    if _shapes(weights) != _shapes(learner.heads.state_dict()):
        raise EncoderError(
            where=f"{stage.label}: keep_head",
            found=f"heads of shapes {_shapes(weights)}" if weights else "a checkpoint without heads",
            expected="the head of an earlier stage with the same objective and features",
            remedy="Leave keep_head out, then training starts with a new head.",
        )
    learner.heads.load_state_dict(weights)


def _read(path: Path) -> dict[str, Tensor]:
    with reading(path, expected="the heads of an encoder", kind=EncoderError, remedy=drop_remedy(path.parent)):
        return load_file(path)


def _shapes(weights: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}
