"""Which objectives have a meaning on which corpora, and what an objective's defaults stand for there."""

from __future__ import annotations

from sentdist.errors import RecipeError
from sentdist.plan.corpora import AnyCorpus, GradedCorpus, RelationalCorpus
from sentdist.plan.objectives import (
    Auxiliary,
    Entropy,
    InfoNCE,
    Objective,
    Regression,
    Regularized,
    Regulators,
    Relational,
    Single,
    Sum,
    SupMPN,
    terms_of,
    with_phi,
)
from sentdist.plan.recipe import EncoderSection
from sentdist.plan.specs import Probes, View

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


def check_encoder(objective: Objective, *, pooling: str, width: int | None, where: str) -> None:
    """Refuse auxiliary tasks that would read another representation than the one that is evaluated, or channels that do not add up.

    width: of the encoder; None where planning cannot know it, then training finds out.

    Raises:
        RecipeError: with the reason.
    """
    for term in terms_of(objective):
        if not isinstance(term, Auxiliary):
            continue
        if pooling == "cls_mlp_train_only":
            raise RecipeError(
                where=f"{where}: auxiliary with pooling {pooling}",
                found="channels of a layer that is dropped at test",
                expected="channels of what is evaluated",
                remedy="Use pooling cls, and projected: true for the contrastive term: the layer then stands before that term only.",
            )
        if term.channels is not None and width is not None:
            _check_sum(term.channels, width, where=where)


def check_layers(section: EncoderSection, num_layers: int | None) -> None:
    """No more layers are kept than the checkpoint has; None: not known before it is loaded."""
    if section.layers is not None and num_layers is not None and section.layers > num_layers:
        raise RecipeError(
            where="encoder.layers",
            found=f"{section.layers}, where {section.checkpoint} has {num_layers} layers",
            expected=f"1 to {num_layers}",
            remedy="Lower it, or leave it out to keep all layers.",
        )


def check_channels(view: View, probes: Probes | None, *, width: int | None, where: str) -> None:
    """Refuse views and probes of channels that an encoder of this width does not have; None where planning cannot know the width.

    Raises:
        RecipeError: naming the channels.
    """
    if probes is not None and probes.channels is not None and width is not None:
        _check_sum(probes.channels, width, where="evaluation.probes")
    if view.channels is None:
        return
    first, last = view.channels
    if not 0 <= first < last or (width is not None and last > width):
        raise RecipeError(
            where=f"{where}.channels",
            found=f"{first} to {last}",
            expected=f"two numbers from 0 to {width or 'the width'}, the lower one first",
            remedy="Correct the view.",
        )


def _check_sum(channels: tuple[int, int], width: int, *, where: str) -> None:
    if sum(channels) != width or min(channels) < 1:
        raise RecipeError(
            where=f"{where}.channels",
            found=f"{channels[0]} + {channels[1]} = {sum(channels)}",
            expected=f"two numbers above 0 that add up to the encoder's width, {width}",
            remedy="Correct them, or leave them out: then they are 128 : 640 of the width.",
        )


def settled(objective: Objective, corpus: AnyCorpus, *, phi: float | None) -> Objective:
    """One spelling per value: what a default stands for is written out, so that equal objectives have equal keys."""
    if phi is not None:
        objective = with_phi(objective, phi)
    if isinstance(objective, Sum):
        terms = tuple(term.model_copy(update={"objective": _settled_term(term.objective, corpus)}) for term in objective.terms)
        return Sum(terms=terms)
    return _settled_term(objective, corpus)


def _settled_term(term: Single, corpus: AnyCorpus) -> Single:
    changes: dict[str, object] = {}
    if corpus.num_columns == 1 + corpus.num_positives and hasattr(term, "hard_negatives"):
        changes["hard_negatives"] = False
    if isinstance(term, Regularized) and term.regulator_temperature is None:
        changes["regulator_temperature"] = term.temperature
    if isinstance(term, Regression) and isinstance(corpus, GradedCorpus):
        boundary = "none" if term.loss == "cross_entropy" else term.boundary or "one_sided"
        changes |= {"boundary": boundary, "label_range": (0.0, corpus.top_label), "spacing": corpus.spacing_of_labels}
    return term.model_validate(term.model_dump() | changes)


def check_start(objective: Objective, start: Objective | None, *, where: str) -> None:
    """Refuse to keep a head that the encoder to start from does not have.

    Raises:
        RecipeError: no start, no head there, or one of another shape.
    """
    for term in terms_of(objective):
        if not (isinstance(term, Regression) and term.keep_head):
            continue
        before = None if start is None else next((one for one in terms_of(start) if isinstance(one, Regression)), None)
        found = "no start" if start is None else "a start without a regression head" if before is None else _head(before)
        if before is None or start is None or _head(before) != _head(term) or _names(start) != _names(objective):
            raise RecipeError(
                where=f"{where}: keep_head",
                found=found,
                expected=f"a start with {_head(term)}, by the same objective",
                remedy="Leave keep_head out: training then starts with a new head.",
            )


def _names(objective: Objective) -> tuple[str, ...]:
    """The objective and its terms by name: heads are kept under the places of their terms."""
    return (objective.name, *(term.name for term in terms_of(objective)))


def _head(term: Regression) -> str:
    """What must be equal for one head to serve two objectives."""
    if term.loss != "cross_entropy":
        return f"a head on {term.features}, one output"
    assert term.label_range is not None and term.spacing is not None, "settled"
    return f"a head on {term.features}, {round((term.label_range[1] - term.label_range[0]) / term.spacing) + 1} classes"


def _misfit_of_labels(term: Regression, corpus: GradedCorpus) -> tuple[str, str, str] | None:
    top, spacing = corpus.top_label, corpus.spacing_of_labels
    if term.label_range is not None and term.label_range != (0.0, top):
        low, high = term.label_range
        return f"label_range {low:g} to {high:g}", f"0 to {top:g}, the labels of the corpus", "Correct it, or leave it out."
    if spacing is None and term.loss not in ("l1", "mse"):
        remedy = "Choose another rounding for the corpus, or the loss l1 or mse."
        return "labels that are not rounded", f"labels on a grid for {term.loss}", remedy
    if term.spacing is not None and term.spacing != spacing:
        return (
            f"spacing {term.spacing:g}",
            "no grid" if spacing is None else f"{spacing:g}, that of the corpus",
            "Correct it, or leave it out.",
        )
    if term.threshold is not None and spacing is not None and term.threshold > spacing / 2:
        found = f"threshold {term.threshold:g} for labels {spacing:g} apart"
        return found, f"at most {spacing / 2:g}: the zones of two labels would overlap", "The paper takes 0.2 to 0.3 for integers."
    return None


def _misfit(term: Single, corpus: AnyCorpus) -> tuple[str, str, str] | None:
    """(found, expected, remedy), or None where the term fits."""
    is_graded = isinstance(corpus, GradedCorpus)
    if isinstance(term, Regression) and not is_graded:
        return "rows without labels", "graded pairs", "Name a corpus of kind graded."
    if isinstance(term, Regression) and isinstance(corpus, GradedCorpus):
        return _misfit_of_labels(term, corpus)
    if isinstance(term, CONTRASTIVE) and is_graded:
        return (
            "graded pairs, of which most are no positives",
            "anchors with positives",
            "Use the objective regression, or a corpus of kind rows.",
        )
    if isinstance(term, (*CONTRASTIVE, Regulators)) and corpus.num_columns < 2:
        return "sentences alone", "anchors with positives", "Give the corpus two columns: [sentence, sentence] for two views of each."
    if isinstance(term, Relational) and not isinstance(corpus, RelationalCorpus):
        return "rows of no relation", "rows that name their relation", "Name a corpus of kind relations."
    if isinstance(term, InfoNCE | Entropy | Regularized | Relational) and corpus.num_positives > 1:
        return f"{corpus.num_positives} positives an anchor", "one positive an anchor", "Use the objective supmpn, or num_positives: 1."
    if isinstance(term, SupMPN) and corpus.num_columns == 1 + corpus.num_positives:
        return "no hard negatives", "at least one hard negative an anchor", "Use info_nce, or a corpus with negatives."
    return None
