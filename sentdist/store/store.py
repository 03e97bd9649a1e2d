"""The artifact store: one folder per stage on any file system that pyarrow supports, with `record.json` written last."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path

from pyarrow import fs

from sentdist.errors import ArtifactLost, StoreError, listed
from sentdist.files import disk_size
from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import STAGES
from sentdist.store.local_storage import STAGING, LocalStorage
from sentdist.store.object_storage import ObjectStorage
from sentdist.store.record import (
    RECORD,
    Artifact,
    Record,
    artifacts_named,
    checksums_below,
    damage_of_content,
    damage_unless_verified,
)
from sentdist.store.storage import content_at, open_root, reading, shown_root, writing

READERS = 16  # records read at once
BUILT_AGAIN = "It counts as not finished and is built again when needed."
RUNNING = "running"  # checkpoints of unfinished trainings, by key
ASIDE = ".aside"  # damaged artifacts, kept for inspection; `sentdist store gc` removes them

log = logging.getLogger(__name__)


class PlainFiles:
    """Read and write single files of a store by place.

    Every method raises StoreError if the store cannot be read or written.
    """

    def __init__(self, filesystem: fs.FileSystem, base: str, shown: str, storage: LocalStorage | ObjectStorage) -> None:
        self._filesystem = filesystem
        self._base = base
        self._shown = shown
        self._storage = storage

    def write_text(self, place: str, text: str) -> str:
        """Write a file atomically; return its address."""
        with writing(self._shown):
            self._storage.write(place, text.encode())
        return self.uri(place)

    def append_line(self, place: str, line: str, *, size: int | None = None) -> int:
        """Append a line to a file, durable when this returns, and return the new size of the file in bytes.

        Args:
            size: Expected size before, as returned last to the only writer; None: any.

        Raises:
            StoreError: another size.
        """
        with writing(self._shown):
            return self._storage.append_line(place, line, size=size)

    def write_folder(self, folder: Path, place: str) -> str:
        """Copy a local folder, such as a report, to a place, over existing files; return the address."""
        with writing(self._shown):
            self._storage.write_folder(folder, place)
        return self.uri(place)

    def read_text(self, place: str, *, errors: str = "strict") -> str | None:
        """Return the text of a file; None if it does not exist.

        Args:
            errors: As for `bytes.decode`.

        Raises:
            StoreError: the store cannot be read, or the file is not UTF-8.
        """
        content = self.content(place)
        try:
            return None if content is None else content.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise StoreError(
                where=f"{self._shown}/{place}", found=str(error), expected="text in UTF-8", remedy="Remove the file and run again."
            ) from None

    def content(self, place: str) -> bytes | None:
        """Return the bytes of a file; None if it does not exist."""
        with self._storage.reading():
            content = content_at(self._filesystem, f"{self._base}/{place}")
            if content is None:
                self._storage.check()  # files of an unmounted file system must not count as absent
            return content

    def names(self, place: str) -> list[str]:
        """Return the sorted names of the files in a folder of the store; empty if it does not exist."""
        with self._storage.reading():
            infos = self._filesystem.get_file_info(fs.FileSelector(f"{self._base}/{place}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == fs.FileType.File)

    def uri(self, place: str) -> str:
        """Return the address of a place."""
        return self._storage.address(place)


class ArtifactStore:
    """Artifacts below one root: a local path or an address such as `s3://bucket/prefix?endpoint_override=host:port`.

    Concurrent writers of one key do not interfere: the first commit is kept, other work is dropped. `files` reads and writes other files.
    """

    def __init__(self, root: str | Path, *, was_written: bool = False) -> None:
        self.root = str(root)
        self.shown = shown_root(self.root)  # for messages and records
        self.filesystem, self.base = open_root(self.root)
        self.storage: LocalStorage | ObjectStorage = (
            LocalStorage(Path(self.base), self.shown, was_written=was_written)
            if isinstance(self.filesystem, fs.LocalFileSystem)
            else ObjectStorage(self.filesystem, self.base, self.shown)
        )
        self.files = PlainFiles(self.filesystem, self.base, self.shown, self.storage)

    def __reduce__(self) -> tuple[object, ...]:
        return partial(ArtifactStore, was_written=self.storage.was_written), (self.root,)

    @property
    def is_shared(self) -> bool:
        """Whether all workers access its files directly; else each machine has copies."""
        return self.storage.is_shared

    def has(self, stage: Stage) -> bool:
        return self.get(stage) is not None

    def get(self, stage: Stage) -> Artifact | None:
        """Return the artifact of a stage; None if it is not finished, or its record is unusable (then it is moved aside).

        Raises:
            StoreError: a record of a newer version, or an unusable one that cannot be moved aside and blocks a new build.
        """
        return self.at(stage.place)

    def get_all(self, stages: Iterable[Stage]) -> dict[str, Artifact]:
        """Return the artifacts of the finished stages by key, like `get` for each; several records are read at a time."""
        asked = list(stages)
        with ThreadPoolExecutor(max_workers=READERS) as readers:
            return {stage.key: found for stage, found in zip(asked, readers.map(self.get, asked), strict=True) if found is not None}

    def at(self, place: str) -> Artifact | None:
        """Return the artifact at a place such as `train/rcl-minilm-b64-s0-a18b8d064910`; None and raises as `get`."""
        content = self.files.content(f"{place}/{RECORD}")
        try:
            record = None if content is None else Record.read(content)
            if record is not None and record.place != place:  # a copied or linked folder must not pass for another: `drop` would follow it
                raise ValueError(f"it is that of {record.place}")
        except StoreError as error:
            raise error.with_context(where=f"{self.shown}/{place}") from None
        except ValueError as error:  # also of json and pydantic
            self._set_unreadable_aside(place, content or b"", error)
            return None
        return None if record is None else Artifact(record=record, uri=self.files.uri(record.files_place))

    def each_at(self, places: Iterable[str]) -> Iterator[Artifact | None]:
        """Yield `at` for each place in order, reading several at a time: an object store takes tens of milliseconds for each."""
        with ThreadPoolExecutor(max_workers=READERS) as readers:
            yield from readers.map(self.at, places)

    def finished(self, place: str) -> Artifact:
        """Return the artifact at a place where one has been.

        Raises:
            ArtifactLost: it has disappeared.
        """
        found = self.at(place)
        if found is None:
            raise self._lost(place, "no finished artifact")
        return found

    def find(self, key: str, *, kind: str | None = None) -> Artifact:
        """Return the artifact that `key` identifies: the beginning of its key, its place with or without the kind, or its label.

        If there is none, the artifact whose place begins with `key`.

        Raises:
            StoreError: none or several.
        """
        found = artifacts_named(key, self.artifacts(kind)) if key.strip() else []
        if len(found) != 1:
            names = listed([artifact.record.shown_place for artifact in found]) or ("none" if key.strip() else "an empty name")
            where, of = f"{self.shown}: {key}".rstrip(": "), f" of kind {kind}" if kind else ""
            remedy = f"`sentdist list {kind or 'artifacts'}` lists all."
            raise StoreError(where=where, found=names, expected=f"one artifact{of}", remedy=remedy)
        return found[0]

    def places(self, kind: str | None = None) -> list[str]:
        """Return the sorted places of all finished artifacts (of a kind)."""
        selector = fs.FileSelector(f"{self.base}/{kind}" if kind else self.base, recursive=True, allow_not_found=True)
        with self.storage.reading():
            files = self.filesystem.get_file_info(selector)
        found = sorted(info.path.removeprefix(f"{self.base}/").removesuffix(f"/{RECORD}") for info in files if info.base_name == RECORD)
        return [place for place in found if place.count("/") == 1 and place.partition("/")[0] in STAGES]

    def artifacts(self, kind: str | None = None) -> Iterator[Artifact]:
        """Yield all finished artifacts (of a kind), sorted by place."""
        yield from filter(None, self.each_at(self.places(kind)))

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Make a local scratch folder to write an artifact into; it is removed unless committed.

        Raises:
            StoreError: the store cannot be written.
        """
        with self.storage.staged() as folder:
            yield folder

    def commit(
        self, stage: Stage, folder: Path, *, seconds: float, runtime: dict[str, Json], environment: dict[str, str], results: dict[str, Json]
    ) -> Artifact:
        """Publish a staged folder as the artifact of a stage: data first, record last.

        On a file system the folder is synced to disk with its record and appears by one rename. On an object store the data are copied
        first, to a separate folder for each writer.

        Raises:
            StoreError: the store is full or cannot be written; partial writes do not count.
        """
        existing = self.get(stage)
        if existing is not None:
            return existing
        with writing(self.shown):
            files = checksums_below(folder)
            record = Record.of(stage, files, seconds=seconds, runtime=runtime, environment=environment, results=results)
            self.storage.publish(folder, record)
        committed = self.at(stage.place)
        if committed is None:
            raise self._lost(stage.place, "nothing where it was just written")
        return committed

    def folder(self, artifact: Artifact, *names: str) -> Path:
        """Return a local folder with the files of an artifact; a remote one is copied to this machine once.

        Each file is compared with its digest at its first use in a process.

        Args:
            names: Files to verify; all by default.

        Raises:
            ArtifactLost: a file is damaged or missing. The artifact is moved aside, and its stage counts as not finished.
            StoreError: the store cannot be read.
        """
        folder = self._files_of(artifact.record)
        damage = self._damage(artifact, folder, names)
        if damage is not None and self.storage.remove_copy(folder):  # maybe only the copy is damaged
            folder = self._files_of(artifact.record)
            damage = self._damage(artifact, folder, names)
        if damage is not None:
            raise self._set_lost_aside(artifact, damage)
        return folder

    def check_unchanged(self, artifact: Artifact, folder: Path) -> None:
        """Check that the files in a folder from `folder`, which this process has read since, have not changed.

        Raises:
            ArtifactLost: a file was changed or moved. The artifact is moved aside; of a remote artifact, `folder` copies it again.
        """
        damage = self._damage(artifact, folder, ())
        if damage is not None and self.is_shared:
            raise self._set_lost_aside(artifact, damage)
        if damage is not None:
            raise self._lost(artifact.record.place, f"{damage} (of its copy {folder})")
        self.storage.keep(folder)

    def damage(self, artifact: Artifact) -> str | None:
        """Describe the first damaged file of an artifact, reading all again; None if all are as written. Changes nothing.

        Raises:
            StoreError: the store cannot be read.
        """
        return self.storage.damage(artifact.record)

    def open_file(self, place: str) -> BytesIO:
        """Return one file of an artifact, compared with its digest, without copying the rest of a large artifact.

        Raises:
            ArtifactLost: the file is damaged, or the artifact has disappeared.
            StoreError: the store cannot be read.
        """
        kind, name, inner = place.split("/", 2)
        artifact = self.finished(f"{kind}/{name}")
        content = self.files.content(f"{artifact.record.files_place}/{inner}")
        checksum = artifact.record.checksums.get(inner)
        wrong = "missing" if content is None else None if checksum is None else damage_of_content(content, checksum)
        if content is None or wrong is not None:
            raise self._set_lost_aside(artifact, f"{inner}: {wrong}")
        return BytesIO(content)

    def drop(self, artifact: Artifact) -> None:
        """Remove an artifact atomically; one that is built again meanwhile stays."""
        with writing(self.shown):
            self.storage.remove(artifact.record.place)

    def set_aside(self, place: str, reason: str) -> str:
        """Move a folder of the store aside, with a note on the reason; return a phrase with its new place.

        A folder that cannot be moved (no permission to write) stays.
        """
        target = f"{ASIDE}/{place.replace('/', '-')}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"
        try:
            self.storage.move(place, target)
        except FileNotFoundError:
            return "another process has moved it aside"
        except OSError as error:
            return f"it could not be moved aside: {' '.join(str(error).split())}"
        with suppress(StoreError):
            self.files.write_text(f"{target}/why.txt", f"{reason}\n")
        return f"moved to {self.files.uri(target)}"

    def check_writable(self, *, needed_bytes: int = 0) -> None:
        """Write and remove a small file; on a local store also check the free space.

        Raises:
            StoreError: read-only, missing permissions, or too little space.
        """
        probe = f"{STAGING}/probe-{uuid.uuid4().hex}"
        with writing(self.shown):
            self.storage.write(probe, b"")
            self.filesystem.delete_file(f"{self.base}/{probe}")
        free = self.free_bytes()
        if free is not None and free < needed_bytes:
            remedy = "Free space (`sentdist store gc` removes unused files) or use another store."
            raise StoreError(where=self.shown, found=f"{disk_size(free)} free", expected=f"about {disk_size(needed_bytes)}", remedy=remedy)

    def free_bytes(self) -> int | None:
        """Return the free bytes of the disk of a local store, which may not exist yet; None for a remote one."""
        return self.storage.free_bytes()

    def _damage(self, artifact: Artifact, folder: Path, names: tuple[str, ...]) -> str | None:
        """Return `damage_unless_verified` for the named files; without names for all."""
        checksums = artifact.record.checksums
        if unknown := [name for name in names if name not in checksums]:
            return f"{unknown[0]}: not among its files"
        with reading(self.shown):
            return damage_unless_verified(folder, checksums, names or tuple(checksums))

    def _files_of(self, record: Record) -> Path:
        try:
            return self.storage.files_of(record)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError) and not self._is_there(record):
                raise self._lost(record.place, "moved away while it was copied") from error
            raise

    def _is_there(self, record: Record) -> bool:
        """Return whether this artifact is still in the store: another process may have moved it aside and built it again."""
        return (now := self.at(record.place)) is not None and now.record == record

    def _set_lost_aside(self, artifact: Artifact, damage: str) -> ArtifactLost:
        """Move a damaged artifact aside, unless it was built again meanwhile; return the error to raise."""
        place = artifact.record.place
        if not self._is_there(artifact.record):
            return self._lost(place, f"{damage}; another process has noticed it")
        return self._lost(place, f"{damage}; {self.set_aside(place, damage)}")

    def _lost(self, place: str, found: str, *, remedy: str = BUILT_AGAIN) -> ArtifactLost:
        return ArtifactLost(where=f"{self.shown}/{place}", found=found, expected="the files that were written", remedy=remedy)

    def _set_unreadable_aside(self, place: str, content: bytes, error: ValueError) -> None:
        if self.files.content(f"{place}/{RECORD}") != content:
            return
        reason = f"its {RECORD} cannot be used: {len(content)} bytes, {str(error).splitlines()[0]}"
        outcome = self.set_aside(place, reason)
        if self.files.content(f"{place}/{RECORD}") == content:
            remedy = "Ask the owner of the folder to remove it, or use another store."
            raise StoreError(where=f"{self.shown}/{place}", found=f"{reason}; {outcome}", expected="a usable record", remedy=remedy)
        log.warning("%s/%s: %s; %s. Its stage counts as not finished.", self.shown, place, reason, outcome)
