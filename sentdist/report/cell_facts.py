"""What the trainings of a cell of a table have in common: by it papers find their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sentdist.frozen import Frozen
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.objectives import Sum, phi_of, terms_of
from sentdist.plan.selection import chosen_and_scored
from sentdist.plan.specs import EncoderSpec, Regularizers, View
from sentdist.plan.stages import Bank, Scores, Train
from sentdist.store.record import Record
from sentdist.store.restored import restored
from sentdist.store.sweep import TrialRecord


@dataclass(frozen=True, kw_only=True)
class CellFacts:
    """The training of a cell's first trial and its scores, as their records have them. train: None where nothing was trained, or its record
    is gone. What a training takes in may be `MissingStage`."""

    train: Train | None = None
    scores: Scores | None = None

    @property
    def untouched(self) -> EncoderSpec | None:
        """The encoder that was scored as it is; None: trained, or a floor without an encoder."""
        return self.scores.encoder if self.scores is not None and isinstance(self.scores.encoder, EncoderSpec) else None

    @property
    def is_as_it_is(self) -> bool:
        """Whether a whole pretrained checkpoint was scored by the plain cosine of its embeddings."""
        encoder = self.untouched
        return encoder is not None and encoder.initialization == "pretrained" and encoder.layers is None and self.view == View()

    @property
    def view(self) -> View:
        """How embeddings are scored."""
        return View() if self.scores is None else self.scores.view

    @property
    def objective(self) -> str | None:
        return None if self.train is None else self.train.objective.name

    @property
    def phis(self) -> tuple[float, ...]:
        """The φ of the entropy encoders that fill its banks; without banks, of the training itself."""
        if self.train is None:
            return ()
        known = [bank.encoder for bank in self.train.banks if isinstance(bank, Bank) and isinstance(bank.encoder, Train)]
        objectives = [encoder.objective for encoder in known] if self.train.banks else [self.train.objective]
        return tuple(phi for one in objectives if not isinstance(one, Sum) and (phi := phi_of(one)) is not None)

    @property
    def num_regulators(self) -> int:
        """Of all its banks together."""
        return 0 if self.train is None else len(self.phis) * sum(term.regulators_per_bank for term in terms_of(self.train.objective))

    @property
    def without_bank(self) -> str | None:
        """The objective that its own is without regulators, by name; None: it has none, or that has no name."""
        objective = None if self.train is None or isinstance(self.train.objective, Sum) else self.train.objective.without_bank
        return None if objective is None else objective.model_fields["name"].default

    @property
    def batch_size(self) -> int | None:
        return None if self.train is None else self.train.training.batch_size

    @property
    def regularizers(self) -> Regularizers | None:
        return None if self.train is None else self.train.regularizers

    @property
    def attention_dropout(self) -> float | None:
        return None if self.train is None else self.train.regularizers.attention_dropout

    @property
    def drophead(self) -> float:
        return 0.0 if self.train is None else self.train.regularizers.drophead

    @property
    def corpus(self) -> CorpusStage | None:
        """None: untouched, or its record is gone."""
        return self.train.corpus if self.train is not None and isinstance(self.train.corpus, CorpusStage) else None

    @property
    def source(self) -> str | None:
        """The source of its corpus; the first of several."""
        return None if self.corpus is None else self.corpus.sources[0].source

    @property
    def chosen_on_test(self) -> tuple[str, ...]:
        """Tasks that chose the weights and are scored, too."""
        return () if self.train is None or self.scores is None else chosen_and_scored(self.train.selection, self.scores.tasks)

    @property
    def flattered(self) -> str:
        """What was chosen of a training by the very test sets that are scored; "" for nothing."""
        if self.train is None:
            return ""
        parts = (
            f"weights chosen by {' and '.join(self.chosen_on_test)}, which are scored" if self.chosen_on_test else "",
            "relation chosen by the test" if self.view.relations is not None and self.view.relations.combine == "best" else "",
        )
        return "; ".join(part for part in parts if part)

    @property
    def line(self) -> str:
        """What a reader must know of a row to compare it with a printed one; "" of what is neither trained nor an encoder as it is."""
        encoder = self.untouched if self.train is None else self.train.encoder
        if encoder is None:
            return ""
        view = tuple(_scored_by(self.view))
        if self.train is None:
            return ", ".join((*_encoder(encoder), *view))
        training = self.train.training
        further = (*_unlike_defaults(self.train.regularizers), *view, *self._beginning(), self._selected_by, self.flattered)
        parts = (*_encoder(encoder), f"batch {training.batch_size}", f"epochs {training.epochs}", *self._chosen(), *further)
        return ", ".join(part for part in parts if part)

    @property
    def _selected_by(self) -> str:
        """What chose the weights of a training."""
        if self.train is None or self.train.selection is None:
            return "last weights"
        return f"selected on {self.train.selection.name}"

    def _beginning(self) -> Iterator[str]:
        """What a training goes on from, where that is no checkpoint, and what of it stays."""
        if self.train is not None and self.train.start is not None:
            before = self.train.start
            yield f"after {before.objective.name}" if isinstance(before, Train) else "after another training"
        if self.train is not None and self.train.training.freeze_encoder:
            yield "encoder frozen"

    def _chosen(self) -> Iterator[str]:
        """Fields of the corpus and the objective that differ from their defaults, which are mostly what papers printed."""
        assert self.train is not None
        if self.corpus is not None:
            yield from _unlike_defaults(self.corpus)
        objective = self.train.objective
        if not isinstance(objective, Sum):
            yield from _unlike_defaults(objective)
            return
        for term in objective.terms:
            yield f"{term.objective.name} weight {term.weight:g}"
            yield from (f"{term.objective.name} {field}" for field in _unlike_defaults(term.objective))


def _encoder(encoder: EncoderSpec) -> Iterator[str]:
    """Which encoder it is, as far as it is one, and how its token vectors become one."""
    yield encoder.checkpoint.rpartition("/")[2]
    yield from ("random weights",) if encoder.initialization == "random" else ()
    yield from (f"layers {encoder.layers}",) if encoder.layers is not None else ()
    yield encoder.pooling


def _scored_by(view: View) -> Iterator[str]:
    """How embeddings are scored, where that is not by their plain cosine. Weights of relations are not named here."""
    yield from _unlike_defaults(view)
    if isinstance(view.channels, tuple):
        yield f"channels {view.channels[0]} to {view.channels[1]}"
    yield from _unlike_defaults(view.relations) if view.relations is not None else ()


def _unlike_defaults(value: Frozen) -> Iterator[str]:
    """Numbers, words and switches of a plan's value that are not their defaults, as a reader says them."""
    for name, field in type(value).model_fields.items():
        found = getattr(value, name)
        if value.follows(name) or field.is_required() or found == field.default or not isinstance(found, str | int | float):
            continue
        said = ("off", "on")[found] if isinstance(found, bool) else f"{found:g}" if isinstance(found, float) else str(found)
        yield f"{name.removeprefix('num_').replace('_', ' ')} {said}"


def cell_facts(trial: TrialRecord, records: Mapping[str, Record]) -> CellFacts:
    """Read from a trial's records."""
    train, scores = restored(trial.train, records), restored(trial.key, records)
    return CellFacts(train=train if isinstance(train, Train) else None, scores=scores if isinstance(scores, Scores) else None)
