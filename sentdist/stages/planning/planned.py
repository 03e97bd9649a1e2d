"""From a recipe, or the name of an encoder, to what is to be built and the place where that is done; no torch, no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sentdist.data.sources.mirror import address_of
from sentdist.errors import RecipeError
from sentdist.learning.encoder.packaged import PACKAGED_ENCODERS, check_has_no_revision
from sentdist.plan.evaluation import evaluation_of
from sentdist.plan.grid import check_takes_effect
from sentdist.plan.recipe import Recipe
from sentdist.plan.runtime import Runtime
from sentdist.plan.specs import EncoderUse
from sentdist.plan.stages import Scores
from sentdist.plan.suggestions import PlannedSearch, searched
from sentdist.plan.unroll import Plan, unroll
from sentdist.stages.context import Context
from sentdist.stages.planning.resolve import FileResolver
from sentdist.stages.planning.task_contents import contents_of, search_with_contents, with_contents
from sentdist.store.store import ArtifactStore


def planned(path: Path, *, overrides: Sequence[str] = (), store: str, data: Path | None = None) -> tuple[Plan, Context]:
    """The plan of a recipe's file, and where it is to be built.

    Raises:
        RecipeError, DataError, EncoderError: as `Recipe.load`, `check_takes_effect` and `unroll`.
    """
    recipe = Recipe.load(path, overrides)
    check_takes_effect(recipe, overrides)
    return planned_recipe(recipe, store=store, data=data)


def requested(recipe: Recipe, *, store: str, data: Path | None = None) -> tuple[Plan | PlannedSearch, Context]:
    """What a recipe asks for, its trials or a search for them, and where that is to be built.

    Raises:
        RecipeError, DataError, EncoderError: as `planned_recipe` and `planned_search`.
    """
    return (planned_recipe if recipe.search is None else planned_search)(recipe, store=store, data=data)


def planned_trials(recipe: Recipe, *, store: str, data: Path | None = None) -> tuple[Plan, Context]:
    """As `planned_recipe`, of a recipe whose trials are known before it runs.

    Raises:
        RecipeError: a recipe with `search`. Others as `planned_recipe`.
    """
    if recipe.search is not None:
        raise RecipeError(
            where=f"{recipe.name}: search", found="a search, which suggests its trials as it goes", expected="a recipe without one",
            remedy="`sweep` carries it out; `sentdist plan` shows its space.",
        )  # fmt: skip
    return planned_recipe(recipe, store=store, data=data)


def planned_recipe(recipe: Recipe, *, store: str, data: Path | None = None, resolver: FileResolver | None = None) -> tuple[Plan, Context]:
    """The plan of a recipe, and where it is to be built; places are made absolute, because workers run in other folders.

    resolver: that has looked at the files; None: a new one.
    """
    resolver = resolver or _resolver(data)
    plan = unroll(recipe, resolver)
    context = _context(recipe, resolver, store)
    return with_contents(plan, context), context


def planned_search(
    recipe: Recipe, *, store: str, data: Path | None = None, resolver: FileResolver | None = None
) -> tuple[PlannedSearch, Context]:
    """The search of a recipe, and where it is to be built. resolver: as of `planned_recipe`.

    Raises:
        RecipeError, DataError, EncoderError: as `searched`.
    """
    resolver = resolver or _resolver(data)
    found = searched(recipe, resolver)
    context = replace(_context(recipe, resolver, store), shares=found.search.shares)
    return search_with_contents(found, context), context


def _resolver(data: Path | None) -> FileResolver:
    return FileResolver(data_root=None if data is None else data.expanduser().absolute())


def _context(recipe: Recipe, resolver: FileResolver, store: str) -> Context:
    root = resolver.data_root
    place = store if "://" in store else str(Path(store).expanduser().absolute())
    folders = dict(sorted(resolver.folders.items()))
    return Context(store=ArtifactStore(place), data_root=address_of(root), runtime=recipe.runtime, folders=folders)


def planned_evaluation(
    use: EncoderUse, tasks: Sequence[str], *, runtime: Runtime, store: ArtifactStore, data: Path | None, command: str = "evaluate"
) -> tuple[Scores, Context, tuple[str, ...]]:
    """The scores of one encoder as a stage, where it is to be built, and notes on the data. Embeddings of its
    sentences are kept for other tasks. Which prompts stand before them is left to the caller.

    command: named in errors. Of a use without a pooling the hub is asked what the encoder declares.

    Raises:
        RecipeError, DataError, EncoderError: as `evaluation_of`.
    """
    if use.checkpoint in PACKAGED_ENCODERS or Path(use.checkpoint).expanduser().is_dir():
        check_has_no_revision(use.checkpoint, use.revision)
    resolver = FileResolver(data_root=data, needs_hub=True, adds_prompts=True)
    stage = evaluation_of(use, tasks, resolver, command=command)
    context = Context(
        store=store,
        data_root=address_of(data),
        runtime=runtime,
        folders=resolver.folders,
        keeps_embeddings=True,
    )
    return stage, context, (*resolver.all_notes, *contents_of([stage], context).notes)
