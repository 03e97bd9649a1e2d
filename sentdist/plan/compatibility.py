"""Which objectives have a meaning for which rows, encoders and starts, and what an objective's defaults stand for there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective_spec import Mismatch, Rows, Start
from sentdist.plan.corpora import AnyCorpus
from sentdist.plan.objectives import (
    OBJECTIVES,
    AnyObjective,
    Single,
    Sum,
    has_field,
    names_where,
    terms_of,
    uses_hard_negatives,
    with_phi,
    with_terms,
)
from sentdist.plan.resolver import Pin
from sentdist.plan.selection import Selection
from sentdist.plan.specs import Training
from sentdist.plan.stages import Train


def check_fit(objective: AnyObjective, corpus: Rows, *, where: str) -> None:
    """Refuse an objective whose terms need something that the corpus lacks.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        mismatch = _mismatch_of_needs(term, corpus)
        if mismatch is not None:
            raise mismatch.refused(f"{where}: {term.name} on {corpus.label}")
    check_values(objective, corpus, where=where)


def check_values(objective: AnyObjective, corpus: Rows, *, where: str) -> None:
    """Refuse an objective whose values have no meaning on rows that have all it needs.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        mismatch = term.mismatch(corpus)
        if mismatch is not None:
            raise mismatch.refused(f"{where}: {term.name} on {corpus.label}")


def check_encoder(objective: AnyObjective, *, pooling: str, pin: Pin, where: str) -> None:
    """Refuse an objective that has no meaning for an encoder, as far as planning can know it.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        mismatch = term.mismatch_of_encoder(pooling=pooling, width=pin.width_with(pooling), has_mask_token=pin.has_mask_token)
        if mismatch is not None:
            raise mismatch.refused(f"{where}.{mismatch.where}" if mismatch.where else f"{where}: {term.name}")


def check_start(objective: AnyObjective, corpus: AnyCorpus, start: Train | None, *, where: str) -> None:
    """Refuse to keep what the encoder to start from does not have.

    Raises:
        RecipeError: no start, nothing to keep there, or something of another shape.
    """
    for term in terms_of(objective):
        mismatch = term.mismatch_of_start(None if start is None else _start(start, term, objective), corpus)
        if mismatch is not None:
            raise mismatch.refused(f"{where}: {mismatch.where}")


def check_frozen(training: Training, objective: AnyObjective, selection: Selection | None, *, where: str) -> None:
    """Refuse a frozen encoder where nothing is trained beside it, and what has no effect there.

    Raises:
        RecipeError: with the reason.
    """
    if not training.freeze_encoder:
        return
    # A layer in front of a term is trained, too: SimCSE's, which is dropped at test.
    terms = [term.objective for term in objective.terms if not term.projected] if isinstance(objective, Sum) else [objective]
    for term in terms:
        mismatch = term.mismatch_of_frozen_encoder()
        if mismatch is not None:
            found = mismatch._replace(found=f"{mismatch.found}, beside an encoder that is frozen")
            raise found.refused(f"{where}: training.freeze_encoder with {term.name}")
    if training.layer_decay != 1.0:
        mismatch = Mismatch(f"{training.layer_decay:g} for layers that do not move", "1 beside freeze_encoder", "Set layer_decay: 1 there.")
        raise mismatch.refused(f"{where}.training.layer_decay")
    if selection is not None and selection.view.relations is None:
        mismatch = Mismatch(
            found=f"{selection.name} to choose a checkpoint of an encoder that is frozen: all have one score, and the first would be kept",
            expected="the last weights",
            remedy="Set select: false there.",
        )
        raise mismatch.refused(f"{where}.select")


def relations_of(objective: AnyObjective, corpus: AnyCorpus) -> tuple[str, ...]:
    """Names of the relations that an encoder learns vectors of, in their order; empty where it has no relation table."""
    return corpus.relation_names if any(term.needs.relations for term in terms_of(objective)) else ()


def remarks(objective: AnyObjective, corpus: AnyCorpus, *, where: str) -> Iterator[str]:
    """Sentences on what a user may not have meant, of a training that can be done."""
    for term in terms_of(objective):
        if term.remark is not None:
            yield f"{where}: {term.name} {term.remark}."
    used = 1 + corpus.num_positives
    is_chosen = any(has_field(term, "hard_negatives") for term in terms_of(objective))
    if used < corpus.num_columns and not is_chosen and not uses_hard_negatives(objective):
        yield f"{where}: {objective.name} reads no hard negatives: it trains on {used} of {corpus.num_columns} columns of {corpus.label}."


def unheeded(written: AnyObjective, corpus: Rows, *, where: str) -> Iterator[str]:
    """Values that a person has written and rows settle otherwise: sentences."""
    for term in terms_of(written):
        as_settled = _settled_term(term, corpus=corpus, phi=None)
        for name in sorted(term.model_fields_set):
            value, instead = getattr(term, name), getattr(as_settled, name)
            if value is not None and value != instead:
                reason = "have no hard negatives" if name == "hard_negatives" else f"make it {json.dumps(instead)}"
                yield f"{where}: {name} {json.dumps(value)} of {term.name} has no effect: the rows of {corpus.label} {reason}."


def settled(objective: AnyObjective, corpus: Rows, *, phi: float | None) -> AnyObjective:
    """One spelling per value: what a default stands for is written out, so that equal objectives have equal keys."""
    return with_terms(objective, partial(_settled_term, corpus=corpus, phi=phi))


def _settled_term(term: Single, *, corpus: Rows, phi: float | None) -> Single:
    if phi is not None:
        term = with_phi(term, phi)
    has_negatives = corpus.num_columns > 1 + corpus.num_positives
    if not has_negatives and has_field(term, "hard_negatives"):
        term = term.model_copy(update={"hard_negatives": False})
    return term.settled(corpus)


def _start(start: Train, term: Single, objective: AnyObjective) -> Start:
    before = {one.name: one for one in terms_of(start.objective)}
    return Start(
        term=before.get(term.name),
        has_same_terms=_names(start.objective) == _names(objective),
        relations=relations_of(start.objective, start.corpus),
    )


def _names(objective: AnyObjective) -> tuple[str, ...]:
    """The objective and its terms by name: what they learn is kept under the places of the terms."""
    return (objective.name, *(term.name for term in terms_of(objective)))


def _mismatch_of_needs(term: Single, corpus: Rows) -> Mismatch | None:
    needs = term.needs
    if needs.labels == "needed" and corpus.labels is None:
        return Mismatch("rows without labels", "graded pairs", "Name a corpus of kind graded.")
    if needs.labels == "refused" and corpus.labels is not None:
        remedy = f"Use the objective {names_where(labels='needed')}, or a corpus of kind rows."
        return Mismatch("graded pairs, of which most are no positives", "anchors with positives", remedy)
    if corpus.num_columns < needs.columns:
        remedy = "Give the corpus two columns: [sentence, sentence] for two views of each."
        return Mismatch("sentences alone", "anchors with positives", remedy)
    if needs.relations and not corpus.relation_names:
        return Mismatch("rows of no relation", "rows that name their relation", "Name a corpus of kind relations.")
    if needs.positives is not None and corpus.num_positives > needs.positives:
        most = "one positive an anchor" if needs.positives == 1 else f"at most {needs.positives} positives an anchor"
        several = [name for name, one in OBJECTIVES.items() if one.needs.positives is None and one.needs.negatives]
        return Mismatch(
            f"{corpus.num_positives} positives an anchor", most, f"Use the objective {' or '.join(several)}, or num_positives: 1."
        )
    if corpus.num_columns - 1 - corpus.num_positives < needs.negatives:
        least = "at least one hard negative an anchor" if needs.negatives == 1 else f"at least {needs.negatives} hard negatives an anchor"
        return Mismatch("no hard negatives", least, f"Use {InfoNCE().name}, or a corpus with negatives.")
    return None
