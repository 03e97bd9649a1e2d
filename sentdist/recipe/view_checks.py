"""Check views (channels, relations) and links of a recipe against its encoders, and note unused methods, corpora and views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sentdist.corpora.relations import RelationalCorpus
from sentdist.errors import RecipeError
from sentdist.families import POOLINGS, PoolingName
from sentdist.objectives.auxiliary import Auxiliary
from sentdist.objectives.channels import Channels, mismatch_of_channels
from sentdist.recipe.checks import UNTOUCHED, inputs_of
from sentdist.recipe.objectives import AnyObjective, Sum, has_field, names_where, terms_of, value_of
from sentdist.recipe.recipe import Recipe
from sentdist.recipe.sections import Method
from sentdist.recipe.specs import Probes, View
from sentdist.recipe.stage import topological
from sentdist.recipe.stages import Train
from sentdist.recipe.wording import not_one_of
from sentdist.tasks.links import LinkTask


def check_channels(view: View, probes: Probes | None, *, width: int | None, where: str) -> None:
    """Raise RecipeError for channels of views or probes that an encoder does not have.

    Args:
        width: Of the encoder's embeddings; None if planning cannot know it.
    """
    if probes is not None and probes.channels is not None and width is not None:
        mismatch = mismatch_of_channels(probes.channels, width)
        if mismatch is not None:
            raise mismatch.refused("evaluation.probes.channels")
    if view.channels is None or isinstance(view.channels, str):
        return
    first, last = view.channels
    if not 0 <= first < last or (width is not None and last > width):
        expected = f"two numbers from 0 to {width or 'the width'}, the lower one first"
        raise RecipeError(where=f"{where}.channels", found=f"{first} to {last}", expected=expected, remedy="Correct the view.")


def parts_of(objective: AnyObjective, width: int) -> dict[str, tuple[int, int]] | None:
    """Return the channels [first, end) of tags and words; None if the objective does not assign them."""
    term = next((term for term in terms_of(objective) if isinstance(term, Auxiliary)), None)
    if term is None:
        return None
    channels = Channels.of(width, term.channels)
    return {"tags": (0, channels.pos), "words": (channels.pos, width)}


def settled_view(view: View, objective: AnyObjective | None, *, width: int | None, where: str) -> View:
    """Return the view with a named part replaced by channel numbers, if the encoder's width is known.

    Raises:
        RecipeError: a part of an encoder without parts, or other channels of an encoder with parts.
    """
    if view.channels is None:
        return view
    parts = None if objective is None else parts_of(objective, width or 768)
    if isinstance(view.channels, str):
        if parts is None:
            raise RecipeError(
                where=f"{where}.channels",
                found=f"{view.channels} of an encoder without separate channels for them",
                expected=f"an encoder trained with the objective {names_where(targets=True)}",
                remedy="Name two numbers, or leave channels out.",
            )
        return view if width is None else view.model_copy(update={"channels": parts[view.channels]})
    if parts is not None and width is not None and view.channels not in parts.values():
        tags, words = (f"{first} to {last}" for first, last in parts.values())
        expected, remedy = f"a part of this encoder: tags ({tags}) or words ({words})", "Write channels: tags, or channels: words."
        raise RecipeError(where=f"{where}.channels", found=f"{view.channels[0]} to {view.channels[1]}", expected=expected, remedy=remedy)
    return view


def chosen_by(shared: View, own: View, *, method: str) -> View:
    """Return the view for choosing a method's checkpoints; a method scored by relations is also selected by them, without the curve.

    Args:
        shared: View of the recipe's selection.
        own: View of the method.

    Raises:
        RecipeError: a shared view that does not go with relations.
    """
    if shared.relations is not None or own.relations is None:
        return shared
    if shared != View():
        raise RecipeError(
            where="selection.view",
            found=f"channels or postprocess beside methods.{method}.view.relations",
            expected="whole embeddings without postprocessing, with which relations are trained",
            remedy="Leave them out, or put this method into a separate recipe.",
        )
    return View(relations=own.relations.model_copy(update={"curve": None}))


def check_view(view: View, relations: tuple[str, ...], *, where: str) -> None:
    """Raise RecipeError for a view with relations that the encoder does not have."""
    if view.relations is None:
        return
    if not relations:
        expected, remedy = "an encoder trained with the objective rse", "Leave relations out of this view, or train with rse."
        raise RecipeError(where=f"{where}.relations", found="an encoder without relations", expected=expected, remedy=remedy)
    for relation in view.relations.relations:
        if relation not in relations:
            found, remedy = not_one_of(relation, relations), "Name relations of the encoder's corpus."
            raise RecipeError(where=f"{where}.relations.weights", found=found, expected="", remedy=remedy)


def check_space(pooling: PoolingName, objective: AnyObjective, view: View, *, ranks_by_relations: bool, where: str) -> None:
    """Raise RecipeError if relations would be added to other embeddings than those they were trained with.

    These are embeddings of a pooling that differs at test, parts of embeddings, and embeddings without a projection layer of training.
    """
    if not ranks_by_relations and view.relations is None:
        return
    if isinstance(objective, Sum) and any(term.projected and term.objective.needs.relations for term in objective.terms):
        raise RecipeError(
            where=f"{where}.objective.terms",
            found="projected: true for the term that learns relations, in the space of a layer that is dropped at test",
            expected="projected: false there, for scores by relations",
            remedy="Leave projected out of that term, or score without relations.",
        )
    if POOLINGS[pooling].is_other_at_test:
        raise RecipeError(
            where=f"{where}: encoder.pooling",
            found=f"{pooling}, whose embeddings at test differ from those in training, where relations were learned",
            expected="a pooling that is the same at test, for scores by relations",
            remedy="Use pooling cls_mlp, or score without relations.",
        )
    if view.channels is not None or view.postprocess != "none":
        raise RecipeError(
            where=f"{where}.view",
            found="some channels" if view.channels else f"postprocess {view.postprocess}",
            expected="whole embeddings, to which evaluation.links adds the relations trained with them",
            remedy="Leave that out of the view, or score it in a recipe without links.",
        )


def check_links(task: LinkTask, train: Train | None, *, where: str) -> None:
    """Raise RecipeError if an encoder may have been trained on pairs to rank: on the same files with other held-out pairs, or none."""
    tested = {part.name: part for part in task.relations}
    files = {file for part in task.relations for file in part.sources}
    for corpus in topological((train,)) if train is not None else ():
        if not isinstance(corpus, RelationalCorpus):
            continue
        held_out_alike = (corpus.held_out, corpus.seed) == (task.held_out, task.seed)
        for part in corpus.relations:
            is_known = held_out_alike and tested.get(part.name) == part.model_copy(update={"cap": None})
            if not is_known and not files.isdisjoint(part.sources):
                raise RecipeError(
                    where=f"{where}: evaluation.links",
                    found=f"{corpus.held_out} pairs of {part.name} held out from training with seed {corpus.seed}",
                    expected=f"the ranked pairs held out: {task.held_out}, seed {task.seed}, of a relation with the same "
                    "name, files and columns",
                    remedy="Give both corpora the same held_out and seed; otherwise training pairs are ranked.",
                )


def left_over_at_all(points: Sequence[Recipe]) -> list[str]:
    """Return a note for each method, corpus, view or phi that is unused at every point of a grid or search."""
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
    yield from (f"corpora.{name} is not read: no trained method names it." for name in recipe.corpora if name not in read)
    for name in methods:
        if name in needed:
            yield from _unused_phi(name, {other: methods[other] for other in methods if other in needed})


def _has_unread_view(method: Method) -> bool:
    """Return whether a method without scores has a view; relations count as used, because they also choose checkpoints."""
    return not method.reported and (method.view.channels is not None or method.view.postprocess != UNTOUCHED.view.postprocess)


def _unused_phi(name: str, needed: dict[str, Method]) -> Iterator[str]:
    """Yield a note if a method is trained only with the phis of other methods, and its own phi is none of them."""
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
