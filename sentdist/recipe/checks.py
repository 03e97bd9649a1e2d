"""Check that a planned training fits its corpus, encoder, start and views, and resolve defaults that depend on the rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sentdist.corpora import AnyCorpus
from sentdist.corpora.relations import RelationalCorpus
from sentdist.errors import RecipeError
from sentdist.families import POOLINGS, PoolingName, with_decoder
from sentdist.objectives.auxiliary import Auxiliary
from sentdist.objectives.channels import Channels, mismatch_of_channels
from sentdist.objectives.objective_spec import Mismatch, Rows, Start
from sentdist.recipe.objectives import (
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
from sentdist.recipe.resolver import Pin
from sentdist.recipe.sections import EncoderSection, Method, Runtime
from sentdist.recipe.specs import EncoderSpec, Training, View
from sentdist.recipe.stage import topological
from sentdist.recipe.stages import Selection, Train
from sentdist.recipe.wording import not_one_of
from sentdist.tasks.links import LinkTask


def check_fit(objective: AnyObjective, corpus: Rows, *, where: str) -> None:
    """Raise RecipeError if the corpus lacks something that a term of the objective needs."""
    for term in terms_of(objective):
        mismatch = _mismatch_of_needs(term, corpus)
        if mismatch is not None:
            raise mismatch.refused(f"{where}: {term.name} on {corpus.label}")
    check_values(objective, corpus, where=where)


def check_values(objective: AnyObjective, corpus: Rows, *, where: str) -> None:
    """Raise RecipeError if values of the objective are invalid for the rows of the corpus."""
    for term in terms_of(objective):
        mismatch = term.mismatch(corpus)
        if mismatch is not None:
            raise mismatch.refused(f"{where}: {term.name} on {corpus.label}")


def _mismatch_of_needs(term: Single, corpus: Rows) -> Mismatch | None:
    needs, num_negatives = term.needs, corpus.num_columns - 1 - corpus.num_positives
    if needs.labels == "needed" and corpus.labels is None:
        return Mismatch("rows without labels", "graded pairs", "Name a corpus of kind graded.")
    if needs.labels == "refused" and corpus.labels is not None:
        remedy = f"Use the objective {names_where(labels='needed')}, or a corpus of kind rows."
        return Mismatch("graded pairs, most of which are not positives", "anchors with positives", remedy)
    if corpus.num_columns < needs.columns:
        remedy = "Give the corpus two columns: [sentence, sentence] for two views of each sentence."
        return Mismatch("sentences alone", "anchors with positives", remedy)
    if needs.relations and not corpus.relation_names:
        return Mismatch("rows without relations", "rows that name their relation", "Name a corpus of kind relations.")
    if needs.positives is not None and corpus.num_positives > needs.positives:
        several = [name for name, one in OBJECTIVES.items() if one.needs.positives is None and one.needs.negatives]
        remedy = f"Use the objective {' or '.join(several)}, or num_positives: 1."
        return Mismatch(f"{corpus.num_positives} positives per anchor", f"at most {needs.positives}", remedy)
    if num_negatives < needs.negatives:
        found = f"{num_negatives or 'no'} hard negatives per anchor"
        return Mismatch(found, f"at least {needs.negatives}", "Use info_nce, or a corpus with negatives.")
    return None


def settled(objective: AnyObjective, corpus: Rows, *, phi: float | None) -> AnyObjective:
    """Return the objective with defaults replaced by the values they stand for on this corpus, so that equal objectives have equal keys."""
    return with_terms(objective, partial(_settled_term, corpus=corpus, phi=phi))


def _settled_term(term: Single, *, corpus: Rows, phi: float | None) -> Single:
    if phi is not None:
        term = with_phi(term, phi)
    if corpus.num_columns <= 1 + corpus.num_positives and has_field(term, "hard_negatives"):
        term = term.model_copy(update={"hard_negatives": False})
    return term.settled(corpus)


def remarks(objective: AnyObjective, training: Training, corpus: AnyCorpus, *, where: str) -> Iterator[str]:
    """Yield notes on settings of a valid training that the user may not have intended."""
    terms = list(terms_of(objective))
    yield from (f"{where}: {term.name} {term.remark}." for term in terms if term.remark is not None)
    used = 1 + corpus.num_positives
    is_chosen = any(has_field(term, "hard_negatives") for term in terms)
    if used < corpus.num_columns and not is_chosen and not uses_hard_negatives(objective):
        yield f"{where}: {objective.name} uses no hard negatives: it trains on {used} of {corpus.num_columns} columns of {corpus.label}."
    if training.learning_rate > MOST_LEARNED_WITH:
        yield f"{where}: learning_rate {training.learning_rate:g} is far above the usual range for encoders (1e-6 to 1e-3)."


MOST_LEARNED_WITH = 0.1  # 2e5 is easily written for 2e-5


def relations_of(objective: AnyObjective, corpus: AnyCorpus) -> tuple[str, ...]:
    """Return the names of the relations that the objective learns vectors for, in order; empty without a relation table."""
    return corpus.relation_names if any(term.needs.relations for term in terms_of(objective)) else ()


def check_encoder(section: EncoderSection, pin: Pin, *, declared_pooling: str | None) -> None:
    """Raise RecipeError for a decoder, more layers than the checkpoint has, or the default pooling where it declares another one.

    Args:
        declared_pooling: By the checkpoint; None: none, or the recipe sets the pooling.
    """
    if pin.has_decoder:
        raise with_decoder(RecipeError, where="encoder.checkpoint", found=section.checkpoint)
    if section.layers is not None and pin.num_layers is not None and section.layers > pin.num_layers:
        found = f"{section.layers}, but {section.checkpoint} has {pin.num_layers} layers"
        raise RecipeError(where="encoder.layers", found=found, expected=f"1 to {pin.num_layers}", remedy="Lower it, or leave it out.")
    if declared_pooling not in (None, section.pooling):
        raise RecipeError(
            where="encoder.pooling",
            found=f"nothing, but {section.checkpoint} declares {declared_pooling}",
            expected="an explicit pooling for a checkpoint that declares another than mean",
            remedy=f"Add encoder.pooling={declared_pooling}, or mean to use mean pooling anyway.",
        )


def check_length(field: str, max_length: int | None, pin: Pin) -> None:
    """Raise RecipeError if max_length exceeds the encoder's positions or declared length, as far as planning knows them."""
    if max_length is not None and pin.most_tokens is not None and max_length > pin.most_tokens:
        found, expected = f"{max_length:,}, but {pin.name} takes at most {pin.most_tokens:,} tokens", f"3 to {pin.most_tokens:,}"
        raise RecipeError(where=field, found=found, expected=expected, remedy="Lower it, or use an encoder with more positions.")


def check_training(method: Method, training: Training, runtime: Runtime, pin: Pin, *, pooling: str, num_rows: int, where: str) -> None:
    """Raise RecipeError if the encoder does not support the objective or a setting, or the rows fill no batch.

    Checks only what planning knows of the encoder.
    """
    for term in terms_of(method.objective) if method.objective is not None else ():
        mismatch = term.mismatch_of_encoder(pooling=pooling, width=pin.width_with(pooling), has_mask_token=pin.has_mask_token)
        if mismatch is not None:
            raise mismatch.refused(f"{where}.objective.{mismatch.where}" if mismatch.where else f"{where}.objective: {term.name}")
    check_length(f"{where}: training.max_length", training.max_length, pin)
    for field, is_wrong, why in (
        ("runtime.recompute_layers", runtime.recompute_layers and not pin.may_recompute_layers, "whose layers cannot be recomputed"),
        ("regularizers.drophead", method.regularizers.drophead and not pin.may_drop_heads, "which runs on padded batches"),
        ("training.layer_decay", training.layer_decay != 1.0 and pin.shares_layers, "whose layers share their weights"),
    ):
        if is_wrong:
            raise RecipeError(
                where=f"{where}: {field}", found=f"it set for {pin.name}, {why}", expected="its default", remedy="Leave it out."
            )
    workers = runtime.most_workers
    if training.batch_size // workers < 2:
        found, expected = f"{training.batch_size} rows for {workers} workers", "at least two each (a single row has no other candidate)"
    elif num_rows < training.batch_size:
        found, expected = f"{training.batch_size} rows per batch, {num_rows} in the corpus", "at least one full batch"
    else:
        return
    raise RecipeError(where=f"{where}: training.batch_size", found=found, expected=expected, remedy="Change it, the data or the workers.")


def check_start(objective: AnyObjective, corpus: AnyCorpus, own: EncoderSpec, start: Train | None, *, where: str) -> None:
    """Raise RecipeError if the objective keeps parameters that `start` does not have, or for another encoder than that of `start`.

    Only the pooling may differ.
    """
    for term in terms_of(objective):
        mismatch = term.mismatch_of_start(None if start is None else _start(start, term, objective), corpus)
        if mismatch is not None:
            raise mismatch.refused(f"{where}.objective: {mismatch.where}")
    if start is None:
        return
    for field in ("checkpoint", "revision", "initialization", "layers"):
        found, there = getattr(own, field), getattr(start.encoder, field)
        if found != there:
            found, remedy = f"{found}, which has no effect: the method in start has {there}", "Set it in the method that start names."
            raise RecipeError(where=f"{where}.encoder.{field}", found=found, expected="that of the method in start", remedy=remedy)


def _start(start: Train, term: Single, objective: AnyObjective) -> Start:
    before = {one.name: one for one in terms_of(start.objective)}
    return Start(
        term=before.get(term.name),
        has_same_terms=_names(start.objective) == _names(objective),
        relations=relations_of(start.objective, start.corpus),
    )


def _names(objective: AnyObjective) -> tuple[str, ...]:
    """Return the names of the objective and its terms: learned parameters are stored by position of the term."""
    return (objective.name, *(term.name for term in terms_of(objective)))


def check_frozen(training: Training, objective: AnyObjective, selection: Selection | None, *, where: str) -> None:
    """Raise RecipeError if the encoder is frozen and nothing else is trained, or a setting has no effect on a frozen encoder."""
    if not training.freeze_encoder:
        return
    # The projection layer of a term is trained, too: SimCSE's, which is dropped at test.
    terms = [term.objective for term in objective.terms if not term.projected] if isinstance(objective, Sum) else [objective]
    for term in terms:
        mismatch = term.mismatch_of_frozen_encoder()
        if mismatch is not None:
            raise mismatch.refused(f"{where}: training.freeze_encoder with {term.name}")
    if training.layer_decay != 1.0:
        found, expected = f"{training.layer_decay:g} for frozen layers", "1 with freeze_encoder"
        raise RecipeError(where=f"{where}.training.layer_decay", found=found, expected=expected, remedy="Set layer_decay: 1 there.")
    if selection is not None and selection.view.relations is None:
        found = f"{selection.name} to choose a checkpoint of a frozen encoder: all checkpoints have the same score"
        expected = "no selection, which keeps the last weights"
        raise RecipeError(where=f"{where}.select", found=found, expected=expected, remedy="Set select: false there.")


def parts_of(objective: AnyObjective, width: int) -> dict[str, tuple[int, int]] | None:
    """Return the channels [first, end) of tags and words; None if the objective does not assign them."""
    term = next((term for term in terms_of(objective) if isinstance(term, Auxiliary)), None)
    if term is None:
        return None
    channels = Channels.of(width, term.channels)
    return {"tags": (0, channels.pos), "words": (channels.pos, width)}


def settled_view(view: View, objective: AnyObjective | None, relations: tuple[str, ...], *, width: int | None, where: str) -> View:
    """Return the view with a named part replaced by channel numbers, if the encoder's width is known.

    Args:
        relations: That the encoder knows.

    Raises:
        RecipeError: a part, channels or relations that the encoder does not have.
    """
    for relation in view.relations.relations if view.relations is not None else ():
        if relation not in relations:
            remedy = "Name relations of the encoder's corpus, which must be trained with the objective rse."
            raise RecipeError(where=f"{where}.relations", found=not_one_of(relation, relations), expected="", remedy=remedy)
    if view.channels is None:
        return view
    parts = None if objective is None else parts_of(objective, width or 768)
    if isinstance(view.channels, str):
        if parts is None:
            found, expected = f"{view.channels} of an encoder without parts", f"one trained with {names_where(targets=True)}"
            raise RecipeError(where=f"{where}.channels", found=found, expected=expected, remedy="Name two numbers, or leave it out.")
        return view if width is None else view.model_copy(update={"channels": parts[view.channels]})
    first, last = view.channels
    is_part = parts is None or width is None or view.channels in parts.values()
    if not 0 <= first < last or (width is not None and last > width) or not is_part:
        expected = f"two numbers from 0 to {width or 'the width'}, the lower one first" if is_part else f"tags or words: {parts}"
        raise RecipeError(where=f"{where}.channels", found=f"{first} to {last}", expected=expected, remedy="Correct the view.")
    return view


def check_probes(channels: tuple[int, int] | None, width: int | None) -> None:
    """Raise RecipeError for channels of probes that an encoder of this width does not have."""
    mismatch = None if channels is None or width is None else mismatch_of_channels(channels, width)
    if mismatch is not None:
        raise mismatch.refused("evaluation.probes.channels")


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
        found, expected = f"channels or postprocess beside methods.{method}.view.relations", "whole embeddings without postprocessing"
        raise RecipeError(where="selection.view", found=found, expected=expected, remedy="Put this method into a separate recipe.")
    return View(relations=own.relations.model_copy(update={"curve": None}))


def check_space(pooling: PoolingName, objective: AnyObjective, view: View, *, where: str) -> None:
    """Raise RecipeError if scores would add relations to other embeddings than those with which they were trained.

    These are embeddings of a pooling that differs at test, parts of embeddings, and embeddings without a projection layer of training.
    """
    if isinstance(objective, Sum) and any(term.projected and term.objective.needs.relations for term in objective.terms):
        field, found = "objective.terms", "projected: true for the term that learns relations, in a layer that is dropped at test"
    elif POOLINGS[pooling].is_other_at_test:
        field, found = "encoder.pooling", f"{pooling}, whose embeddings at test differ from those in training"
    elif view.channels is not None or view.postprocess != "none":
        field, found = "view", "some channels or postprocessing"
    else:
        return
    expected = "the embeddings with which relations were trained, for scores by relations"
    raise RecipeError(where=f"{where}.{field}", found=found, expected=expected, remedy="Change it, or score without relations.")


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
                    expected=f"{task.held_out} with seed {task.seed}, of a relation with the same name, files and columns",
                    remedy="Give both corpora the same held_out and seed; otherwise training pairs are ranked.",
                )
