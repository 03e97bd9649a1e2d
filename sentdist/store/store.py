"""Where artifacts are kept: one folder a stage on any file system that pyarrow knows, `record.json` written last."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from sentdist.errors import StoreError
from sentdist.plan.stage import Json, Stage
from sentdist.store.record import Record

RECORD = "record.json"
STAGING = ".staging"


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
        self._fs, self._base = _open(self.root)
        self.is_local = isinstance(self._fs, fs.LocalFileSystem)

    def __reduce__(self) -> tuple[object, ...]:
        return ArtifactStore, (self.root,)

    def has(self, stage: Stage) -> bool:
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
            raise StoreError(where=f"{self.root}: {key}", found=names, expected="one artifact", remedy="`sentdist store list` shows all.")
        return found[0]

    def artifacts(self, kind: str | None = None) -> Iterator[Artifact]:
        """All finished artifacts, in order of their places."""
        selector = fs.FileSelector(f"{self._base}/{kind}" if kind else self._base, recursive=True, allow_not_found=True)
        for info in sorted(self._fs.get_file_info(selector), key=lambda info: info.path):
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
            with _writing(self.root):
                folder.mkdir(parents=True)
        else:
            folder = Path(tempfile.mkdtemp(prefix="sentdist-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def commit(
        self, stage: Stage, folder: Path, *, seconds: float, runtime: dict[str, Json], environment: dict[str, str], results: dict[str, Json]
    ) -> Artifact:
        """Publish a staged folder as the artifact of a stage: data first, record last.

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
        with _writing(self.root):
            self._publish(folder, stage.place)
            self._write_text(f"{stage.place}/{RECORD}", record.model_dump_json(indent=1))
        return Artifact(record=record, uri=self._uri(stage.place))

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

    def explain(self, first: Artifact, second: Artifact) -> list[Difference]:
        """The fields in which two stages differ, followed into the input stages that differ."""
        return list(self._differences(first.record.stage, second.record.stage, ""))

    def orphans(self, *, older_than_s: float = 3600.0) -> list[str]:
        """Folders that hold data but no record, and staging folders, untouched for a while: what a crash left."""
        selector = fs.FileSelector(self._base, recursive=True, allow_not_found=True)
        newest: dict[str, float] = {}
        finished: set[str] = set()
        for info in self._fs.get_file_info(selector):
            parts = info.path.removeprefix(f"{self._base}/").split("/")
            if (info.type == fs.FileType.Directory and len(parts) > 2) or len(parts) < 2 or parts[0] in ("sweeps", "reports", "running"):
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
            self._fs.delete_dir(f"{self._base}/{place}")
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
        with _writing(self.root):
            self._write_text(probe, "")
            self._fs.delete_file(f"{self._base}/{probe}")
        if self.is_local:
            free = shutil.disk_usage(self._base).free
            if free < needed_bytes:
                raise StoreError(
                    where=self.root,
                    found=f"{free / 1e9:.1f} GB free",
                    expected=f"about {needed_bytes / 1e9:.1f} GB",
                    remedy="Free room or use another store.",
                )

    def write_text(self, place: str, text: str) -> str:
        """Write a file that is not an artifact (a sweep's plan, a report); returns its address."""
        with _writing(self.root):
            self._write_text(place, text)
        return self._uri(place)

    def read_text(self, place: str) -> str | None:
        path = f"{self._base}/{place}"
        if self._fs.get_file_info(path).type != fs.FileType.File:
            return None
        with self._fs.open_input_stream(path) as stream:
            return bytes(stream.read()).decode()

    def _read(self, place: str) -> Artifact:
        text = self.read_text(f"{place}/{RECORD}")
        if text is None:
            raise StoreError(
                where=f"{self.root}/{place}", found="no record", expected="a finished artifact", remedy="Run the recipe again."
            )
        return Artifact(record=Record.model_validate(json.loads(text)), uri=self._uri(place))

    def _uri(self, place: str) -> str:
        return f"{self._base}/{place}" if self.is_local else f"{self.root.partition('?')[0].rstrip('/')}/{place}"

    def _publish(self, folder: Path, place: str) -> None:
        target = f"{self._base}/{place}"
        if self._fs.get_file_info(target).type == fs.FileType.Directory:
            self._fs.delete_dir(target)  # data without a record: an earlier writer died here
        if not self.is_local:
            self._fs.create_dir(target, recursive=True)
            fs.copy_files(str(folder), target, destination_filesystem=self._fs)
            return
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)

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


def _open(root: str) -> tuple[fs.FileSystem, str]:
    if "://" not in root:
        return fs.LocalFileSystem(), str(Path(root).expanduser().absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(root)
    except (OSError, ValueError) as error:
        raise StoreError(
            where=root, found=str(error), expected="a local path, s3:// or gs:// address", remedy="Mend the address."
        ) from None
    return filesystem, base.rstrip("/")


@contextmanager
def _writing(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = {28: "no space left", 30: "a read-only file system", 13: "no right to write"}.get(error.errno or 0, str(error))
        raise StoreError(
            where=root,
            found=reason,
            expected="a store that can be written",
            remedy="Free room, mend the rights, or name another with --store.",
        ) from error
