"""The stages that records were made of, as values again: readers of records ask for fields, not for words in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, cast

from pydantic import TypeAdapter, ValidationError

from sentdist.plan.stage import Json, Processes, Purpose, Stage
from sentdist.plan.stages import STAGES
from sentdist.store.record import Record

MOST_HELD = 20_000

# Key -> the fields of its record, and the stage: a key is a digest of all that a stage is, so one that is whole is the same to everyone.
# To a process it stays known after the record of an input has gone.
_held: dict[str, tuple[Json, Stage]] = {}


class MissingStage(Stage):
    """What stands in a stage for an input whose record is gone or not understood. Only its key is known."""

    kind: ClassVar[str] = "gone"
    revision: ClassVar[int] = 0
    purpose: ClassVar[Purpose] = "aside"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = None


def restored(key: str | None, records: Mapping[str, Record]) -> Stage | None:
    """The stage of a record, with its inputs; None where the record is gone or not understood: a kind, a field or a value that this version
    does not have. Such an input is `MissingStage`. Keys are those of the records, whatever revision these were made with."""
    record = records.get(key) if key is not None else None
    if record is None or record.kind not in STAGES:
        return None
    fields = record.stage.get("fields")
    held = _held.get(record.key)
    if held is not None and held[0] == fields:
        return held[1]
    kind = STAGES[record.kind]
    if not isinstance(fields, dict) or not fields.keys() <= kind.model_fields.keys():
        return None
    try:
        values: dict[str, Any] = {name: _value(kind, name, value, records) for name, value in fields.items()}
    except ValidationError:
        return None
    if any(field.is_required() and name not in values for name, field in kind.model_fields.items()):
        return None
    stage = _keyed(kind.model_construct(**values), record.key)
    parts = [one for value in values.values() for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, Stage)]
    if all(_held.get(one.key, (None, None))[1] is one for one in parts):
        if len(_held) >= MOST_HELD:
            _held.clear()
        _held[record.key] = fields, stage
    return stage


def not_understood(records: Mapping[str, Record]) -> list[str]:
    """Places of the records that are there and give no stage back."""
    return [record.place for key, record in records.items() if restored(key, records) is None]


def _value(kind: type[Stage], name: str, value: Json, records: Mapping[str, Record]) -> object:
    if isinstance(value, dict) and value.keys() == {"stage"}:
        return _input(str(value["stage"]), records)
    if isinstance(value, list) and value and all(isinstance(one, dict) and one.keys() == {"stage"} for one in value):
        return tuple(_value(kind, name, one, records) for one in value)
    return _reader(kind, name).validate_python(value)


def _input(key: str, records: Mapping[str, Record]) -> Stage:
    return restored(key, records) or _keyed(MissingStage(), key)


@cache
def _reader(kind: type[Stage], name: str) -> TypeAdapter[Any]:
    kind.model_rebuild()  # Train names Bank, which comes after it: nobody may have used it in this process
    field = kind.model_fields[name]
    return TypeAdapter(cast(Any, Annotated[field.annotation, field]))


def _keyed(stage: Stage, key: str) -> Stage:
    stage.__dict__["key"] = key  # where `cached_property` keeps it
    return stage
