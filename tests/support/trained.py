"""Whether two trainings ended with the same weights."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context

# fp32 sums in another order (two half batches and a gather instead of one batch), carried through AdamW,
# whose first steps are all of size lr whatever the gradient: 1e-4 is a tenth of one step's size,
# and 300 times what one step of rounding noise makes.
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def assert_same_parameters(stage: Train, one: Context, other: Context, *, but_for: str | None = None) -> None:
    """The weights of a training in two stores are close; those whose names end with `but_for` are not looked at."""
    expected, found = _weights(stage, one), _weights(stage, other)
    assert expected.keys() == found.keys()
    for name, weight in expected.items():
        if but_for is not None and name.endswith(but_for):
            continue
        torch.testing.assert_close(found[name], weight, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


def assert_same_results(plan: Plan, one: Context, other: Context, *, but_for: str | None = None) -> None:
    """The weights of all trainings of a plan in two stores are close, and so are the scores of its first trial on 40 pairs."""
    for stage in plan.stages:
        if isinstance(stage, Train):
            assert_same_parameters(stage, one, other, but_for=but_for)
    expected, found = (context.store.get(plan.trials[0].scores) for context in (one, other))
    assert expected is not None and found is not None
    assert found.record.results["stsb"] == pytest.approx(expected.record.results["stsb"], abs=0.5)  # ranks of 40 pairs


def _weights(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    artifact = context.store.get(stage)
    assert artifact is not None
    return load_file(context.store.folder(artifact) / "model.safetensors")
