"""Where a stage is built: the store, the data, and the runtime; nothing in here changes what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sentdist.data.sources.mirror import data_folder
from sentdist.plan.runtime import Runtime
from sentdist.store.store import ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Context:
    """Travels to workers by pickle."""

    store: ArtifactStore
    data_root: str | None = None  # a folder, or an address
    runtime: Runtime = field(default_factory=Runtime)
    folders: Mapping[str, str] = field(default_factory=dict)  # revision of an encoder or a file of one's own given by path -> its folder
    shares: tuple[float, ...] = ()  # at which trainings may have been left as rungs, see `stages.rungs`
    keeps_embeddings: bool = False  # of test sentences, for other tasks of the same encoder

    @property
    def data_folder(self) -> Path | None:
        """The data root as a folder of this machine: a mirror, where it is an address."""
        return data_folder(self.data_root)
