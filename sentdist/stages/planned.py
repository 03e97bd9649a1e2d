"""From a recipe's file to its plan and the place where it is carried out; no torch, no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentdist.plan.recipe import check_unique_name, load_recipe
from sentdist.plan.unroll import Plan, unroll
from sentdist.stages.context import Context
from sentdist.stages.resolve import FileResolver
from sentdist.store.store import ArtifactStore


def planned(path: Path, *, overrides: Sequence[str] = (), store: str, data: Path | None = None) -> tuple[Plan, Context]:
    """The plan of a recipe, and where it is to be carried out; places are made absolute, because workers run in other folders."""
    recipe = load_recipe(path, overrides)
    check_unique_name(path, recipe.name)
    root = None if data is None else data.expanduser().absolute()
    resolver = FileResolver(data_root=root)
    plan = unroll(recipe, resolver)
    place = store if "://" in store else str(Path(store).expanduser().absolute())
    folders = tuple(sorted(resolver.folders.items()))
    return plan, Context(store=ArtifactStore(place), data_root=None if root is None else str(root), runtime=recipe.runtime, folders=folders)
