"""Curves of trainings: beside what a training came to, or, where a search pruned it, all that is kept of it."""

from __future__ import annotations

from sentdist.store.searches import SEARCHES
from sentdist.store.store import ArtifactStore

HISTORY_FILE = "history.jsonl"  # among the files of a training; in a rung, among those of its checkpoint


def read_curve(store: ArtifactStore, place: str, *, within: str = "") -> str:
    """The lines of the history of an artifact, in its folder `within`; "" where there are none.

    Raises:
        StoreError: the store cannot be read, or the file is no text.
    """
    artifact = store.at(place)
    return "" if artifact is None else store.files.read_text(f"{artifact.record.files_place}/{within}{HISTORY_FILE}") or ""


def keep_pruned_curve(store: ArtifactStore, train: str, lines: str) -> None:
    """Keep the lines of a training that was pruned; train: its key.

    Raises:
        StoreError: the store is full or cannot be written.
    """
    store.files.write_text(_place(train), lines)


def read_pruned_curve(store: ArtifactStore, train: str) -> str:
    """The lines that were kept; "" for a training that was not pruned, or was by an older version.

    Raises:
        StoreError: the store cannot be read, or the file is no text.
    """
    return store.files.read_text(_place(train)) or ""


def _place(train: str) -> str:
    return f"{SEARCHES}/curves/{train}.jsonl"
