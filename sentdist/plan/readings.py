"""Which encoders a view or a task has a meaning for."""

from __future__ import annotations

from sentdist.errors import RecipeError
from sentdist.plan.corpora import AnyCorpus, RelationalCorpus
from sentdist.plan.corpora.relations import LinkTask
from sentdist.plan.objectives import Objective, terms_of
from sentdist.plan.specs import View
from sentdist.plan.stage import topological
from sentdist.plan.stages import Train
from sentdist.plan.wording import not_one_of


def relations_of(objective: Objective, corpus: AnyCorpus) -> tuple[str, ...]:
    """Names of the relations that an encoder learns vectors of, in their order; empty where it has no relation table."""
    return corpus.relation_names if any(term.needs.relations for term in terms_of(objective)) else ()


def check_view(view: View, relations: tuple[str, ...], *, where: str) -> None:
    """Refuse scoring by relations that the encoder does not have.

    Raises:
        RecipeError: naming the relation and those there are.
    """
    if view.relations is None:
        return
    if not relations:
        raise RecipeError(
            where=f"{where}.relations",
            found="an encoder without relations",
            expected="one that the objective rse has trained",
            remedy="Leave relations out of this view, or train with rse.",
        )
    for relation in view.relations.relations:
        if relation not in relations:
            raise RecipeError(
                where=f"{where}.relations.weights",
                found=not_one_of(relation, relations),
                expected="relations of the encoder's corpus",
                remedy="Correct the name.",
            )


def check_links(task: LinkTask, train: Train | None, *, where: str) -> None:
    """Refuse to rank held-out pairs for an encoder that may have learned them: one that read the same files and held out others, or none.

    Raises:
        RecipeError: naming the relation.
    """
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
                    expected=f"the pairs that are ranked: {task.held_out}, seed {task.seed}, of a relation of the same name, files and columns",
                    remedy="Give both corpora the same held_out and seed, or the ranks are those of pairs it has learned.",
                )
