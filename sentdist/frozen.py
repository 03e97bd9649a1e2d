"""What every value of a recipe and of a stage is: frozen, strict, keyword-only."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A keyword-only value: unknown fields are refused, numbers become the declared type (`1` is `1.0` in a float field).

    later_fields: those that came after artifacts were made. A key leaves them out while they hold their default, so that these keys stay.
    """

    later_fields: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)
