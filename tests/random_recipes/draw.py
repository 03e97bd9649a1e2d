"""Recipes at random over tiny data. What an objective takes and needs is read from its plan value: a new one takes part by itself."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sentdist.families import POOLINGS
from sentdist.objectives.objective_spec import Needs
from sentdist.recipe.objectives import OBJECTIVES
from sentdist.recipe.specs import Regularizers, Stopping, Training
from sentdist.recipe.stage import Json
from tests.support.graded_data import NLI, write_graded
from tests.support.groups_data import PART, write_inference
from tests.support.mask_tokens import maskable_encoder
from tests.support.relations_data import CAPTION, ENTAILMENT, ITSELF, TWIN, write_relations_data
from tests.support.tiny_data import write_data

Draw = random.Random
Values = dict[str, Json]

FAMILIES = ("bert", "roberta", "distilbert", "albert", "mpnet", "megatron-bert")  # of both ways to run, and one whose layers share weights
NUMBERS = (-0.05, 0.0, 0.01, 0.3, 1.0, 2.0)
COUNTS = (0, 1, 2, 3)
PAIRS: Mapping[type, tuple[Json, ...]] = {int: ([8, 24], [16, 16]), float: ([0.0, 5.0],)}  # channels of a width of 32; ranges of labels
STILL: Values = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
SECTIONS: Mapping[str, tuple[type[BaseModel], Mapping[str, tuple[Json, ...]]]] = {  # of a method, with values that tiny data allow
    "training": (Training, {"batch_size": (4, 6, 8), "learning_rate": (1e-3,), "max_length": (8, 20), "precision": ("fp32", "bf16")}),
    "regularizers": (Regularizers, {}),
    "stopping": (Stopping, {}),
}


def world(folder: Path) -> tuple[Path, list[Path]]:
    """A data root with sources of every kind, and tiny encoders."""
    data = folder / "data"
    write_relations_data(data)
    (data / "nli/small.parquet").rename(data / "nli/related.parquet")  # another source has its name
    for write in (write_graded, write_inference, write_data):
        write(data)
    return data, [maskable_encoder(folder / family, family) for family in FAMILIES]


def _rows(draw: Draw) -> Values:
    columns: Json = draw.choice([["sent0", "sent1", "hard_neg"], ["sent0", "sent1", "hard_neg"], ["sent0", "sent1"], ["sent0"]])
    return {"source": "nli/triplets", "columns": columns, **some(draw, 0.2, add_reversed=[True], limit=[32])}


def _graded(draw: Draw) -> Values:
    if draw.random() < 0.5:
        return {"kind": "graded", "parts": [{"source": "nli/small", **NLI}]}
    parts: list[Json] = [{"source": "sts/scores", "scale": "zero_to_five"}, {"source": "sts/sick", "scale": "one_to_five"}]
    return {"kind": "graded", "parts": parts[: draw.choice([1, 2])], **some(draw, 0.3, without=[["stsb"]], rounding=["none", "half_up"])}


def _groups(draw: Draw) -> Values:
    sizes: Values = {"num_positives": draw.choice([1, 2, 3]), "num_negatives": draw.choice([1, 2])}
    return {"kind": "groups", "parts": [PART], **sizes, **some(draw, 0.2, augmentation=[{"name": "word_deletion"}])}


def _relations(draw: Draw) -> Values:
    related: Values = {**ENTAILMENT, "sources": [{"source": "nli/related"}]}
    chosen: list[Json] = draw.sample([related, TWIN, CAPTION, ITSELF], draw.choice([1, 2, 3, 4]))
    return {"kind": "relations", "relations": chosen, "held_out": 4}


CORPORA: Mapping[str, Callable[[Draw], Values]] = {"rows": _rows, "graded": _graded, "groups": _groups, "relations": _relations}


def draw_recipe(draw: Draw, encoders: Sequence[Path]) -> Values:
    """One or two trained methods, each likely to fit the corpus, with banks, starts and targets where they need them."""
    kind = draw.choice(list(CORPORA))
    methods: dict[str, Values] = {}
    for number in range(draw.choice([1, 1, 2])):
        objective = _objective(draw, kind)
        method: Values = {"objective": objective, "regularizers": STILL}
        if any(OBJECTIVES[name].needs.bank for name in names_of(objective)):
            methods["entropy"] = _entropy_encoders(kind)
            method |= {"bank": "entropy", "phis": draw.choice([[0.01], [0.01, 0.02]])}
        if methods.keys() - {"entropy"} and draw.random() < 0.5:
            method["start"] = f"m{number - 1}"
        method |= {name: _fields(draw, *SECTIONS[name], share=0.15) for name in SECTIONS if draw.random() < 0.3}
        method |= some(draw, 0.15, select=[False], encoder=[{"pooling": name} for name in POOLINGS])
        methods[f"m{number}"] = method
    training = _fields(draw, *SECTIONS["training"], share=0.05)
    values: Values = {
        "name": "random",
        "encoder": {"checkpoint": str(draw.choice([encoders[0], *encoders]))},
        "corpus": CORPORA[kind](draw),
        "training": {"batch_size": 8, "learning_rate": 1e-3, "max_length": 20, "unique_sentences": False, **training},
        "evaluation": {"tasks": ["stsb"]},
        "methods": {"base": {}, **methods},
        **some(draw, 0.7, selection=[{"task": "stsb-dev", "every_fraction": share} for share in (0.3, 0.5, 1.0)]),
    }
    objectives = (method["objective"] for method in methods.values())
    if any(OBJECTIVES[name].needs.targets for objective in objectives for name in names_of(objective)):
        values["targets"] = {"tagger": "tests.support.tiny_tagger:tag", "num_words": 20}
    return values


def draw_runtime(draw: Draw) -> Values:
    """Another way to do the same work in one process."""
    return {"micro_batch": draw.choice([2, 5, 7]), **some(draw, 0.4, recompute_layers=[True])}


def _objective(draw: Draw, kind: str) -> Values:
    """Mostly of those that the rows of a corpus of that kind are for."""
    fitting = [name for name, value in OBJECTIVES.items() if _fits(value.needs, kind)] if draw.random() < 0.95 else list(OBJECTIVES)
    if draw.random() < 0.7:
        return _single(draw, draw.choice(fitting))
    names = draw.sample(fitting, min(len(fitting), draw.choice([2, 2, 3])))
    terms: list[Json] = [{"objective": _single(draw, name), **some(draw, 0.2, weight=[0.5, 2.0], projected=[True])} for name in names]
    return {"name": "sum", "terms": terms}


def _fits(needs: Needs, kind: str) -> bool:
    if kind == "graded":
        return needs.labels != "refused"
    return needs.labels != "needed" and (kind == "relations" or not needs.relations)


def _single(draw: Draw, name: str) -> Values:
    known: Mapping[str, tuple[Json, ...]] = {"loss": ("smooth_k2", "l1", "mse", "cross_entropy")} if name == "regression" else {}
    found: Values = {"name": name, **_fields(draw, OBJECTIVES[name], known, share=0.25)}
    if found.get("loss") == "smooth_k2":
        found |= {"slope": 2.0, "threshold": 0.25}
    return found


def _entropy_encoders(kind: str) -> Values:
    name = {"groups": "supmpn", "relations": "rse"}.get(kind, "entropy")
    return {"objective": {"name": name, "phi": 0.01}, "regularizers": STILL, "select": False, "reported": False}


def names_of(objective: Json) -> list[str]:
    """Of an objective, or of the terms of a sum."""
    assert isinstance(objective, dict)
    terms = objective.get("terms")
    return [str(objective["name"])] if not isinstance(terms, list) else [name for term in terms for name in names_of(term["objective"])]  # type: ignore[call-overload, index]


def some(draw: Draw, share: float, **fields: Sequence[Any]) -> Values:
    """Each field with the probability `share`, and one of its values."""
    return {name: draw.choice(values) for name, values in fields.items() if draw.random() < share}


def _fields(draw: Draw, model: type[BaseModel], known: Mapping[str, tuple[Json, ...]], *, share: float) -> Values:
    """Some fields of a plan value, those without a default among them. known: values of fields that must be chosen with care."""
    found: Values = {}
    for name, field in model.model_fields.items():
        if name != "name" and (field.is_required() or draw.random() < share):
            values = known.get(name) or _values(field.annotation, field.metadata)
            if values:
                found[name] = draw.choice(values)
    return found


def _values(annotation: Any, limits: Iterable[object]) -> tuple[Json, ...]:
    """Values that a field of that type may have; none where nobody said which."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return inner
    if origin in (Union, types.UnionType):
        return tuple(value for one in inner if one is not type(None) for value in _values(one, limits))
    if origin is Annotated:
        further = [limit for one in inner[1:] for limit in (one.metadata if isinstance(one, FieldInfo) else [one])]
        return _values(inner[0], [*limits, *further])
    if origin is tuple and len(inner) == 2:
        return PAIRS.get(inner[0], ())
    if annotation is bool:
        return (True, False)
    numbers: tuple[float, ...] = {int: COUNTS, float: NUMBERS}.get(annotation, ())
    return tuple(number for number in numbers if all(_is_within(number, limit) for limit in limits))


def _is_within(number: float, limit: object) -> bool:
    match limit:
        case Ge(ge=least):
            return bool(number >= least)  # type: ignore[operator]
        case Gt(gt=least):
            return bool(number > least)  # type: ignore[operator]
        case Le(le=most):
            return bool(number <= most)  # type: ignore[operator]
        case Lt(lt=most):
            return bool(number < most)  # type: ignore[operator]
    return True
