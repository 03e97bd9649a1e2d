"""What is known of an artifact: the stage that it is, how and where it was made, and what came out."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sentdist.errors import StoreError, near
from sentdist.plan.stage import Json, Processes, Purpose, Stage, as_number, in_words_of_today, label_of
from sentdist.plan.stages import STAGES


@dataclass(frozen=True, kw_only=True)
class FileChecksum:
    """What is noted of a file when it is written. sha256: 64 hexadecimal digits; None where an older version noted none."""

    num_bytes: int
    sha256: str | None


def checksum_of(path: Path) -> FileChecksum:
    """Read a file once and note its size and digest (1 GB takes about 0.6 s where the processor has instructions for SHA)."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileChecksum(num_bytes=file.tell(), sha256=digest)


def checksums_below(folder: Path) -> dict[str, FileChecksum]:
    """Relative path -> checksum, of every file below a folder."""
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def damage_of(folder: Path, expected: Mapping[str, FileChecksum], names: Iterable[str]) -> str | None:
    """What is wrong with the first bad file among `names`; None if all are as they were written.
    Sizes are compared before anything is read."""
    asked = set(names)
    wanted = [name for name in expected if name in asked]
    for name in wanted:
        try:
            status = os.stat(folder / name)  # not `is_file`: in some versions of Python a file server that fails has no files
        except (FileNotFoundError, NotADirectoryError):
            return f"{name}: missing"
        if not stat.S_ISREG(status.st_mode):
            return f"{name}: missing"
        if status.st_size != expected[name].num_bytes:
            return f"{name}: {status.st_size:,} bytes, {expected[name].num_bytes:,} were written"
    for name in wanted:
        sha256 = expected[name].sha256
        if sha256 is not None and checksum_of(folder / name).sha256 != sha256:
            return f"{name}: other content than was written (sha256)"
    return None


def damage_of_content(content: bytes, expected: FileChecksum) -> str | None:
    """As `damage_of`, for the content of one file that was read whole."""
    if len(content) != expected.num_bytes:
        return f"{len(content):,} bytes, {expected.num_bytes:,} were written"
    if expected.sha256 is not None and hashlib.sha256(content).hexdigest() != expected.sha256:
        return "other content than was written (sha256)"
    return None


RECORD = "record.json"
OWN_FILES = (RECORD, "history.jsonl", "heads.safetensors")  # of an artifact, what only this project reads
ALIKE = 0.75  # share of the letters of a key or label; keys of equal length have some in common by chance
SEAL = "sha256"  # the field of record.json that is none of the record
SCHEMA = 1  # raised when an older version must not use what is written; the seal stays as it is, or that version sees damage


class Record(BaseModel):
    """The content of `record.json`. Its presence beside the data is what makes an artifact exist."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may note more: that is no damage

    key: str
    kind: str
    label: str
    place: str  # folder below the root of the store
    stage: dict[str, Json]  # canonical: kind, revision, fields; input stages by key
    inputs: tuple[str, ...]  # keys
    created_at: str  # ISO 8601, UTC
    seconds: float  # wall time of the making
    runtime: dict[str, Json]  # workers, engine, ZeRO stage, device: what must not change a result
    environment: dict[str, str]  # versions, host, processor
    results: dict[str, Json]  # scores, counts, the stopping step: what a report or a dashboard shows
    files: dict[str, int]  # relative path -> bytes
    digests: dict[str, str] = {}  # relative path -> sha256; empty in records of older versions
    schema_version: int = 1  # records of older versions have none
    data: str = ""  # of an object store: the folder below its place in which its files lie, those of one writer alone

    def number(self, name: str) -> float | None:
        """A result by its name; None where there is none, or where it is no number, as a score that is not defined."""
        return as_number(self.results.get(name))

    @property
    def dev_score(self) -> float | None:
        """The best one of a training, or of a rung of it; None where nothing was selected by, or no score was defined."""
        return self.number("best_dev_score")

    @staticmethod
    def of(
        stage: Stage,
        files: Mapping[str, FileChecksum],
        *,
        seconds: float,
        runtime: dict[str, Json],
        environment: dict[str, str],
        results: dict[str, Json],
    ) -> Record:
        """The record of a stage that is finished now, with these files."""
        return Record(
            key=stage.key,
            kind=stage.kind,
            label=stage.label,
            place=stage.place,
            stage=stage.canonical(),
            inputs=tuple(needed.key for needed in stage.inputs),
            created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=round(seconds, 3),
            runtime=runtime,
            environment=environment,
            results=results,
            files={name: file.num_bytes for name, file in files.items()},
            schema_version=SCHEMA,
            digests={name: file.sha256 for name, file in files.items() if file.sha256 is not None},
        )

    @property
    def sealed(self) -> bytes:
        """The content of `record.json`: the fields, and the sha256 of them."""
        values = self.model_dump(mode="json")
        return json.dumps({**values, SEAL: _digest(values)}, indent=1, ensure_ascii=False).encode()

    @staticmethod
    def read(content: bytes) -> Record:
        """The record in the content of a `record.json`.

        Raises:
            ValueError: it is no record, or not the one that was written.
            StoreError: a newer version of sentdist wrote it.
        """
        try:
            values = json.loads(content)
        except RecursionError:
            raise ValueError("nested too deep") from None
        if not isinstance(values, dict):
            raise ValueError(f"a {type(values).__name__} instead of fields")
        seal = values.pop(SEAL, None)
        if seal != _digest(values) and (seal is not None or values.get("digests")):  # older versions noted neither
            raise ValueError("other content than was written (sha256)")
        if isinstance(schema := values.get("schema_version"), int) and schema > SCHEMA:
            raise StoreError(
                where=RECORD, found=f"a record of schema {schema}, of a newer version of sentdist", expected=f"schema {SCHEMA} at most",
                remedy="Update sentdist, or use another store. Nothing was changed.",
            )  # fmt: skip
        record = Record.model_validate(values)
        return record.model_copy(update={"stage": in_words_of_today(record.stage)})

    @property
    def files_place(self) -> str:
        """The folder with its files, below the root of the store."""
        return f"{self.place}/{self.data}" if self.data else self.place

    @property
    def shown_place(self) -> str:
        """The place, with sources as reports and MLflow call them."""
        return f"{self.kind}/{label_of(self.place)}-{self.key}"

    @property
    def shown_names(self) -> tuple[str, ...]:
        """What terminals and pages call the artifact, apart from its key."""
        places = dict.fromkeys((self.shown_place, self.place))
        return *places, *(place.partition("/")[2] for place in places), *dict.fromkeys((label_of(self.place), self.label))

    @property
    def checksums(self) -> dict[str, FileChecksum]:
        """What was noted of each file when it was written."""
        return {name: FileChecksum(num_bytes=size, sha256=self.digests.get(name)) for name, size in self.files.items()}


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A finished stage: its record and where its files lie. A few kB, so it may travel through the board."""

    record: Record
    uri: str

    @property
    def key(self) -> str:
        return self.record.key


def _digest(values: dict[str, Json]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def artifacts_named(name: str, artifacts: Iterable[Artifact]) -> list[Artifact]:
    """The artifacts whose key begins with a name, or that are shown by it; if there are none, those whose place begins with it."""
    there = list(artifacts)
    found = [one for one in there if one.key.startswith(name) or name in one.record.shown_names]
    return found or [one for one in there if one.record.shown_place.startswith(name) or one.record.place.startswith(name)]


def near_artifact(name: str, artifacts: Iterable[Artifact]) -> str | None:
    """The place of the one that was probably meant: whose label, or whose key as far as it was typed, is spelt alike; None: none is."""
    names = {shown: one.record.shown_place for one in artifacts for shown in (one.key[: max(6, len(name))], *one.record.shown_names)}
    closest = near(name, names, alike=ALIKE)
    return None if closest is None else names[closest]


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
