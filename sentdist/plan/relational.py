"""How pairs are scored by the relations of an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import Weight


class RelationWeight(Frozen):
    """How much a relation counts in a relational score."""

    relation: str
    weight: Weight


class WeightGrid(Frozen):
    """Weights that one relation takes in turn while the others keep theirs: the score over them is a curve in the report."""

    relation: str
    weights: Annotated[tuple[Weight, ...], Field(min_length=2)]


Directions = Literal["one", "max_both"]


class RelationalScoring(Frozen):
    """Pairs scored by sum over relations of w · cos(h_i + r, h_j) instead of cos(h_i, h_j) (RSE, arXiv 2212.08802).

    Of retrieval the query is the head: one direction, whatever `directions` says of pairs.
    """

    later_fields: ClassVar[tuple[str, ...]] = ("combine",)

    weights: Annotated[tuple[RelationWeight, ...], Field(min_length=1)]  # in a recipe also a mapping: relation to weight
    normalized: bool = True  # weights divided by their sum, as the released code does
    directions: Directions = "max_both"  # the paper scores one direction, its code takes the greater of both
    curve: WeightGrid | None = None
    # best: each relation that is weighted by itself, the best of them counts for each task, as RSE reports USEB; what is best is seen on
    # the very data that are scored.
    combine: Literal["sum", "best"] = "sum"

    @field_validator("weights", mode="before", json_schema_input_type=tuple[RelationWeight, ...] | dict[str, Weight])
    @classmethod
    def _one_spelling(cls, value: object) -> object:
        """A mapping as pairs, in the order of names: equal weights have equal keys."""
        if isinstance(value, dict):
            return tuple({"relation": relation, "weight": value[relation]} for relation in sorted(value, key=str))
        return value

    @model_validator(mode="after")
    def _weights_count(self) -> RelationalScoring:
        names = [weight.relation for weight in self.weights]
        if len(set(names)) != len(names):
            raise ValueError(f"weights: found {', '.join(names)}; expected each relation once")
        if not any(weight.weight for weight in self.weights):
            raise ValueError("weights: found no weight above 0; expected at least one, such as entailment: 1.0")
        if self.combine == "best" and any(weight.weight != 1.0 for weight in self.weights):
            raise ValueError("weights: found weights other than 1 beside combine best, which takes each relation alone; expected 1 of each")
        if self.combine == "best" and (self.curve is not None or len(names) < 2):
            raise ValueError("combine: best has no effect on one relation, and no curve; expected two relations or more, and no curve")
        return self

    @property
    def by_name(self) -> dict[str, float]:
        return {weight.relation: weight.weight for weight in self.weights}

    @property
    def alone(self) -> Iterator[RelationalScoring]:
        """Each relation by itself."""
        for weight in self.weights:
            yield RelationalScoring(weights=(weight,), normalized=self.normalized, directions=self.directions)

    @property
    def relations(self) -> Iterator[str]:
        """All relations that are named."""
        yield from self.by_name
        if self.curve is not None:
            yield self.curve.relation
