"""A person's own file, as a recipe says it: where it lies, what it holds, which of its rows are held out."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sentdist.frozen import Frozen
from sentdist.plan.specs import Shape

Share = Annotated[float, Field(gt=0.0, lt=0.5)]


def _as_name(value: object) -> object:
    """1 is "1": columns of a file without a header are called by their numbers, and YAML reads these as numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _known_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise PydanticCustomError(  # its message is what was expected
            "unknown_encoding", "an encoding that Python knows, such as utf-8, utf-16, cp1252 or shift-jis"
        ) from None
    return name


ColumnName = Annotated[str, BeforeValidator(_as_name, json_schema_input_type=str | int)]


class HeldOutSection(Frozen):
    """Which rows are held out, where the file has no column `split`: whole groups of rows that share texts.

    auto: of fewer than 2,000 rows 15 % for dev and 30 % for test, of more 10 % each. dev 0: none.
    """

    dev: Literal["auto"] | Annotated[float, Field(ge=0.0, lt=0.5)] = "auto"
    test: Literal["auto"] | Share = "auto"
    seed: int = 0
    most: Annotated[int, Field(ge=5)] = 1000  # rows of the file for dev, and for test
    near: Literal["auto"] | Annotated[float, Field(gt=0.0, le=1.0)] | None = "auto"  # auto: 0.8 among at most 50,000 texts, else null


class OwnFileSection(Frozen):
    """A path, or a name below the data root, or a data set of the hub. What is null is recognised."""

    file: Annotated[str, Field(min_length=1)]
    revision: str | None = None  # of a hub data set
    shape: Shape | None = None
    columns: tuple[ColumnName, ...] | None = (
        None  # of the texts: anchor, positive, and any number of negatives; of graded pairs the score as third
    )
    group: ColumnName | None = None  # a column: rows of one value stay on one side
    encoding: Annotated[str, AfterValidator(_known_encoding)] | None = None
    separator: str | None = None
    header: bool | None = None
    held_out: HeldOutSection = HeldOutSection()
