"""Keep the report of a sweep in the store, and draw it again only if its inputs or the code changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from sentdist.files import code_digest
from sentdist.report.leaks import current_overlaps
from sentdist.store.chosen import confirmed_name
from sentdist.store.searches import find_search
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep, sweep_names

MADE_OF = "made_of.json"  # digest of a report's inputs, and the names of its files


def keep_report(store: ArtifactStore, name: str, folder: Path, *, links: Mapping[str, str] | None = None) -> str:
    """Put the report of a sweep or search under `reports/` in the store and into a local folder; return the URI of its page.

    A report of the same trials, records and code is not drawn again, since drawing takes seconds. links: see `report_sweep`.

    Raises:
        StoreError: as `report_sweep`; or the store cannot be read or written.
    """
    place, made_of = f"reports/{name}", _made_of(store, name, links or {})
    if not _fetch(store, place, folder, made_of=made_of):
        _draw(store, name, folder, links=links or {})
        names = sorted(path.name for path in folder.iterdir())
        store.files.write_text(f"{place}/{MADE_OF}", "{}")  # a process that dies between two files leaves no valid report
        store.files.write_folder(folder, place)
        store.files.write_text(f"{place}/{MADE_OF}", json.dumps({"made_of": made_of, "files": names}))
    return f"{store.files.uri(place)}/report.html"


def _draw(store: ArtifactStore, name: str, folder: Path, *, links: Mapping[str, str]) -> None:
    from sentdist.report.sweep_report import report_sweep  # imports matplotlib, which takes a second

    report_sweep(store, name, links=links).write(folder)


def _fetch(store: ArtifactStore, place: str, folder: Path, *, made_of: str) -> bool:
    """Copy the files of the stored report; False if it has other inputs or is incomplete."""
    try:
        kept = json.loads(store.files.content(f"{place}/{MADE_OF}") or b"{}")
        names = kept["files"] if kept["made_of"] == made_of else []
    except (ValueError, TypeError, KeyError):
        return False
    contents = {name: store.files.content(f"{place}/{name}") for name in names}
    for name, content in contents.items():
        if content is None:
            return False
        (folder / name).write_bytes(content)
    return bool(contents)


def _made_of(store: ArtifactStore, name: str, links: Mapping[str, str]) -> str:
    """A digest of all that `report_sweep` reads, and of the code."""
    digest = hashlib.sha256(code_digest().encode())
    for part in _parts(store, name):
        digest.update(f"{part}\0".encode())
    digest.update(json.dumps(sorted(links.items())).encode())
    return digest.hexdigest()


def _parts(store: ArtifactStore, name: str) -> Iterator[str]:
    search = find_search(store, name)
    if search is not None:
        yield search.model_dump_json()
    for sweep_name in (name, confirmed_name(name)):
        if sweep_name in sweep_names(store):
            sweep = load_sweep(store, sweep_name)
            yield sweep.model_dump_json()
            yield from (record.model_dump_json() for _, record in sorted(sweep.records(store).items()))
    yield from sorted(overlap.record.model_dump_json() for overlap in current_overlaps(store))
