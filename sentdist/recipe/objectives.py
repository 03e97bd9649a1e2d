"""List the objectives that a recipe can name: those of `sentdist.objectives` and their weighted sums."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

import sentdist.objectives
from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import ObjectiveSpec, Weight


def _found() -> Iterator[tuple[str, type[ObjectiveSpec]]]:
    """Yield every objective by its name in a recipe, in the order of files."""
    # The modules of `sentdist.objectives` load no torch; the parameters that some of them learn are in subpackages.
    for file in sorted(one.name for one in pkgutil.iter_modules(sentdist.objectives.__path__, "sentdist.objectives.") if not one.ispkg):
        for value in vars(importlib.import_module(file)).values():
            if isinstance(value, type) and issubclass(value, ObjectiveSpec) and value.__module__ == file and value is not ObjectiveSpec:
                yield value.model_fields["name"].default, value


OBJECTIVES: dict[str, type[ObjectiveSpec]] = dict(_found())


if TYPE_CHECKING:
    Single = ObjectiveSpec
else:
    Single = Annotated[reduce(or_, OBJECTIVES.values()), Field(discriminator="name")]


class Term(Frozen):
    """One term of a sum of objectives."""

    weight: Weight = 1.0
    projected: bool = False  # this term gets tanh(W h + b), other terms and the evaluation get h: SimCSE's layer, dropped at test
    objective: Single


class Sum(Frozen):
    """Weighted sum of objectives over one batch."""

    name: Literal["sum"] = "sum"
    terms: Annotated[tuple[Term, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _terms_differ(self) -> Sum:
        names = [term.objective.name for term in self.terms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"terms: found {', '.join(twice)} twice; expected each objective once, with one weight")
        dropped = [term.objective.name for term in self.terms if term.projected and term.objective.needs.targets]
        if dropped:
            raise ValueError(
                f"terms: found projected: true for {dropped[0]}, whose channels would belong to a layer that is dropped at test; "
                "expected it for other terms only"
            )
        choices = {value_of(term.objective, "hard_negatives") for term in self.terms} - {None}
        if len(choices) > 1:
            raise ValueError("terms: found hard_negatives both true and false; expected one value: all terms get the same sentences")
        return self


if TYPE_CHECKING:
    AnyObjective = ObjectiveSpec | Sum
else:
    AnyObjective = Annotated[reduce(or_, OBJECTIVES.values(), Sum), Field(discriminator="name")]

OBJECTIVE_NAMES = (*OBJECTIVES, "sum")


def has_field(term: Single, name: str) -> bool:
    """Return whether an objective has a field of that name."""
    return name in type(term).model_fields


def value_of(term: Single, name: str) -> Any:
    """Return the value of a field; None if the objective has no such field."""
    return getattr(term, name) if has_field(term, name) else None


def terms_of(objective: AnyObjective) -> Iterator[Single]:
    """Yield the terms of an objective; itself if it is not a sum."""
    if isinstance(objective, Sum):
        yield from (term.objective for term in objective.terms)
    else:
        yield objective


def uses_bank(objective: AnyObjective) -> bool:
    """Return whether the objective reads banks of augmented embeddings."""
    return any(term.needs.bank for term in terms_of(objective))


def uses_targets(objective: AnyObjective) -> bool:
    """Return whether the objective reads shares of tags and words."""
    return any(term.needs.targets for term in terms_of(objective))


def uses_hard_negatives(objective: AnyObjective) -> bool:
    """Return whether the objective reads the hard-negative columns of a corpus."""
    return any(term.reads_negatives for term in terms_of(objective))


def names_where(**needed: object) -> str:
    """Return the names of the objectives with these needs, for a message."""
    return " or ".join(name for name, one in OBJECTIVES.items() if all(getattr(one.needs, need) == value for need, value in needed.items()))


def names_with(field: str) -> str:
    """Return the names of the objectives that have a field, for a message."""
    return " or ".join(name for name, one in OBJECTIVES.items() if field in one.model_fields)


def phi_of(objective: AnyObjective) -> float | None:
    """Return the weight of the entropy term; None if the objective has none."""
    return next((value_of(term, "phi") for term in terms_of(objective) if has_field(term, "phi")), None)


def with_terms(objective: AnyObjective, changed: Callable[[Single], Single]) -> AnyObjective:
    """Return the objective with `changed` applied to each of its terms."""
    if isinstance(objective, Sum):
        terms = tuple(term.model_copy(update={"objective": changed(term.objective)}) for term in objective.terms)
        return objective.model_copy(update={"terms": terms})
    return changed(objective)


def with_phi(term: Single, phi: float) -> Single:
    """Return the objective with another weight of its entropy term, if it has one."""
    return term.model_validate(term.model_dump() | {"phi": phi}) if has_field(term, "phi") else term
