"""What in a store is of no use any more, and what depends on what."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Set
from contextlib import suppress

from pyarrow import fs

from sentdist.plan.stages import STAGES
from sentdist.store.access import reading, writing
from sentdist.store.object_storage import DATA
from sentdist.store.scratch import maker_of
from sentdist.store.store import ASIDE, RECORD, RUNNING, STAGING, Artifact, ArtifactStore

OURS = re.compile(rf"({'|'.join(map(re.escape, (*STAGES, STAGING, ASIDE)))})/|{RUNNING}/[0-9a-f]+$")
UNFINISHED_KEPT_S = 30 * 24 * 3600.0  # checkpoints of a training that is not finished: whoever submits it again goes on from them
ELSEWHERE_KEPT_S = 24 * 3600.0  # what a process of another machine makes: a shard may take hours, and its clock may be ahead


def orphans(store: ArtifactStore, *, older_than_s: float = 3600.0) -> list[str]:
    """Places of no use, untouched for a while: data without a record, or that its record does not name, and staging folders, which
    a crash left; what was moved aside; and checkpoints of trainings that are finished, or that nobody has gone on with for a month.

    Only folders of the store's own kinds are looked at, so that a root named by mistake loses nothing. What a living process of this
    machine writes stays.
    """
    selector = fs.FileSelector(store.base, recursive=True, allow_not_found=True)
    newest: dict[str, float] = {}
    finished: set[str] = set()
    data: dict[str, dict[str, float]] = {}  # place -> folders of its writers, of which its record names one
    with reading(store.shown):
        infos = store.filesystem.get_file_info(selector)
    for info in infos:
        parts = info.path.removeprefix(f"{store.base}/").split("/")
        if (info.type == fs.FileType.Directory and len(parts) > 2) or len(parts) < 2 or not OURS.match("/".join(parts[:2])):
            continue
        if info.type == fs.FileType.Directory and info.mtime is None:  # of a bucket: perhaps a writer has just begun
            continue
        place, touched = "/".join(parts[:2]), info.mtime.timestamp() if info.mtime else 0.0
        if len(parts) > 3 and parts[0] in STAGES and parts[2].startswith(DATA):
            folders, folder = data.setdefault(place, {}), "/".join(parts[:3])
            folders[folder] = max(folders.get(folder, 0.0), touched)
        if len(parts) == 3 and parts[2] == RECORD and parts[0] in STAGES:
            finished.add(place)
        newest[place] = max(newest.get(place, 0.0), touched)
    for place in finished:
        if len(data.get(place, {})) > 1 and (artifact := store.at(place)) is not None:
            newest |= {folder: touched for folder, touched in data[place].items() if folder != artifact.record.files_place}
    keys = {place.rpartition("-")[2] for place in finished}
    now = time.time()
    return sorted(
        place
        for place, touched in newest.items()
        if place not in finished and now - touched >= max(older_than_s, _kept_s(place, finished_keys=keys))
    )


def _kept_s(place: str, *, finished_keys: Set[str]) -> float:
    """How long (s) it stays, whatever a person asks for: somebody who cannot be seen from here may need it."""
    kind, _, name = place.partition("/")
    if kind == RUNNING:
        return -math.inf if name in finished_keys else UNFINISHED_KEPT_S
    maker = maker_of(name) if kind == STAGING else None
    return {"living": math.inf, "elsewhere": ELSEWHERE_KEPT_S, "dead": -math.inf, None: -math.inf}[maker]


def collect_garbage(store: ArtifactStore, *, older_than_s: float = 3600.0) -> list[str]:
    """Remove the orphans; returns the places of those that were still there, and still orphans."""
    return [place for place in orphans(store, older_than_s=older_than_s) if _remove(store, place)]


def _remove(store: ArtifactStore, place: str) -> bool:
    path = f"{store.base}/{place}"
    with writing(store.shown), suppress(FileNotFoundError):
        if place.partition("/")[0] in STAGES and store.filesystem.get_file_info(f"{path}/{RECORD}").type == fs.FileType.File:
            return False
        if store.filesystem.get_file_info(path).type == fs.FileType.File:
            store.filesystem.delete_file(path)
        else:
            store.filesystem.delete_dir(path)
        return True
    return False


def dependents(store: ArtifactStore, artifact: Artifact) -> list[Artifact]:
    """The artifacts that were made from this one, directly or through others; each comes before those that it was made from."""
    found: list[Artifact] = []
    keys = {artifact.key}
    left = list(store.artifacts())
    while made := [one for one in left if keys.intersection(one.record.inputs)]:
        found += made
        keys |= {one.key for one in made}
        left = [one for one in left if one.key not in keys]
    ordered: list[Artifact] = []
    while found:
        needed = {key for one in found for key in one.record.inputs}
        ordered += [one for one in found if one.key not in needed]
        found = [one for one in found if one.key in needed]
    return ordered
