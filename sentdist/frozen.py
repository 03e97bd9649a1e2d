"""What every value of a recipe and of a stage is: frozen, strict, keyword-only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

NAME = r"^[a-z0-9][a-z0-9_-]*$"  # patterns of fields
MOST_LETTERS = 100  # of a name: those of files may have 255 bytes
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"
Count = Annotated[int, Field(ge=1)]


class Frozen(BaseModel):
    """A keyword-only value: unknown fields are refused, numbers become the declared type (`1` is `1.0` in a float field).

    later_fields: those that came after artifacts were made. A key leaves them out while they hold their default, so that these keys stay.
    """

    later_fields: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    def follows(self, name: str) -> bool:
        """Whether a field, though it is not at its default, has the value that is meant where nobody mentions it."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _refuse_true_for_a_number(cls, values: Any) -> Any:
        """Pydantic takes true for 1: `epochs: yes` would be one epoch."""
        if isinstance(values, Mapping):
            for name in numeric_fields(cls) & values.keys():
                value = values[name]
                if any(isinstance(one, bool) for one in (value if isinstance(value, list | tuple) else (value,))):
                    raise ValueError(f"{name}: found {str(value).lower()}; expected a number")
        return values


@cache
def numeric_fields(value: type[BaseModel]) -> frozenset[str]:
    """The fields of a value, or of a list of them, that are numbers and can be neither true nor false."""
    return frozenset(
        name for name, field in value.model_fields.items() if bool not in (kinds := _kinds(field.annotation)) and kinds & {int, float}
    )


def _kinds(annotation: Any) -> set[type]:
    """The plain types that an annotation is made of."""
    if get_origin(annotation) is Literal:
        return {type(choice) for choice in get_args(annotation)}
    if inner := get_args(getattr(annotation, "__value__", annotation)):
        return set().union(*map(_kinds, inner))
    return {annotation} if isinstance(annotation, type) else set()
