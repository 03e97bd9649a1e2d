"""Which objectives, views and tasks have a meaning for which corpora and encoders, and what an objective's defaults stand for there."""

from __future__ import annotations

from collections.abc import Iterator

from sentdist.errors import RecipeError
from sentdist.objectives.auxiliary import Auxiliary
from sentdist.objectives.channels import Channels, mismatch_of_channels
from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective import Mismatch, Rows, Start
from sentdist.plan.corpora import AnyCorpus
from sentdist.plan.corpora.relations import LinkTask, RelationalCorpus
from sentdist.plan.objectives import OBJECTIVES, AnyObjective, Single, Sum, has_field, names_where, terms_of, uses_hard_negatives, with_phi
from sentdist.plan.resolver import Pin
from sentdist.plan.runtime import Runtime
from sentdist.plan.sections import EncoderSection
from sentdist.plan.selection import Selection
from sentdist.plan.specs import EncoderSpec, Probes, Regularizers, Training, View
from sentdist.plan.stage import topological
from sentdist.plan.stages import Train
from sentdist.plan.wording import not_one_of
from sentdist.poolings import POOLINGS, PoolingName


def check_fit(objective: AnyObjective, corpus: Rows, *, where: str) -> None:
    """Refuse an objective whose terms need something that the corpus lacks.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        mismatch = _mismatch_of_needs(term, corpus)
        if mismatch is not None:
            raise _error(mismatch, f"{where}: {term.name} on {corpus.label}")
    check_values(objective, corpus, where=where)


def check_values(objective: AnyObjective, corpus: Rows, *, where: str) -> None:
    """Refuse an objective whose values have no meaning on rows that have all it needs.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        mismatch = term.mismatch(corpus)
        if mismatch is not None:
            raise _error(mismatch, f"{where}: {term.name} on {corpus.label}")


def check_encoder(objective: AnyObjective, *, pooling: str, width: int | None, where: str) -> None:
    """Refuse an objective that has no meaning for an encoder. width: None where planning cannot know it, then training finds out.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        mismatch = term.mismatch_of_encoder(pooling=pooling, width=width)
        if mismatch is not None:
            raise _error(mismatch, f"{where}.{mismatch.where}" if mismatch.where else f"{where}: {term.name}")


def check_start(objective: AnyObjective, corpus: AnyCorpus, start: Train | None, *, where: str) -> None:
    """Refuse to keep what the encoder to start from does not have.

    Raises:
        RecipeError: no start, nothing to keep there, or something of another shape.
    """
    for term in terms_of(objective):
        mismatch = term.mismatch_of_start(None if start is None else _start(start, term, objective), corpus)
        if mismatch is not None:
            raise _error(mismatch, f"{where}: {mismatch.where}")


def check_encoder_of_start(own: EncoderSpec, start: Train | None, *, where: str) -> None:
    """Refuse what a start has settled already: its architecture and weights are taken as they are, only the pooling may be another.

    Raises:
        RecipeError: naming the field that would have no effect.
    """
    if start is None:
        return
    for field in ("checkpoint", "revision", "initialization", "layers"):
        found, settled = getattr(own, field), getattr(start.encoder, field)
        if found != settled:
            raise RecipeError(
                where=f"{where}.encoder.{field}",
                found=f"{found} beside a start that has {settled}: it has no effect",
                expected="what training starts from",
                remedy=f"Give it to the method that start names, or leave {field} out.",
            )


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
            raise _error(found, f"{where}: training.freeze_encoder with {term.name}")
    if training.layer_decay != 1.0:
        mismatch = Mismatch(f"{training.layer_decay:g} for layers that do not move", "1 beside freeze_encoder", "Set layer_decay: 1 there.")
        raise _error(mismatch, f"{where}.training.layer_decay")
    if selection is not None and selection.view.relations is None:
        mismatch = Mismatch(
            found=f"{selection.name} to choose a checkpoint of an encoder that is frozen: all have one score, and the first would be kept",
            expected="the last weights",
            remedy="Set select: false there.",
        )
        raise _error(mismatch, f"{where}.select")


def check_checkpoint(section: EncoderSection, pin: Pin) -> None:
    """It is an encoder alone, and no more layers are kept than it has, as far as planning can know them."""
    if pin.has_decoder:
        raise RecipeError(
            where="encoder.checkpoint",
            found=f"{section.checkpoint}, an encoder with a decoder that writes text (T5, BART, …)",
            expected="an encoder alone, such as BERT or MPNet",
            remedy="Take another checkpoint; of a T5 (sentence-t5, gtr-t5) the encoder alone is not read.",
        )
    num_layers = pin.num_layers
    if section.layers is not None and num_layers is not None and section.layers > num_layers:
        raise RecipeError(
            where="encoder.layers",
            found=f"{section.layers}, where {section.checkpoint} has {num_layers} layers",
            expected=f"1 to {num_layers}",
            remedy="Lower it, or leave it out to keep all layers.",
        )


def check_training(training: Training, regularizers: Regularizers, runtime: Runtime, pin: Pin, *, where: str) -> None:
    """As far as planning can know it, the encoder takes so long sentences, has heads that can be dropped, layers of its own where
    each learns at a rate of its own, and layers that can be computed again where that is asked for."""
    if runtime.recompute_layers and not pin.may_recompute_layers:
        raise RecipeError(
            where=f"{where}: runtime.recompute_layers",
            found=f"true for {pin.name}, whose layers transformers cannot compute again",
            expected="false",
            remedy="Set runtime.recompute_layers=false; runtime.micro_batch saves memory, too.",
        )
    if regularizers.drophead and not pin.may_drop_heads:
        raise RecipeError(
            where=f"{where}: regularizers.drophead",
            found=f"{regularizers.drophead:g} for {pin.name}, whose sentences are padded",
            expected="0",
            remedy="Leave drophead out, or take an encoder of BERT's, RoBERTa's, ELECTRA's, ALBERT's or DistilBERT's family.",
        )
    check_length(f"{where}: training.max_length", training.max_length, pin)
    if training.layer_decay != 1.0 and pin.shares_layers:
        raise RecipeError(
            where=f"{where}: training.layer_decay",
            found=f"{training.layer_decay:g} for {pin.name}, whose layers share their weights",
            expected="1",
            remedy="Set layer_decay: 1 there, or take an encoder whose layers are its own.",
        )


def check_length(field: str, max_length: int | None, pin: Pin) -> None:
    """No sentence is longer than the encoder's table of positions, or than it declares; where planning can know that."""
    if max_length is not None and pin.most_tokens is not None and max_length > pin.most_tokens:
        raise RecipeError(
            where=field,
            found=f"{max_length:,}, where {pin.name} takes {pin.most_tokens:,} tokens",
            expected=f"3 to {pin.most_tokens:,}",
            remedy="Lower it, or take an encoder with more positions.",
        )


def check_pooling(section: EncoderSection, declared: str | None) -> None:
    """Where nobody names a pooling it is the mean; refuse that for a checkpoint that says it was made with another one."""
    if declared not in (None, section.pooling):
        raise RecipeError(
            where="encoder.pooling",
            found=f"nothing, and {section.checkpoint} says that it was made with {declared}",
            expected="a pooling to be named where it is not the mean",
            remedy=f"Add encoder.pooling={declared}, or mean to take its sentences' mean all the same.",
        )


def check_channels(view: View, probes: Probes | None, *, width: int | None, where: str) -> None:
    """Refuse views and probes of channels that an encoder of this width does not have; None where planning cannot know the width.

    Raises:
        RecipeError: naming the channels.
    """
    if probes is not None and probes.channels is not None and width is not None:
        mismatch = mismatch_of_channels(probes.channels, width)
        if mismatch is not None:
            raise _error(mismatch, "evaluation.probes.channels")
    if view.channels is None or isinstance(view.channels, str):
        return
    first, last = view.channels
    if not 0 <= first < last or (width is not None and last > width):
        raise RecipeError(
            where=f"{where}.channels",
            found=f"{first} to {last}",
            expected=f"two numbers from 0 to {width or 'the width'}, the lower one first",
            remedy="Correct the view.",
        )


def parts_of(objective: AnyObjective, width: int) -> dict[str, tuple[int, int]] | None:
    """First and behind-last channel of tags and of words; None where an objective gives them none."""
    term = next((term for term in terms_of(objective) if isinstance(term, Auxiliary)), None)
    if term is None:
        return None
    channels = Channels.of(width, term.channels)
    return {"tags": (0, channels.pos), "words": (channels.pos, width)}


def settled_view(view: View, objective: AnyObjective | None, *, width: int | None, where: str) -> View:
    """A view whose named part is written in numbers, where the encoder's width is known.

    Raises:
        RecipeError: a part of an encoder without parts, or channels of an encoder with parts that are no part of it.
    """
    if view.channels is None:
        return view
    parts = None if objective is None else parts_of(objective, width or 768)
    if isinstance(view.channels, str):
        if parts is None:
            raise RecipeError(
                where=f"{where}.channels",
                found=f"{view.channels} of an encoder that gives them no channels of their own",
                expected=f"an encoder that the objective {names_where(targets=True)} has trained",
                remedy="Name two numbers, or leave channels out.",
            )
        return view if width is None else view.model_copy(update={"channels": parts[view.channels]})
    if parts is not None and width is not None and view.channels not in parts.values():
        tags, words = (f"{first} to {last}" for first, last in parts.values())
        raise RecipeError(
            where=f"{where}.channels",
            found=f"{view.channels[0]} to {view.channels[1]}",
            expected=f"a part of this encoder: tags ({tags}) or words ({words})",
            remedy="Write channels: tags, or channels: words.",
        )
    return view


def relations_of(objective: AnyObjective, corpus: AnyCorpus) -> tuple[str, ...]:
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
                expected="",
                remedy="Name relations of the encoder's corpus.",
            )


def check_space(pooling: PoolingName, objective: AnyObjective, view: View, *, ranks_by_relations: bool, where: str) -> None:
    """Refuse to add relations to other embeddings than those that they were trained with.

    Raises:
        RecipeError: a view by relations, or ranks of links by them, with a pooling that is another one at test, a part of the
            embeddings, or relations learned behind a layer that is dropped at test.
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
            found=f"{pooling}, which reads other embeddings at test than in training, where relations were learned",
            expected="the pooling of training, for scores by relations",
            remedy="Use pooling cls_mlp, or score without relations.",
        )
    if view.channels is not None or view.postprocess != "none":
        raise RecipeError(
            where=f"{where}.view",
            found="some channels" if view.channels else f"postprocess {view.postprocess}",
            expected="whole embeddings, to which evaluation.links adds the relations that were trained with them",
            remedy="Leave that out of the view, or score it in a recipe without links.",
        )


def check_links(task: LinkTask, train: Train | None, *, where: str) -> None:
    """Refuse to rank held-out pairs for an encoder that may have learned them: one that read the same files and held out others, or none.
    Raises RecipeError that names the relation."""
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


def remarks(objective: AnyObjective, corpus: AnyCorpus, *, where: str) -> Iterator[str]:
    """Of a training that means something, what a user may not have meant: sentences."""
    for term in terms_of(objective):
        if term.remark is not None:
            yield f"{where}: {term.name} {term.remark}."
    used = 1 + corpus.num_positives
    is_chosen = any(has_field(term, "hard_negatives") for term in terms_of(objective))
    if used < corpus.num_columns and not is_chosen and not uses_hard_negatives(objective):
        yield f"{where}: {objective.name} reads no hard negatives: it trains on {used} of {corpus.num_columns} columns of {corpus.label}."


def settled(objective: AnyObjective, corpus: Rows, *, phi: float | None) -> AnyObjective:
    """One spelling per value: what a default stands for is written out, so that equal objectives have equal keys."""
    if phi is not None:
        objective = with_phi(objective, phi)
    if isinstance(objective, Sum):
        terms = tuple(term.model_copy(update={"objective": _settled_term(term.objective, corpus)}) for term in objective.terms)
        return Sum(terms=terms)
    return _settled_term(objective, corpus)


def _settled_term(term: Single, corpus: Rows) -> Single:
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


def _error(mismatch: Mismatch, where: str) -> RecipeError:
    return RecipeError(where=where, found=mismatch.found, expected=mismatch.expected, remedy=mismatch.remedy)
