"""What one request knows of a store. It is asked in a thread, many stages at once, so that a slow store keeps no other request waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sentdist.plan.stage import Stage
from sentdist.store.store import Artifact, ArtifactStore


class ArtifactLookup:
    """Stages that were looked up, with their artifacts. Others build meanwhile: stages that have ended are looked up again (`forget`)."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._known: dict[str, Artifact | None] = {}
        self._ended: set[str] = set()  # since the last question was put

    def unknown(self, stage: Stage, *, is_settled: Callable[[Stage], bool]) -> dict[str, Stage]:
        """What to ask for next, by key: a stage, or the inputs of what the store is known to lack; nothing of what is settled."""
        found: dict[str, Stage] = {}
        seen, left = set[str](), [stage]
        while left:
            one = left.pop()
            if one.key in seen or is_settled(one):
                continue
            seen.add(one.key)
            if one.key not in self._known:
                found[one.key] = one
            elif self._known[one.key] is None:
                left.extend(one.inputs)
        return found

    def found(self, key: str) -> Artifact | None:
        """The artifact of a stage that is known; None if the store has none."""
        return self._known[key]

    async def ask(self, stages: Mapping[str, Stage]) -> None:
        """Ask for stages, by key.

        Raises:
            StoreError: the store cannot be read.
        """
        self._ended.clear()
        artifacts = await asyncio.to_thread(self._store.get_all, stages.values())
        self._known |= {key: artifacts.get(key) for key in stages if key not in self._ended}

    def forget(self, key: str) -> None:
        """Work on a stage has ended: what the store said before counts no more."""
        self._known.pop(key, None)
        self._ended.add(key)
