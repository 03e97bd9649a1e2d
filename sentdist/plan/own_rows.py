"""What a recipe comes to once it is known what the rows of a person's own file are."""

from __future__ import annotations

from collections.abc import Iterator

from sentdist.plan.corpora.own import OwnSection
from sentdist.plan.recipe import Recipe, recipe_from_values
from sentdist.plan.resolver import Resolver
from sentdist.plan.stage import Json

BATCH_SIZE = "training.batch_size"
MANY_LEFT = 0.1  # of the rows


def for_its_rows(recipe: Recipe, resolver: Resolver) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with the methods that are for the rows of a person's own file, and what there is to tell of it."""
    if not isinstance(recipe.corpus, OwnSection):
        return recipe, ()
    pin = recipe.corpus.pinned(resolver, where="corpus")
    unfit = [name for name, method in recipe.methods.items() if method.shapes and pin.rows.shape not in method.shapes]
    values = recipe.model_dump(exclude_unset=True)
    values["corpus"] = values["corpus"] | {"shape": pin.rows.shape}  # so that who has the recipe alone knows what its tasks are called
    varied = {*recipe.sweep, *(recipe.search.space if recipe.search is not None else ())}
    said = (*pin.notes, *(() if BATCH_SIZE in varied else _left_over(pin.num_rows, recipe.training.batch_size)))
    if not unfit:
        return recipe_from_values(values, where=recipe.name), said
    values["methods"] = {name: method for name, method in values["methods"].items() if name not in unfit}
    values["sweep"] = _without(unfit, values.get("sweep", {}))
    if values.get("search") is not None:
        values["search"] = values["search"] | {"space": _without(unfit, values["search"]["space"])}
    left_out = f"Not for {pin.rows.shape}: {', '.join(recipe.methods[name].title or name for name in unfit)}"
    return recipe_from_values(values, where=f"{recipe.name} for {pin.rows.shape}"), (*said, left_out)


def _left_over(num_rows: int, batch_size: int) -> Iterator[str]:
    """A sentence where many rows fill no last batch."""
    left = num_rows % batch_size
    if num_rows >= batch_size and left >= MANY_LEFT * num_rows:
        yield (
            f"{left} of {num_rows} training rows fill no batch of {batch_size}: each epoch leaves out as many. "
            "A batch size that divides the rows leaves out none."
        )


def _without(methods: list[str], paths: dict[str, Json]) -> dict[str, Json]:
    """Fields by their paths, less those of some methods."""
    return {path: value for path, value in paths.items() if path.split(".")[:2] not in [["methods", name] for name in methods]}
