"""Where artifacts are kept: one folder a stage on any file system that pyarrow knows, `record.json` written last."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.plan.stage import Json, Stage
from sentdist.plan.stages import STAGES
from sentdist.store.record import Record

RECORD = "record.json"
STAGING = ".staging"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A finished stage: its record and where its files lie. A few kB, so it may travel through the board."""

    record: Record
    uri: str

    @property
    def key(self) -> str:
        return self.record.key


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field in which two stages differ."""

    field: str
    first: Json
    second: Json


class ArtifactStore:
    """Artifacts below one root: a local path or an address such as `s3://bucket/prefix?endpoint_override=host:port`.

    Writers of one key do not disturb one another: whoever commits first is kept, the other's work is dropped.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self.shown = _without_secrets(self.root)  # for messages and records
        self._fs, self._base = _open(self.root)
        self.is_local = isinstance(self._fs, fs.LocalFileSystem)

    def __reduce__(self) -> tuple[object, ...]:
        return ArtifactStore, (self.root,)

    def has(self, stage: Stage) -> bool:
        with _reading(self.shown):
            return self._fs.get_file_info(f"{self._base}/{stage.place}/{RECORD}").type == fs.FileType.File

    def get(self, stage: Stage) -> Artifact | None:
        """The artifact of a stage, or None if it was never finished."""
        return self._read(stage.place) if self.has(stage) else None

    def find(self, key: str) -> Artifact:
        """The artifact whose key begins with `key`, or whose place is `key`.

        Raises:
            StoreError: none or several.
        """
        found = [artifact for artifact in self.artifacts() if artifact.key.startswith(key) or artifact.record.place == key]
        if len(found) != 1:
            names = ", ".join(artifact.record.place for artifact in found) or "none"
            raise StoreError(where=f"{self.shown}: {key}", found=names, expected="one artifact", remedy="`sentdist store list` shows all.")
        return found[0]

    def artifacts(self, kind: str | None = None) -> Iterator[Artifact]:
        """All finished artifacts, in order of their places."""
        selector = fs.FileSelector(f"{self._base}/{kind}" if kind else self._base, recursive=True, allow_not_found=True)
        with _reading(self.shown):
            files = self._fs.get_file_info(selector)
        for info in sorted(files, key=lambda info: info.path):
            if info.base_name == RECORD and f"/{STAGING}/" not in info.path:
                yield self._read(info.path.removeprefix(f"{self._base}/").removesuffix(f"/{RECORD}"))

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """A local scratch folder to write an artifact into; it goes away unless committed.

        Raises:
            StoreError: the store cannot be written.
        """
        if self.is_local:
            folder = Path(self._base) / STAGING / uuid.uuid4().hex
            with _writing(self.shown):
                folder.mkdir(parents=True)
        else:
            folder = Path(tempfile.mkdtemp(prefix="sentdist-"))
        try:
            yield folder
        except OSError as error:
            if error.errno in FULL:  # the writer of the artifact met it, not the store itself
                raise _not_written(self.shown, error) from error
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def commit(
        self, stage: Stage, folder: Path, *, seconds: float, runtime: dict[str, Json], environment: dict[str, str], results: dict[str, Json]
    ) -> Artifact:
        """Publish a staged folder as the artifact of a stage: data first, record last.

        On a file system the finished folder, record included, appears by one rename. On an object store the data is copied first; two
        writers of one key then lay the same file names over one another, and the record of the first is kept.

        Raises:
            StoreError: the store is full or cannot be written; nothing half-written counts.
        """
        files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
        record = Record(
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
            files=files,
        )
        existing = self.get(stage)
        if existing is not None:
            return existing
        with _writing(self.shown):
            if self.is_local:
                self._publish_by_rename(folder, stage.place, record)
            else:
                self._publish_by_copy(folder, stage.place, record)
        return self._read(stage.place)

    def folder(self, artifact: Artifact) -> Path:
        """A local folder with the files of an artifact; a remote one is copied to this machine once."""
        if self.is_local:
            return Path(self._base) / artifact.record.place
        cache = Path(os.environ.get("SENTDIST_CACHE", Path.home() / ".cache" / "sentdist")) / "artifacts" / artifact.key
        if (cache / RECORD).exists():
            return cache
        cache.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=cache.parent))
        fs.copy_files(f"{self._base}/{artifact.record.place}", str(scratch), source_filesystem=self._fs)
        try:
            scratch.rename(cache)
        except OSError:  # another process of this machine was faster
            shutil.rmtree(scratch)
        return cache

    def open_file(self, place: str) -> pa.NativeFile:
        """One file of an artifact as a stream, wherever the store is; for those who need a part of a large artifact.

        Raises:
            StoreError: it is not there, or the store cannot be read.
        """
        with _reading(self.shown):
            return self._fs.open_input_file(f"{self._base}/{place}")

    def explain(self, first: Artifact, second: Artifact) -> list[Difference]:
        """The fields in which two stages differ, followed into the input stages that differ."""
        return list(self._differences(first.record.stage, second.record.stage, ""))

    def orphans(self, *, older_than_s: float = 3600.0) -> list[str]:
        """Folders that hold data but no record, and staging folders, untouched for a while: what a crash left.

        Only folders of the store's own kinds are looked at, so that a root named by mistake loses nothing.
        """
        selector = fs.FileSelector(self._base, recursive=True, allow_not_found=True)
        newest: dict[str, float] = {}
        finished: set[str] = set()
        for info in self._fs.get_file_info(selector):
            parts = info.path.removeprefix(f"{self._base}/").split("/")
            if (info.type == fs.FileType.Directory and len(parts) > 2) or len(parts) < 2 or parts[0] not in (*STAGES, STAGING):
                continue
            place = "/".join(parts[:2])
            if len(parts) == 3 and parts[2] == RECORD:
                finished.add(place)
            newest[place] = max(newest.get(place, 0.0), info.mtime.timestamp() if info.mtime else 0.0)
        horizon = time.time() - older_than_s
        return sorted(place for place, touched in newest.items() if place not in finished and touched <= horizon)

    def collect_garbage(self, *, older_than_s: float = 3600.0) -> list[str]:
        """Remove the orphans; returns their places."""
        places = self.orphans(older_than_s=older_than_s)
        for place in places:
            path = f"{self._base}/{place}"
            if self._fs.get_file_info(path).type == fs.FileType.Directory:
                self._fs.delete_dir(path)
            else:
                self._fs.delete_file(path)
        return places

    def drop(self, artifact: Artifact) -> None:
        """Remove an artifact: the record first, so that nobody sees half of it."""
        self._fs.delete_file(f"{self._base}/{artifact.record.place}/{RECORD}")
        self._fs.delete_dir(f"{self._base}/{artifact.record.place}")

    def check_writable(self, *, needed_bytes: int = 0) -> None:
        """Write, read and remove a small file; on a local store also ask for free space.

        Raises:
            StoreError: read-only, missing rights, or too little room.
        """
        probe = f"{STAGING}/probe-{uuid.uuid4().hex}"
        with _writing(self.shown):
            self._write_text(probe, "")
            self._fs.delete_file(f"{self._base}/{probe}")
        if self.is_local:
            free = shutil.disk_usage(self._base).free
            if free < needed_bytes:
                raise StoreError(
                    where=self.shown,
                    found=f"{free / 1e9:.1f} GB free",
                    expected=f"about {needed_bytes / 1e9:.1f} GB",
                    remedy="Free room or use another store.",
                )

    def write_text(self, place: str, text: str) -> str:
        """Write a file that is not an artifact (a sweep's plan, a report); returns its address."""
        with _writing(self.shown):
            self._write_text(place, text)
        return self._uri(place)

    def write_folder(self, folder: Path, place: str) -> str:
        """Copy a local folder that is not an artifact (a report), over what was there; returns the address."""
        with _writing(self.shown):
            self._fs.create_dir(f"{self._base}/{place}", recursive=True)
            fs.copy_files(str(folder), f"{self._base}/{place}", destination_filesystem=self._fs)
        return self._uri(place)

    def read_text(self, place: str) -> str | None:
        path = f"{self._base}/{place}"
        with _reading(self.shown):
            if self._fs.get_file_info(path).type != fs.FileType.File:
                return None
            with self._fs.open_input_stream(path) as stream:
                return bytes(stream.read()).decode()

    def names(self, place: str) -> list[str]:
        """Names of the files in a folder of the store, sorted; none if there is no such folder."""
        with _reading(self.shown):
            infos = self._fs.get_file_info(fs.FileSelector(f"{self._base}/{place}", allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == fs.FileType.File)

    def _read(self, place: str) -> Artifact:
        text = self.read_text(f"{place}/{RECORD}")
        if text is None:
            raise StoreError(
                where=f"{self.shown}/{place}", found="no record", expected="a finished artifact", remedy="Run the recipe again."
            )
        return Artifact(record=Record.model_validate(json.loads(text)), uri=self._uri(place))

    def _uri(self, place: str) -> str:
        return f"{self._base}/{place}" if self.is_local else f"{self.shown}/{place}"

    def _publish_by_rename(self, folder: Path, place: str, record: Record) -> None:
        target = Path(self._base) / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_dev != target.parent.stat().st_dev:  # made elsewhere: a rename cannot cross file systems
            nearby = Path(self._base) / STAGING / uuid.uuid4().hex
            folder = shutil.copytree(folder, nearby)
        (folder / RECORD).write_text(record.model_dump_json(indent=1))
        try:
            folder.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if (target / RECORD).exists():  # another writer was faster: his is kept
                return
            shutil.rmtree(target)  # data without a record, left by a crash
            folder.rename(target)

    def _publish_by_copy(self, folder: Path, place: str, record: Record) -> None:
        target = f"{self._base}/{place}"
        self._fs.create_dir(target, recursive=True)
        fs.copy_files(str(folder), target, destination_filesystem=self._fs)
        if self._fs.get_file_info(f"{target}/{RECORD}").type != fs.FileType.File:
            self._write_text(f"{place}/{RECORD}", record.model_dump_json(indent=1))

    def _write_text(self, place: str, text: str) -> None:
        path = f"{self._base}/{place}"
        self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        target = f"{path}.{uuid.uuid4().hex[:8]}.part" if self.is_local else path  # an object appears whole or not at all
        with self._fs.open_output_stream(target) as stream:
            stream.write(text.encode())
        if self.is_local:
            os.replace(target, path)

    def _differences(self, first: Json, second: Json, where: str) -> Iterator[Difference]:
        if first == second:
            return
        if isinstance(first, dict) and isinstance(second, dict):
            if "stage" in first and "stage" in second and len(first) == len(second) == 1:
                yield from self._differences(self._stage_of(first["stage"]), self._stage_of(second["stage"]), where)
                return
            for name in dict.fromkeys([*first, *second]):
                inner = where if name == "fields" else f"{where}.{name}" if where else name
                yield from self._differences(first.get(name), second.get(name), inner)
            return
        if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
            for number, (one, other) in enumerate(zip(first, second, strict=True)):
                yield from self._differences(one, other, f"{where}[{number}]")
            return
        yield Difference(field=where, first=first, second=second)

    def _stage_of(self, key: Json) -> Json:
        found = [artifact for artifact in self.artifacts() if artifact.key == key]
        return found[0].record.stage if found else {"stage": key}


def _without_secrets(root: str) -> str:
    """The address without `key:secret@` and without what follows `?`."""
    return re.sub(r"(?<=://)[^/@]*@", "", root.partition("?")[0].rstrip("/")) if "://" in root else root


def _open(root: str) -> tuple[fs.FileSystem, str]:
    if "://" not in root:
        return fs.LocalFileSystem(), str(Path(root).expanduser().absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(root)
    except (OSError, ValueError) as error:
        raise StoreError(
            where=_without_secrets(root), found=str(error), expected="a local path, s3:// or gs:// address", remedy="Mend the address."
        ) from None
    if not base.strip("/"):
        raise StoreError(
            where=_without_secrets(root), found="no bucket", expected="an address such as s3://bucket/prefix", remedy="Mend the address."
        )
    return filesystem, base.rstrip("/")


@contextmanager
def _reading(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            where=root,
            found=" ".join(str(error).split()),
            expected="a store that can be read",
            remedy="Check the address, the network and the credentials.",
        ) from error


@contextmanager
def _writing(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _not_written(root, error) from error


def _not_written(root: str, error: OSError) -> StoreError:
    reasons = {
        errno.ENOSPC: "no space left",
        errno.EDQUOT: "a quota that is used up",
        errno.EROFS: "a read-only file system",
        errno.EACCES: "no right to write",
        errno.EPERM: "no right to write",
        errno.ENOTDIR: "a file where a folder should be",
        errno.EEXIST: "a file where a folder should be",
    }
    return StoreError(
        where=root,
        found=reasons.get(error.errno or 0) or " ".join(str(error).split()),
        expected="a store that can be written",
        remedy="Free room, mend the rights, or name another with --store.",
    )
