"""The scores of any encoder on tasks or groups of tasks, without a recipe."""

from __future__ import annotations

from collections.abc import Sequence

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.resolver import Resolver
from sentdist.plan.specs import EncoderUse
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores
from sentdist.plan.unroll import Builder


def evaluation_of(use: EncoderUse, tasks: Sequence[str], resolver: Resolver) -> Scores:
    """The scores of an encoder: those of a recipe of one method, with its checks. A use without a pooling takes what the encoder declares,
    else the mean.

    Raises:
        RecipeError, DataError, EncoderError: as `unroll`.
    """
    resolver.encoder(use.checkpoint, revision=use.revision, where="encoder")
    pooling = use.pooling or resolver.declared_pooling(use.checkpoint, revision=use.revision) or "mean"
    values: dict[str, Json] = {
        "name": "evaluate", "encoder": {"checkpoint": use.checkpoint, "revision": use.revision, "pooling": pooling},
        "corpus": {"source": "none"}, "evaluation": {"tasks": list(tasks), "max_length": use.max_length, "precision": use.precision},
        "methods": {"base": {}},
    }  # fmt: skip
    return Builder(recipe_from_values(values, where="sentdist evaluate"), resolver, {}).scores("base", seed=0, fold=None)
