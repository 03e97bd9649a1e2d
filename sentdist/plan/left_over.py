"""What stands in a recipe and is not built: methods that none needs, corpora that none reads, a view or a phi that nothing uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sentdist.plan.method_checks import UNTOUCHED, inputs_of
from sentdist.plan.objectives import has_field, terms_of, value_of
from sentdist.plan.recipe import Recipe
from sentdist.plan.sections import Method


def left_over_at_all(points: Sequence[Recipe]) -> list[str]:
    """What is left over at every point of a grid or of a search, a line each."""
    first, *others = (list(_left_over(recipe)) for recipe in points)
    return [line for line in first if all(line in lines for lines in others)]


def _left_over(recipe: Recipe) -> Iterator[str]:
    methods, links = recipe.methods, recipe.evaluation.links
    needed = set().union(*(inputs_of(name, methods) for name, method in methods.items() if method.reported))
    read = {methods[name].corpus for name in needed} | ({links.corpus} if links is not None else set())
    for name in methods:
        if name not in needed:
            yield f"methods.{name} is not trained: it is not reported, and no reported method names it (start, bank, of)."
    yield from (f"methods.{name}.view has no effect: it is not reported." for name, one in methods.items() if _has_unread_view(one))
    yield from (f"corpora.{name} is not read: no method that is trained names it." for name in recipe.corpora if name not in read)
    for name in methods:
        if name in needed:
            yield from _unused_phi(name, {other: methods[other] for other in methods if other in needed})


def _has_unread_view(method: Method) -> bool:
    """Whether it says how embeddings are read of a method that is not scored. Its relations also choose checkpoints."""
    return not method.reported and (method.view.channels is not None or method.view.postprocess != UNTOUCHED.view.postprocess)


def _unused_phi(name: str, needed: dict[str, Method]) -> Iterator[str]:
    """A line where a method is trained with the phis of others alone, and its own is none of them."""
    method = needed[name]
    used = [field for other in needed.values() for field, of in other.inputs.items() if of == name and (field != "bank" or not other.phis)]
    instead = {other: one.phis for other, one in needed.items() if one.bank == name and one.phis}
    if method.objective is None or method.reported or used or not instead:
        return
    trained = {phi for phis in instead.values() for phi in phis}
    for term in terms_of(method.objective):
        phi = value_of(term, "phi")
        if has_field(term, "phi") and phi not in trained and phi != type(term).model_fields["phi"].default:
            whose = " and ".join(f"methods.{other}.phis" for other in instead)
            yield f"methods.{name}: phi {phi:g} of {term.name} is not trained: {whose} take{'s' if len(instead) == 1 else ''} its place."
