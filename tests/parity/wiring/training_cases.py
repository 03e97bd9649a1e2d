"""Every value that changes a loss or a step: the field, and two recipes that differ in it alone."""

from __future__ import annotations

from sentdist.plan.stage import Json
from tests.parity.wiring.declared import Case, O, cases_of
from tests.parity.wiring.product import STILL

TAGGER: Json = {"tagger": "tests.support.tiny_tagger:tag", "num_words": 12}
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
    *cases_of("cosent", {"temperature": (0.05, 0.3)}, family="graded", cls="CoSENT"),
    *cases_of("angle", {"temperature": (0.05, 0.3)}, family="graded", cls="AnglE"),
    *cases_of("triplet", {"margin": (1.0, 3.0), "distance": ("euclidean", "manhattan")}, cls="TripletMargin"),
    *cases_of("symmetric_info_nce", {"temperature": (0.05, 0.3), "hard_negatives": (True, False)}, cls="SymmetricInfoNCE"),
    Case(
        fields=("SymmetricInfoNCE.learn_temperature",),
        base={O: {"name": "symmetric_info_nce"}},
        change={f"{O}.learn_temperature": True, f"{O}.temperature_learning_rate": 0.3},
    ),
    *cases_of("info_nce", {"temperature": (0.05, 0.3), "hard_negatives": (True, False)}, cls="InfoNCE"),
    *cases_of(
        "entropy", {"phi": (0.3, -0.3), "temperature": (0.05, 0.3), "hard_negatives": (True, False)}, cls="Entropy", base={f"{O}.phi": 0.3}
    ),
    *cases_of(
        "rcl",
        {"temperature": (0.05, 0.3), "hard_negatives": (True, False), "regulator_temperature": (0.5, 0.1), "regulator_weight": (1.0, 0.25)},
        cls="RCL",
        base=BANK | {f"{O}.temperature": 0.05},
    ),
    *cases_of(
        "rse",
        {"temperature": (0.05, 0.3), "hard_negatives": (True, False), "relation_learning_rate": (1e-2, 0.5), "phi": (0.0, 0.4)},
        family="relations",
        cls="RSE",
    ),
    *cases_of("supmpn", {"temperature": (0.05, 0.3), "phi": (0.0, 0.4)}, family="groups", cls="SupMPN"),
    *cases_of("supmpn", {"masked": ("excluded", "zero")}, family="groups", cls="SupMPN", base={f"{O}.temperature": 1.0}),
    Case(fields=("Regression.loss",), family="graded", base={O: SMOOTH}, change={O: RELU}),
    Case(fields=("Regression.loss",), family="graded", base={O: {"name": "regression", "loss": "l1"}}, change={f"{O}.loss": "mse"}),
    Case(fields=("Regression.loss",), family="nli", base={O: {"name": "regression", "loss": "cross_entropy"}}, change={f"{O}.loss": "l1"}),
    *(
        Case(fields=(f"Regression.{name}",), family="graded", base={O: start}, change={f"{O}.{name}": then})
        for name, then in (
            ("slope", 3.0),
            ("threshold", 0.45),
            ("features", "uv"),
            ("head_learning_rate", 0.05),
        )
        for start in (SMOOTH,)
    ),
    *(
        Case(fields=("Regression.boundary",), family="nli", base={O: RELU | {"boundary": "none"}}, change={f"{O}.boundary": then})
        for then in ("clamp", "one_sided")
    ),
    *(
        Case(
            fields=(f"Auxiliary.{name}",),
            base={
                **_sum({"objective": {"name": "info_nce", "temperature": 0.05}}, {"objective": {"name": "auxiliary", **start}}),
                "targets": TAGGER,
            },
            change=_sum(
                {"objective": {"name": "info_nce", "temperature": 0.05}}, {"objective": {"name": "auxiliary", **start, name: then}}
            ),
        )
        for name, then, start in (
            ("channels", [12, 20], {}),
            ("pos_weight", 4.0, {}),
            ("bow_weight", 9.0, {}),
            ("classifier_learning_rate", 0.2, {}),
            ("adversary", "none", {}),
            ("adversary", "reversal", {"pos_adversary": 3.0, "bow_adversary": 5.0}),
            ("pos_adversary", 4.0, {}),
            ("bow_adversary", 6.0, {}),
            ("adversary_learning_rate", 0.3, {"pos_adversary": 4.0, "bow_adversary": 6.0}),
            ("warmup_steps", 3, {"pos_adversary": 4.0, "bow_adversary": 6.0}),
        )
    ),
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
        base=_sum({"objective": {"name": "info_nce", "temperature": 0.05}}, {"weight": 0.5, "objective": {"name": "regulators"}}) | BANK,
        change=_sum(
            {"objective": {"name": "info_nce", "temperature": 0.05}},
            {"weight": 0.5, "objective": {"name": "regulators", "temperature": 0.1}},
        ),
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
