"""Records of artifacts (`record.json`): write, verify, find, compare, and restore the stage that was built."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sentdist.errors import StoreError
from sentdist.recipe.stage import Json, Processes, Purpose, Stage, as_number, label_of, with_current_source_names
from sentdist.recipe.stages import STAGES


@dataclass(frozen=True, kw_only=True)
class FileChecksum:
    """Size and digest of a file when it was written."""

    num_bytes: int
    sha256: str | None  # 64 hexadecimal digits; None in records of older versions


def checksum_of(path: Path) -> FileChecksum:
    """Return the size and digest of a file, read once (1 GB takes about 0.6 s on processors with SHA instructions)."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileChecksum(num_bytes=file.tell(), sha256=digest)


def checksums_below(folder: Path) -> dict[str, FileChecksum]:
    """Return {relative path: checksum} of every file below a folder."""
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def damage_of(folder: Path, expected: Mapping[str, FileChecksum], names: Iterable[str]) -> str | None:
    """Describe the first damaged file among `names`; None if all are as written. Sizes are compared before contents."""
    asked = set(names)
    wanted = [name for name in expected if name in asked]
    for name in wanted:
        try:
            status = os.stat(folder / name)  # not `is_file`: some versions of Python return False if a file server fails
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
    """Like `damage_of`, for the content of one file."""
    if len(content) != expected.num_bytes:
        return f"{len(content):,} bytes, {expected.num_bytes:,} were written"
    if expected.sha256 is not None and hashlib.sha256(content).hexdigest() != expected.sha256:
        return "other content than was written (sha256)"
    return None


_Seen = tuple[FileChecksum, int, int, int]  # checksum of a verified file; its times of modification and change, and its size then
_whole: dict[str, _Seen] = {}  # by path


def forget() -> None:
    """Forget all verified files, as in a new process."""
    _whole.clear()


def damage_unless_verified(folder: Path, checksums: Mapping[str, FileChecksum], names: Iterable[str]) -> str | None:
    """Return `damage_of` for the files that are not verified by this process, or have changed since."""
    now = {name: _seen(folder / name, checksums[name]) for name in names}  # before reading: what changes meanwhile is noticed later
    unseen = {name: seen for name, seen in now.items() if seen is None or _whole.get(str(folder / name)) != seen}
    damage = damage_of(folder, checksums, unseen)
    if damage is None:
        _whole.update({str(folder / name): seen for name, seen in unseen.items() if seen is not None})
    return damage


def _seen(path: Path, checksum: FileChecksum) -> _Seen | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return checksum, status.st_mtime_ns, status.st_ctime_ns, status.st_size


RECORD = "record.json"
OWN_FILES = (RECORD, "history.jsonl", "heads.safetensors")  # files of an artifact that only this project reads
SEAL = "sha256"  # the field of record.json that is not part of the record
SCHEMA = 1  # raised when older versions must not use new records; the seal must not change, or older versions see damage


class Record(BaseModel):
    """The content of `record.json`. An artifact exists if this file is beside the data."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # newer versions may add fields: that is no damage

    key: str
    kind: str
    label: str
    place: str  # folder below the root of the store
    stage: dict[str, Json]  # canonical: kind, revision, fields; input stages by key
    inputs: tuple[str, ...]  # keys
    created_at: str  # ISO 8601, UTC
    seconds: float  # wall time of the build
    runtime: dict[str, Json]  # workers, engine, ZeRO stage, device: must not change results
    environment: dict[str, str]  # versions, host, processor
    results: dict[str, Json]  # scores, counts, the stopping step: for reports and dashboards
    files: dict[str, int]  # relative path -> bytes
    digests: dict[str, str] = {}  # relative path -> sha256; empty in records of older versions
    schema_version: int = 1  # missing in records of older versions
    data: str = ""  # in an object store: the folder below `place` with the files of one writer

    def number(self, name: str) -> float | None:
        """Return a result by its name; None if it is missing or no number, such as an undefined score."""
        return as_number(self.results.get(name))

    @property
    def dev_score(self) -> float | None:
        """The best dev score of a training or rung; None without selection, or if no score is defined."""
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
        """Return the record of a stage that is finished now."""
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
        """The content of `record.json`: the fields and their sha256."""
        values = self.model_dump(mode="json")
        return json.dumps({**values, SEAL: _digest(values)}, indent=1, ensure_ascii=False).encode()

    @staticmethod
    def read(content: bytes) -> Record:
        """Parse the content of a `record.json`.

        Raises:
            ValueError: it is no record, or was changed.
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
                where=RECORD, found=f"a record of schema {schema}, of a newer version of sentdist", expected=f"at most schema {SCHEMA}",
                remedy="Update sentdist, or use another store. Nothing was changed.",
            )  # fmt: skip
        record = Record.model_validate(values)
        return record.model_copy(update={"stage": with_current_source_names(record.stage)})

    @property
    def files_place(self) -> str:
        """The folder of its files, below the root of the store."""
        return f"{self.place}/{self.data}" if self.data else self.place

    @property
    def shown_place(self) -> str:
        """The place, with the names of sources in reports and MLflow."""
        return f"{self.kind}/{label_of(self.place)}-{self.key}"

    @property
    def shown_names(self) -> tuple[str, ...]:
        """The names of the artifact in terminals and on pages, except its key."""
        places = dict.fromkeys((self.shown_place, self.place))
        return *places, *(place.partition("/")[2] for place in places), *dict.fromkeys((label_of(self.place), self.label))

    @property
    def checksums(self) -> dict[str, FileChecksum]:
        """Size and digest of each file."""
        return {name: FileChecksum(num_bytes=size, sha256=self.digests.get(name)) for name, size in self.files.items()}


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A finished stage: its record and the address of its files. A few kB, so it can be sent to the board."""

    record: Record
    uri: str

    @property
    def key(self) -> str:
        return self.record.key


def _digest(values: dict[str, Json]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def artifacts_named(name: str, artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Return the artifacts whose key begins with `name` or that have this name; if there are none, those whose place begins with it."""
    known = list(artifacts)
    found = [one for one in known if one.key.startswith(name) or name in one.record.shown_names]
    return found or [one for one in known if one.record.shown_place.startswith(name) or one.record.place.startswith(name)]


MOST_HELD = 20_000

# Key -> the fields of its record, and the stage. A key is a digest of the whole stage, so complete stages can be cached.
# They stay known to the process after the record of an input is removed.
_held: dict[str, tuple[Json, Stage]] = {}


class MissingStage(Stage):
    """Placeholder for an input stage whose record is gone or not understood. Only its key is known."""

    kind: ClassVar[str] = "gone"
    revision: ClassVar[int] = 0
    purpose: ClassVar[Purpose] = "aside"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = None


def restored(key: str | None, records: Mapping[str, Record]) -> Stage | None:
    """Return the stage of a record with its inputs; inputs that are gone or not understood become `MissingStage`.

    None if the record is gone or has a kind, field or value that this version does not know. Keys are those of the records, also of older
    revisions.
    """
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
    """Return the places of the records whose stage cannot be restored."""
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
    kind.model_rebuild()  # Train refers to Bank, which is defined later and may be unused in this process
    field = kind.model_fields[name]
    return TypeAdapter(cast(Any, Annotated[field.annotation, field]))


def _keyed(stage: Stage, key: str) -> Stage:
    stage.__dict__["key"] = key  # where `cached_property` keeps it
    return stage


def explained(first: Artifact, second: Artifact, known: Iterable[Artifact]) -> list[tuple[str, Json, Json]]:
    """Return the fields in which two stages differ, with both values, also those of input stages that are among `known`."""
    stages: dict[Json, Json] = {artifact.key: artifact.record.stage for artifact in known}
    one, other = (dict(_leaves(artifact.record.stage, stages)) for artifact in (first, second))
    fields = dict.fromkeys([*one, *other])
    return [(field, one.get(field), other.get(field)) for field in fields if one.get(field) != other.get(field)]


def _leaves(value: Json, stages: Mapping[Json, Json], where: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the fields of a canonical stage and of its inputs with their values."""
    if isinstance(value, dict) and value.keys() == {"stage"}:
        value = stages.get(value["stage"], value["stage"])
    if value and isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, stages, where if name == "fields" else f"{where}.{name}".lstrip("."))
    elif value and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, stages, f"{where}[{number}]")
    else:
        yield where, value
