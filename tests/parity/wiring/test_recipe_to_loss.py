"""From a recipe's value to the loss, the step and the score: every field has the effect that an independent computation says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sentdist.plan.stage import Json
from tests.parity.wiring.product import STEPS, Place, opened, recipe_values, rows_of, run, start_of
from tests.parity.wiring.reference import Student
from tests.parity.wiring.reference_training import Run, train
from tests.parity.wiring.training_cases import OBJECTIVE_CASES, STEP_CASES, Case

pytestmark = pytest.mark.parity
TOLERANCE = 2e-3  # relative, of losses after some steps of AdamW in float32; what a field changes is ten times that at least


def both(place: Place, family: str, changes: Mapping[str, Json]) -> tuple[Run, Run]:
    """By the session, and by the reference."""
    memo = repr((family, sorted(changes.items())))
    if memo not in place.kept:
        made = opened(place, family, changes)
        heads, rows = start_of(made.session), rows_of(made.stage, made.context)
        values = recipe_values(place, family, changes)
        method = values["methods"]["m"]
        encoder = {**values["encoder"], **method.get("encoder", {})}
        student = Student(Path(encoder["checkpoint"]), pooling=encoder.get("pooling", "mean"), layers=encoder.get("layers"))
        training = {**values["training"], **method.get("training", {})}
        place.kept[memo] = run(made.session), train(student, method, training, rows, heads, steps=training["epochs"])
    ours, theirs = place.kept[memo]
    return ours, theirs


def is_like(one: Run, other: Run, tolerance: float) -> bool:
    pairs = list(zip(one.numbers(), other.numbers(), strict=False))
    return len(one.numbers()) == len(other.numbers()) and all(abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-6) for a, b in pairs)


@pytest.mark.parametrize("case", [*OBJECTIVE_CASES, *STEP_CASES], ids=lambda case: case.name)
def test_a_value_changes_loss_and_gradient_as_said(case: Case, place: Place) -> None:
    before, after = both(place, case.family, case.base), both(place, case.family, {**case.base, **case.change})
    for ours, theirs in (before, after):
        assert len(ours.losses) in (STEPS, STEPS - 1)
        assert ours.numbers() == pytest.approx(theirs.numbers(), rel=TOLERANCE), case.name
    assert not is_like(before[1], after[1], 10 * TOLERANCE), f"{case.name}: the two recipes of this case cannot be distinguished"
