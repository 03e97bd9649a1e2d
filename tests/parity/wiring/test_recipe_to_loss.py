"""Values that change a loss or a step: recipes that differ in one of them alone have the effect that an independent computation says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sentdist.recipe.stage import Json
from tests.parity.wiring.declared import Case, O, cases_of
from tests.parity.wiring.product import STEPS, STILL, Place, opened, recipe_values, rows_of, run, start_of
from tests.parity.wiring.reference import Student
from tests.parity.wiring.reference_training import Run, train

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


BANK: dict[str, Json] = {
    "methods.e": {
        "objective": {"name": "entropy", "phi": 0.5, "temperature": 0.05}, "regularizers": STILL, "reported": False, "training": {"epochs": 1},
    },
    "methods.m.bank": "e",
    "methods.m.bank_dtype": "float32",
    "methods.m.phis": [0.3, 0.6],
}  # fmt: skip


SMOOTH: dict[str, Json] = {"name": "regression", "loss": "smooth_k2", "slope": 2.0, "threshold": 0.25}


RELU: dict[str, Json] = {"name": "regression", "loss": "translated_relu", "slope": 2.0, "threshold": 0.25}


def _sum(*terms: Json) -> dict[str, Json]:
    return {O: {"name": "sum", "terms": list(terms)}}


OBJECTIVE_CASES: list[Case] = [
    *cases_of("info_nce", {"hard_negatives": (True, False)}, cls="InfoNCE", base={f"{O}.temperature": 0.05}),
    *cases_of("entropy", {"phi": (0.3, -0.3)}, cls="Entropy"),
    *cases_of("rcl", {"regulator_weight": (1.0, 0.25)}, cls="RCL", base=BANK | {f"{O}.temperature": 0.05}),
    *cases_of("rse", {"relation_learning_rate": (1e-2, 0.5)}, family="relations", cls="RSE"),
    *cases_of("supmpn", {"masked": ("excluded", "zero")}, family="groups", cls="SupMPN", base={f"{O}.temperature": 1.0}),
    *cases_of("cosent", {"temperature": (0.05, 0.3)}, family="graded", cls="CoSENT"),
    *cases_of("triplet", {"distance": ("euclidean", "manhattan")}, cls="TripletMargin"),
    Case(
        fields=("SymmetricInfoNCE.learn_temperature",),
        base={O: {"name": "symmetric_info_nce"}},
        change={f"{O}.learn_temperature": True, f"{O}.temperature_learning_rate": 0.3},
    ),
    Case(fields=("Regression.loss",), family="graded", base={O: SMOOTH}, change={O: RELU}),
    Case(fields=("Regression.loss",), family="nli", base={O: {"name": "regression", "loss": "cross_entropy"}}, change={f"{O}.loss": "l1"}),
    Case(fields=("Regression.head_learning_rate",), family="graded", base={O: SMOOTH}, change={f"{O}.head_learning_rate": 0.05}),
    Case(fields=("Regression.boundary",), family="nli", base={O: RELU | {"boundary": "none"}}, change={f"{O}.boundary": "one_sided"}),
    Case(
        fields=("Sum.terms", "Term.objective"),
        base=_sum({"objective": {"name": "info_nce", "temperature": 0.05}}, {"objective": {"name": "triplet"}}),
        change=_sum({"objective": {"name": "info_nce", "temperature": 0.05}}, {"objective": {"name": "symmetric_info_nce"}}),
    ),
    Case(
        fields=("Term.weight",),
        base=_sum({"objective": {"name": "info_nce", "temperature": 0.05}}, {"objective": {"name": "triplet"}}),
        change=_sum(
            {"weight": 0.25, "objective": {"name": "info_nce", "temperature": 0.05}}, {"weight": 3.0, "objective": {"name": "triplet"}}
        ),
    ),
    Case(
        fields=("Term.projected",),
        base=_sum({"objective": {"name": "info_nce", "temperature": 0.05}}, {"objective": {"name": "triplet"}}),
        change=_sum({"objective": {"name": "info_nce", "temperature": 0.05}, "projected": True}, {"objective": {"name": "triplet"}}),
    ),
    Case(
        fields=("Regulators.temperature",),
        family="groups",
        base=_sum({"objective": {"name": "supmpn"}}, {"objective": {"name": "regulators"}})
        | BANK
        | {"methods.e": {"objective": {"name": "supmpn", "phi": 0.5}, "regularizers": STILL, "reported": False}},
        change=_sum({"objective": {"name": "supmpn"}}, {"objective": {"name": "regulators", "temperature": 0.1}}),
    ),
]


STEP_CASES: list[Case] = [
    *(
        Case(fields=(f"Training.{name}", *more), base={f"{O}.temperature": 0.05, **start}, change={f"training.{name}": then})
        for name, then, start, more in (
            ("learning_rate", 1e-3, {}, ()),
            ("schedule", "constant", {}, ()),
            ("warmup_fraction", 0.4, {}, ()),  # of three steps, and there is no step of 0.2
            ("schedule_stretch", 2.5, {"training.warmup_fraction": 0.3}, ()),  # the warm-up is a part of the whole schedule
            ("weight_decay", 20.0, {}, ()),
            ("clip_norm", 1e-8, {}, ()),
            ("layer_decay", 0.05, {"training.learning_rate": 1e-2}, ()),
            ("max_length", 5, {}, ()),
            ("epochs", 2, {}, ()),
        )
    ),
    *(
        Case(fields=("Training.freeze_encoder",), family=family, base=base, change={"training.freeze_encoder": True})
        for family, base in (
            ("nli", {O: {"name": "regression", "loss": "cross_entropy", "head_learning_rate": 0.05}}),
            ("relations", {O: {"name": "rse"}}),
            (
                "triplets",
                _sum(
                    {"objective": {"name": "info_nce", "temperature": 0.05}, "projected": True},
                    {"objective": {"name": "triplet"}, "projected": True},
                ),
            ),
        )
    ),
    Case(
        fields=("Method.training", "Recipe.training", "Train.training"),
        base={f"{O}.temperature": 0.05},
        change={"methods.m.training": {"learning_rate": 5e-4, "max_length": 6}},
    ),
    *(
        Case(fields=("EncoderSpec.pooling",), base={f"{O}.temperature": 0.05}, change={"encoder.pooling": pooling})
        for pooling in ("cls_mlp", "first_last")
    ),
    Case(fields=("EncoderSpec.layers",), base={f"{O}.temperature": 0.05}, change={"encoder.layers": 1}),
    Case(fields=("Method.encoder",), base={f"{O}.temperature": 0.05}, change={"methods.m.encoder": {"pooling": "cls", "layers": 1}}),
    Case(fields=("Method.objective", "Train.objective"), base={O: {"name": "info_nce"}}, change={O: {"name": "triplet"}}),
]


@pytest.mark.parametrize("case", [*OBJECTIVE_CASES, *STEP_CASES], ids=lambda case: case.name)
def test_a_value_changes_loss_and_gradient_as_said(case: Case, place: Place) -> None:
    before, after = both(place, case.family, case.base), both(place, case.family, {**case.base, **case.change})
    for ours, theirs in (before, after):
        assert len(ours.losses) in (STEPS, STEPS - 1)
        assert ours.numbers() == pytest.approx(theirs.numbers(), rel=TOLERANCE), case.name
    assert not is_like(before[1], after[1], 10 * TOLERANCE), f"{case.name}: the two recipes of this case cannot be distinguished"
