"""What in a store is of no use any more, and what depends on what."""

from __future__ import annotations

import time

from pyarrow import fs

from sentdist.plan.stages import STAGES
from sentdist.store.access import reading, writing
from sentdist.store.store import ASIDE, RECORD, STAGING, Artifact, ArtifactStore


def orphans(store: ArtifactStore, *, older_than_s: float = 3600.0) -> list[str]:
    """Places of no use: data without a record and staging folders, which a crash left, and what was moved aside, untouched for a while.

    Only folders of the store's own kinds are looked at, so that a root named by mistake loses nothing.
    """
    selector = fs.FileSelector(store.base, recursive=True, allow_not_found=True)
    newest: dict[str, float] = {}
    finished: set[str] = set()
    with reading(store.shown):
        infos = store.filesystem.get_file_info(selector)
    for info in infos:
        parts = info.path.removeprefix(f"{store.base}/").split("/")
        if (info.type == fs.FileType.Directory and len(parts) > 2) or len(parts) < 2 or parts[0] not in (*STAGES, STAGING, ASIDE):
            continue
        place = "/".join(parts[:2])
        if len(parts) == 3 and parts[2] == RECORD and parts[0] not in (STAGING, ASIDE):
            finished.add(place)
        newest[place] = max(newest.get(place, 0.0), info.mtime.timestamp() if info.mtime else 0.0)
    horizon = time.time() - older_than_s
    return sorted(place for place, touched in newest.items() if place not in finished and touched <= horizon)


def collect_garbage(store: ArtifactStore, *, older_than_s: float = 3600.0) -> list[str]:
    """Remove the orphans; returns their places."""
    places = orphans(store, older_than_s=older_than_s)
    for place in places:
        path = f"{store.base}/{place}"
        with writing(store.shown):
            if store.filesystem.get_file_info(path).type == fs.FileType.Directory:
                store.filesystem.delete_dir(path)
            else:
                store.filesystem.delete_file(path)
    return places


def dependents(store: ArtifactStore, artifact: Artifact) -> list[Artifact]:
    """The artifacts that were made from this one, directly or through others; what was made last comes first."""
    found: list[Artifact] = []
    keys = {artifact.key}
    left = list(store.artifacts())
    while made := [one for one in left if keys.intersection(one.record.inputs)]:
        found += made
        keys |= {one.key for one in made}
        left = [one for one in left if one.key not in keys]
    return found[::-1]
