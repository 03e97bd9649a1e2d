"""In which fields two stages differ, followed into the input stages that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sentdist.plan.stage import Json
from sentdist.store.record import Artifact


@dataclass(frozen=True, kw_only=True)
class FieldDifference:
    """A field in which two stages differ."""

    field: str
    first: Json
    second: Json


def explained(first: Artifact, second: Artifact, known: Iterable[Artifact]) -> list[FieldDifference]:
    """The fields in which two stages differ, followed into the input stages that differ, as far as they are among the `known` ones."""
    stages: dict[Json, Json] = {artifact.key: artifact.record.stage for artifact in known}
    return list(differences(first.record.stage, second.record.stage, lambda key: stages.get(key, {"stage": key})))


def differences(first: Json, second: Json, stage_of: Callable[[Json], Json], where: str = "") -> Iterator[FieldDifference]:
    """Compare two canonical stages. stage_of: the canonical stage of a key."""
    if first == second:
        return
    if isinstance(first, dict) and isinstance(second, dict):
        if "stage" in first and "stage" in second and len(first) == len(second) == 1:
            yield from differences(stage_of(first["stage"]), stage_of(second["stage"]), stage_of, where)
            return
        for name in dict.fromkeys([*first, *second]):
            inner = where if name == "fields" else f"{where}.{name}" if where else name
            yield from differences(first.get(name), second.get(name), stage_of, inner)
        return
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, stage_of, f"{where}[{number}]")
        return
    yield FieldDifference(field=where, first=first, second=second)
