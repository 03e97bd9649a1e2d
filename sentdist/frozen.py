"""The base class of all values in recipes and stages: frozen, strict, keyword-only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sentdist.errors import LONGEST_VALUE, near, one_line

NAME = r"^[a-z0-9][a-z0-9_-]*$"  # patterns of fields
MOST_LETTERS = 100  # characters of a name; file names may have 255 bytes
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"
ALIKE = 0.83  # similarity of keys that keeps all known keys distinct: precision (0.82) is no misspelt revision
Count = Annotated[int, Field(ge=1)]


class Frozen(BaseModel):
    """A keyword-only value: unknown fields are rejected, numbers become the declared type (`1` is `1.0` in a float field)."""

    # Fields added after artifacts existed; keys omit them while they hold their default, so that old keys stay valid.
    later_fields: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    def follows(self, name: str) -> bool:
        """Return whether a field that is not at its default has the value implied if it is left out."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields_and_true_for_a_number(cls, values: Any) -> Any:
        """Name the nearest field; pydantic would not. It would also accept true as 1: `epochs: yes` would be one epoch."""
        fields = list(cls.model_fields)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if name not in fields:
                closest = near(str(name), fields, alike=ALIKE)
                hint = f'did you mean "{closest}"?' if closest else f"known are {', '.join(fields)}"
                raise ValueError(f"{one_line(str(name), LONGEST_VALUE)}: unknown key; {hint}")
            given = value if isinstance(value, list | tuple) else (value,)
            if name in numeric_fields(cls) and any(isinstance(one, bool) for one in given):
                raise ValueError(f"{name}: found {str(value).lower()}; expected a number")
        return values


@cache
def numeric_fields(value: type[BaseModel]) -> frozenset[str]:
    """Return the names of a model's fields that hold numbers, or lists of them, but no booleans."""
    return frozenset(
        name for name, field in value.model_fields.items() if bool not in (kinds := _kinds(field.annotation)) and kinds & {int, float}
    )


def _kinds(annotation: Any) -> set[type]:
    """The plain types in an annotation."""
    if get_origin(annotation) is Literal:
        return {type(choice) for choice in get_args(annotation)}
    if inner := get_args(getattr(annotation, "__value__", annotation)):
        return set().union(*map(_kinds, inner))
    return {annotation} if isinstance(annotation, type) else set()
