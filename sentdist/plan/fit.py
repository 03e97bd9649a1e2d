"""Which objectives have a meaning on which corpora, and what an objective's defaults stand for there."""

from __future__ import annotations

from sentdist.errors import RecipeError
from sentdist.plan.corpora import AnyCorpus, GradedCorpus, RelationalCorpus
from sentdist.plan.objectives import (
    Entropy,
    InfoNCE,
    Objective,
    Regression,
    Regularized,
    Relational,
    Single,
    Sum,
    SupMPN,
    Term,
    terms_of,
    with_phi,
)

CONTRASTIVE = (InfoNCE, Entropy, Regularized, SupMPN, Relational)


def check_fit(objective: Objective, corpus: AnyCorpus, *, where: str) -> None:
    """Refuse an objective whose terms find on this corpus not what they need.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        reason = _misfit(term, corpus)
        if reason is not None:
            found, expected, remedy = reason
            raise RecipeError(where=f"{where}: {term.name} on {corpus.label}", found=found, expected=expected, remedy=remedy)


def settled(objective: Objective, corpus: AnyCorpus, *, phi: float | None) -> Objective:
    """One spelling per value: what a default stands for is written out, so that equal objectives have equal keys."""
    if phi is not None:
        objective = with_phi(objective, phi)
    if isinstance(objective, Sum):
        terms = tuple(Term(weight=term.weight, objective=_settled_term(term.objective, corpus)) for term in objective.terms)
        return Sum(terms=terms)
    return _settled_term(objective, corpus)


def _settled_term(term: Single, corpus: AnyCorpus) -> Single:
    changes: dict[str, object] = {}
    if corpus.num_columns == 1 + corpus.num_positives and hasattr(term, "hard_negatives"):
        changes["hard_negatives"] = False
    if isinstance(term, Regularized) and term.regulator_temperature is None:
        changes["regulator_temperature"] = term.temperature
    return term.model_validate(term.model_dump() | changes)


def _misfit(term: Single, corpus: AnyCorpus) -> tuple[str, str, str] | None:
    """(found, expected, remedy), or None where the term fits."""
    is_graded = isinstance(corpus, GradedCorpus)
    if isinstance(term, Regression) and not is_graded:
        return "rows without labels", "graded pairs", "Name a corpus of kind graded."
    if isinstance(term, CONTRASTIVE) and is_graded:
        return (
            "graded pairs, of which most are no positives",
            "anchors with positives",
            "Use the objective regression, or a corpus of kind rows.",
        )
    if isinstance(term, Relational) and not isinstance(corpus, RelationalCorpus):
        return "rows of no relation", "rows that name their relation", "Name a corpus of kind relations."
    if isinstance(term, InfoNCE | Entropy | Regularized | Relational) and corpus.num_positives > 1:
        return f"{corpus.num_positives} positives an anchor", "one positive an anchor", "Use the objective supmpn, or num_positives: 1."
    if isinstance(term, SupMPN) and corpus.num_columns == 1 + corpus.num_positives:
        return "no hard negatives", "at least one hard negative an anchor", "Use info_nce, or a corpus with negatives."
    return None
