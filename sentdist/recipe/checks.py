"""Check that objectives, methods and trainings fit their corpora, encoders and starts; resolve defaults that depend on the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sentdist.corpora import AnyCorpus
from sentdist.errors import RecipeError
from sentdist.families import with_decoder
from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective_spec import Mismatch, Rows, Start
from sentdist.recipe.objectives import (
    OBJECTIVES,
    AnyObjective,
    Single,
    Sum,
    has_field,
    names_where,
    terms_of,
    uses_bank,
    uses_hard_negatives,
    with_phi,
    with_terms,
)
from sentdist.recipe.resolver import Pin
from sentdist.recipe.sections import EncoderSection, Method, Runtime
from sentdist.recipe.specs import EncoderSpec, Regularizers, Training
from sentdist.recipe.stages import Selection, Train
from sentdist.recipe.wording import not_one_of
from sentdist.tasks.kinds import TASK_KINDS, ScoredTask


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


def check_encoder(objective: AnyObjective, *, pooling: str, pin: Pin, where: str) -> None:
    """Raise RecipeError if the objective is invalid for the encoder, as far as planning knows the encoder."""
    for term in terms_of(objective):
        mismatch = term.mismatch_of_encoder(pooling=pooling, width=pin.width_with(pooling), has_mask_token=pin.has_mask_token)
        if mismatch is not None:
            raise mismatch.refused(f"{where}.{mismatch.where}" if mismatch.where else f"{where}: {term.name}")


def check_start(objective: AnyObjective, corpus: AnyCorpus, start: Train | None, *, where: str) -> None:
    """Raise RecipeError if the objective keeps parameters that `start` lacks, or that have another shape there."""
    for term in terms_of(objective):
        mismatch = term.mismatch_of_start(None if start is None else _start(start, term, objective), corpus)
        if mismatch is not None:
            raise mismatch.refused(f"{where}: {mismatch.where}")


def check_frozen(training: Training, objective: AnyObjective, selection: Selection | None, *, where: str) -> None:
    """Raise RecipeError if the encoder is frozen and nothing else is trained, or a setting has no effect on a frozen encoder."""
    if not training.freeze_encoder:
        return
    # The projection layer of a term is trained, too: SimCSE's, which is dropped at test.
    terms = [term.objective for term in objective.terms if not term.projected] if isinstance(objective, Sum) else [objective]
    for term in terms:
        mismatch = term.mismatch_of_frozen_encoder()
        if mismatch is not None:
            found = mismatch._replace(found=f"{mismatch.found}, with a frozen encoder")
            raise found.refused(f"{where}: training.freeze_encoder with {term.name}")
    if training.layer_decay != 1.0:
        mismatch = Mismatch(f"{training.layer_decay:g} for frozen layers", "1 with freeze_encoder", "Set layer_decay: 1 there.")
        raise mismatch.refused(f"{where}.training.layer_decay")
    if selection is not None and selection.view.relations is None:
        mismatch = Mismatch(
            found=f"{selection.name} to choose a checkpoint of a frozen encoder: all checkpoints have the same score",
            expected="no selection, which keeps the last weights",
            remedy="Set select: false there.",
        )
        raise mismatch.refused(f"{where}.select")


def relations_of(objective: AnyObjective, corpus: AnyCorpus) -> tuple[str, ...]:
    """Return the names of the relations that the objective learns vectors for, in order; empty without a relation table."""
    return corpus.relation_names if any(term.needs.relations for term in terms_of(objective)) else ()


def remarks(objective: AnyObjective, corpus: AnyCorpus, *, where: str) -> Iterator[str]:
    """Yield notes on settings of a valid training that the user may not have intended."""
    for term in terms_of(objective):
        if term.remark is not None:
            yield f"{where}: {term.name} {term.remark}."
    used = 1 + corpus.num_positives
    is_chosen = any(has_field(term, "hard_negatives") for term in terms_of(objective))
    if used < corpus.num_columns and not is_chosen and not uses_hard_negatives(objective):
        yield f"{where}: {objective.name} uses no hard negatives: it trains on {used} of {corpus.num_columns} columns of {corpus.label}."


def unheeded(written: AnyObjective, corpus: Rows, *, where: str) -> Iterator[str]:
    """Yield a note for each value in the recipe that the rows of the corpus override."""
    for term in terms_of(written):
        as_settled = _settled_term(term, corpus=corpus, phi=None)
        for name in sorted(term.model_fields_set):
            value, instead = getattr(term, name), getattr(as_settled, name)
            if value is not None and value != instead:
                reason = "have no hard negatives" if name == "hard_negatives" else f"set it to {json.dumps(instead)}"
                yield f"{where}: {name} {json.dumps(value)} of {term.name} has no effect: the rows of {corpus.label} {reason}."


def settled(objective: AnyObjective, corpus: Rows, *, phi: float | None) -> AnyObjective:
    """Return the objective with defaults replaced by the values they stand for on this corpus, so that equal objectives have equal keys."""
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
    """Return the names of the objective and its terms: learned parameters are stored by position of the term."""
    return (objective.name, *(term.name for term in terms_of(objective)))


def _mismatch_of_needs(term: Single, corpus: Rows) -> Mismatch | None:
    needs = term.needs
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
        most = "one positive per anchor" if needs.positives == 1 else f"at most {needs.positives} positives per anchor"
        several = [name for name, one in OBJECTIVES.items() if one.needs.positives is None and one.needs.negatives]
        remedy = f"Use the objective {' or '.join(several)}, or num_positives: 1."
        return Mismatch(f"{corpus.num_positives} positives per anchor", most, remedy)
    if corpus.num_columns - 1 - corpus.num_positives < needs.negatives:
        least = f"at least {'one hard negative' if needs.negatives == 1 else f'{needs.negatives} hard negatives'} per anchor"
        return Mismatch("no hard negatives", least, f"Use {InfoNCE().name}, or a corpus with negatives.")
    return None


OF_A_TRAINING = ("training", "corpus", "stopping", "seed", "start", "bank", "bank_dtype", "regularizers", "select")
UNTOUCHED = Method()


def check_method(name: str, method: Method, methods: dict[str, Method]) -> None:
    """Raise ValueError for fields of a method that conflict, and for names of unknown methods."""
    here = f"methods.{name}"
    for field, other in method.inputs.items():
        check_known(f"{here}.{field}", other, tuple(one for one in methods if one != name))
        if methods[other].objective is None:
            raise ValueError(f'{here}.{field}: "{other}" has no objective (an untouched checkpoint); expected a method with an objective')
    _check_objective(here, method)
    if method.of is not None and (method.objective is not None or method.start is not None or method.encoder):
        raise ValueError(f"{here}.of: scores the encoder of another method; expected neither objective, start nor encoder beside it")
    if method.phis is not None and method.bank is None:
        raise ValueError(f"{here}.phis: has no effect without a bank; leave it out")
    if method.phis is not None and len(set(method.phis)) != len(method.phis):
        raise ValueError(f"{here}.phis: found {list(method.phis)}; expected each value once")
    if method.phis == ():
        raise ValueError(f"{here}.phis: found an empty set; expected at least one finite number (an rcl without regulators is info_nce)")
    if method.lexical is not None and (method.objective is not None or method.of is not None or method.encoder):
        raise ValueError(f"{here}.lexical: is a row without an encoder; expected neither objective, of nor encoder beside it")
    _check_untouched(here, method)


def inputs_of(name: str, methods: Mapping[str, Method]) -> set[str]:
    """Return a method and all methods whose encoders it needs, directly or not."""
    found, further = set(), {name}
    while further:
        found |= further
        further = {other for one in further for other in methods[one].inputs.values()} - found
    return found


def _check_untouched(here: str, method: Method) -> None:
    """Raise ValueError for training fields in a method without an objective."""
    if method.objective is not None:
        return
    for field in OF_A_TRAINING:
        if getattr(method, field) != getattr(UNTOUCHED, field):
            hint = f". `of: {method.start}` scores its encoder" if field == "start" else ""
            raise ValueError(f"{here}.{field}: has no effect on the untouched checkpoint; leave it out or give an objective{hint}")


def check_reported(methods: Mapping[str, Method]) -> None:
    """Raise ValueError if no method is reported."""
    if not any(method.reported for method in methods.values()):
        raise ValueError("methods: found none that is reported; expected at least one, otherwise nothing would be built")


def check_titles(methods: Mapping[str, Method]) -> None:
    """Raise ValueError for two rows with the same title: tables and statistical tests treat them as folds of one method."""
    first: dict[str, str] = {}
    for name, method in methods.items():
        title = method.title or name
        if method.reported and first.setdefault(title, name) != name:
            raise ValueError(
                f'methods.{name}.title: found "{title}", as in methods.{first[title]}; expected a different title for each row'
            )


def check_headline(name: str, baseline: str | None, methods: dict[str, Method]) -> None:
    """Raise ValueError for a headline that is not a row of the report, or without a baseline."""
    check_known("headline", name, tuple(one for one, method in methods.items() if method.reported and one != baseline))
    if baseline is None:
        raise ValueError("headline: has no effect without a baseline to compare it with; name one or leave it out")


def _check_objective(here: str, method: Method) -> None:
    if method.objective is None:
        return
    with_bank = uses_bank(method.objective)
    if with_bank and method.bank is None:
        raise ValueError(f"{here}.bank: found nothing; expected the name of the method that trains the entropy encoders")
    if method.bank is not None and not with_bank:
        raise ValueError(f"{here}.bank: has no effect without the objective {names_where(bank=True)}; leave it out")
    terms = list(terms_of(method.objective))
    if not any(term.needs.alone for term in terms):
        raise ValueError(f"{here}.objective: found {terms[0].name} alone; expected it with another objective, as a term of a sum")


def check_known(where: str, name: str, names: Sequence[str]) -> None:
    """Raise ValueError if `name` is not in `names`."""
    if name not in names:
        raise ValueError(f"{where}: {not_one_of(name, names)}")


def check_lexical(lexical: str | None, tasks: Sequence[ScoredTask], *, where: str) -> None:
    """Raise RecipeError if the lexical baseline cannot score one of the tasks."""
    if lexical is None:
        return
    unfit = next((task for task in tasks if lexical not in TASK_KINDS[task.kind].floors), None)
    if unfit is not None:
        found = (
            "bm25 for pairs of sentences"
            if lexical == "bm25" and TASK_KINDS[unfit.kind].is_graded_pairs
            else f"{lexical} for {unfit.name} ({unfit.kind})"
        )
        expected = f"{' and '.join(kind.name for kind in TASK_KINDS.values() if lexical in kind.floors)} tasks only"
        others = [floor for floor in TASK_KINDS[unfit.kind].floors if floor != lexical]
        remedy = f"Use {others[0]}." if others else "Score this task in a separate recipe."
        raise RecipeError(where=f"{where}.lexical", found=found, expected=expected, remedy=remedy)


MOST_LEARNED_WITH = 0.1


def check_checkpoint(section: EncoderSection, pin: Pin) -> None:
    """Raise RecipeError for a checkpoint with a decoder, or for more layers than the checkpoint has, as far as planning knows them."""
    if pin.has_decoder:
        raise with_decoder(RecipeError, where="encoder.checkpoint", found=section.checkpoint)
    num_layers = pin.num_layers
    if section.layers is not None and num_layers is not None and section.layers > num_layers:
        found, expected = f"{section.layers}, but {section.checkpoint} has {num_layers} layers", f"1 to {num_layers}"
        raise RecipeError(where="encoder.layers", found=found, expected=expected, remedy="Lower it, or leave it out to keep all layers.")


def check_pooling(section: EncoderSection, declared: str | None) -> None:
    """Raise RecipeError for the default pooling (mean) if the checkpoint declares another one."""
    if declared not in (None, section.pooling):
        raise RecipeError(
            where="encoder.pooling",
            found=f"nothing, but {section.checkpoint} declares {declared}",
            expected="an explicit pooling for a checkpoint that declares another than mean",
            remedy=f"Add encoder.pooling={declared}, or mean to use mean pooling anyway.",
        )


def check_length(field: str, max_length: int | None, pin: Pin) -> None:
    """Raise RecipeError if max_length exceeds the encoder's positions or declared length, as far as planning knows them."""
    if max_length is not None and pin.most_tokens is not None and max_length > pin.most_tokens:
        found, expected = f"{max_length:,}, but {pin.name} takes at most {pin.most_tokens:,} tokens", f"3 to {pin.most_tokens:,}"
        raise RecipeError(where=field, found=found, expected=expected, remedy="Lower it, or use an encoder with more positions.")


def rate_remarks(training: Training, *, where: str) -> list[str]:
    """Return a note for a learning rate far too high to learn: 2e5 is easily written for 2e-5."""
    if training.learning_rate <= MOST_LEARNED_WITH:
        return []
    return [
        f"{where}: learning_rate {training.learning_rate:g} is far above the usual range for encoders (1e-6 to 1e-3): "
        "AdamW changes each weight by about that much per step."
    ]


def check_training(training: Training, regularizers: Regularizers, runtime: Runtime, pin: Pin, *, where: str) -> None:
    """Raise RecipeError if the encoder does not support recompute_layers, drophead, max_length or layer_decay as set.

    Checks only what planning knows of the encoder.
    """
    if runtime.recompute_layers and not pin.may_recompute_layers:
        raise RecipeError(
            where=f"{where}: runtime.recompute_layers",
            found=f"true for {pin.name}, whose layers transformers cannot recompute",
            expected="false",
            remedy="Set runtime.recompute_layers=false; runtime.micro_batch saves memory, too.",
        )
    if regularizers.drophead and not pin.may_drop_heads:
        raise RecipeError(
            where=f"{where}: regularizers.drophead",
            found=f"{regularizers.drophead:g} for {pin.name}, which runs on padded batches",
            expected="0",
            remedy="Leave drophead out, or use an encoder that runs without padding: BERT, RoBERTa, MPNet or ModernBERT.",
        )
    check_length(f"{where}: training.max_length", training.max_length, pin)
    if training.layer_decay != 1.0 and pin.shares_layers:
        raise RecipeError(
            where=f"{where}: training.layer_decay",
            found=f"{training.layer_decay:g} for {pin.name}, whose layers share their weights",
            expected="1",
            remedy="Set layer_decay: 1 there, or use an encoder whose layers do not share weights.",
        )


def check_batch(training: Training, runtime: Runtime, num_rows: int, *, where: str) -> None:
    """Raise RecipeError unless each worker gets at least two rows of a batch and the corpus fills one batch."""
    workers = runtime.most_workers
    if training.batch_size // workers < 2:
        raise RecipeError(
            where=f"{where}: training.batch_size", found=f"{training.batch_size} rows for {workers} workers",
            expected="at least two each (a single row has no other candidate)", remedy="Raise the batch size or use fewer workers.",
        )  # fmt: skip
    if num_rows < training.batch_size:
        found, remedy = f"{training.batch_size} rows per batch, {num_rows} in the corpus", "Lower the batch size or add data."
        raise RecipeError(where=f"{where}: training.batch_size", found=found, expected="at least one full batch", remedy=remedy)


def check_encoder_of_start(own: EncoderSpec, start: Train | None, *, where: str) -> None:
    """Raise RecipeError if a method with a start sets another checkpoint, revision, initialization or layers: only pooling may differ."""
    if start is None:
        return
    for field in ("checkpoint", "revision", "initialization", "layers"):
        found, settled = getattr(own, field), getattr(start.encoder, field)
        if found != settled:
            raise RecipeError(
                where=f"{where}.encoder.{field}",
                found=f"{found}, which has no effect: the method in start has {settled}",
                expected=f"{field} of the method in start",
                remedy=f"Set it in the method that start names, or leave {field} out.",
            )
