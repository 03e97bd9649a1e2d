"""What is known of an artifact: the stage that it is, how and where it was made, and what came out."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from sentdist.errors import StoreError
from sentdist.plan.stage import Json, Stage, as_number, in_words_of_today, label_of
from sentdist.spelling import near
from sentdist.store.integrity import FileChecksum

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
