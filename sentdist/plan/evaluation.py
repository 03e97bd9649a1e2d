"""The scores of any encoder on tasks or groups of tasks, without a recipe."""

from __future__ import annotations

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.resolver import Resolver
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores
from sentdist.plan.unroll import Builder


def evaluation_of(
    checkpoint: str,
    *,
    revision: str | None,
    pooling: str | None,
    tasks: tuple[str, ...],
    max_length: int | None,
    resolver: Resolver,
    precision: str = "fp32",
) -> Scores:
    """The scores of an encoder. pooling: None takes what it declares, else the mean.

    Raises:
        RecipeError, DataError, EncoderError: as `unroll`.
    """
    resolver.encoder(checkpoint, revision=revision, where="encoder")
    pooling = pooling or resolver.declared_pooling(checkpoint, revision=revision) or "mean"
    values: dict[str, Json] = {
        "name": "evaluate", "encoder": {"checkpoint": checkpoint, "revision": revision, "pooling": pooling},
        "corpus": {"source": "none"}, "evaluation": {"tasks": list(tasks), "max_length": max_length, "precision": precision},
        "methods": {"base": {}},
    }  # fmt: skip
    return Builder(recipe_from_values(values, where="sentdist evaluate"), resolver, {}).scores("base", seed=0, fold=None)
