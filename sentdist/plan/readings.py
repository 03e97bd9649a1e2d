"""Which encoders a view has a meaning for."""

from __future__ import annotations

from sentdist.errors import RecipeError
from sentdist.plan.corpora import AnyCorpus, RelationalCorpus
from sentdist.plan.objectives import Objective, Relational, terms_of
from sentdist.plan.specs import View
from sentdist.plan.wording import not_one_of


def relations_of(objective: Objective, corpus: AnyCorpus) -> tuple[str, ...]:
    """Names of the relations that an encoder learns vectors of, in their order; empty where it has no relation table."""
    is_relational = any(isinstance(term, Relational) for term in terms_of(objective))
    return corpus.relation_names if is_relational and isinstance(corpus, RelationalCorpus) else ()


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
