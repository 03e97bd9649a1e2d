"""What a reference is: the loss of an objective written down a second time, and what a case of its values is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Values = Mapping[str, Any]
Heads = dict[str, Tensor]
O = "methods.m.objective"  # noqa: E741


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What the loss sees of a batch: C columns of B sentences, and what some losses need beside them.

    banks: each entropy encoder's embedding of a sentence.
    """

    columns: tuple[tuple[str, ...], ...]
    num_positives: int = 1
    labels: Tensor | None = None
    top: float = 0.0
    spacing: float = 1.0
    relations: Tensor | None = None
    banks: tuple[Mapping[str, Tensor], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """fields: "Class.field" that this case is of. base, change: values at dotted paths of the family's recipe; change beside base."""

    fields: tuple[str, ...]
    family: str = "triplets"
    base: Values = field(default_factory=dict)
    change: Values

    @property
    def name(self) -> str:
        return self.fields[0]


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What an objective learns. field: the value of its rate; None there is the encoder's rate. decays: whether weight decay takes part."""

    field: str
    decays: bool = True


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An objective as a person reads its page.

    defaults: of all its values. loss: (columns, values, rows, what it learns by name) to a scalar, without a line of the project.
    learns: by the beginning of the names of parameters. cases: what each value changes. given: values that other tests make it with, where
    a recipe must say something or its defaults leave something out.
    """

    objective: str
    defaults: Values
    loss: Callable[[Sequence[Tensor], Values, Rows, Heads], Tensor]
    learns: Mapping[str, Learned] = field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    given: Values = field(default_factory=dict)


def cases_of(
    objective: str, values: Mapping[str, tuple[Any, Any]], *, family: str = "triplets", base: Values | None = None, cls: str
) -> tuple[Case, ...]:
    """A case a field: (value at first, value then)."""
    start: dict[str, Any] = {f"{O}.name": objective, **(base or {})}
    return tuple(
        Case(fields=(f"{cls}.{name}",), family=family, base={**start, f"{O}.{name}": first}, change={f"{O}.{name}": then})
        for name, (first, then) in values.items()
    )
