"""The corpus of anchors with P positives and Q negatives each: NLI rows grouped by premise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, ClassVar, Literal, assert_never

from pydantic import Field, model_validator

from sentdist.corpora.kind import CorpusStage, CorpusTable, PinnedPart, Planning, Reading, Section, SourceSection, pinned
from sentdist.frozen import Count, Frozen
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.stage import slug

Fill = Literal["own_then_copies", "copies"]
NliLabels = tuple[str, str]
Rewording = Literal["word_deletion", "synonyms", "paraphrases"]

PRINTED_FRACTIONS: dict[Rewording, float] = {"word_deletion": 0.1, "synonyms": 0.2, "paraphrases": 0.5}  # SupMPN, Appendix A.1


class GroupPart(PinnedPart):
    """NLI rows of one source."""

    own: ClassVar[None] = None

    columns: tuple[str, str, str] = ("premise", "hypothesis", "label")
    labels: NliLabels = ("entailment", "contradiction")  # as in the source; ("0", "2") for numbered labels


class Augmentation(Frozen):
    """How to make positives for a premise with too few, instead of copying the anchor (SupMPN, Table A1)."""

    name: Rewording
    fraction: Annotated[float, Field(gt=0.0, le=1.0)]  # of the words deleted or replaced; of the missing positives that are paraphrased
    checkpoint: str | None = None  # of the paraphraser
    source_revision: str | None = None  # of the paraphraser, or of WordNet


class GroupedCorpus(CorpusStage):
    """(anchor, P positives, Q negatives) rows."""

    kind: ClassVar[str] = "groups"
    revision: ClassVar[int] = 1
    holds: ClassVar[str] = "an anchor with several positives and negatives"

    parts: Annotated[tuple[GroupPart, ...], Field(min_length=1)]
    num_positives: Count = 5
    num_negatives: Count = 5
    at_least: Count = 1  # entailments and contradictions each that a premise must have; 5 with P = Q = 5 is the paper's sub-SNLI
    fill: Fill = "own_then_copies"
    augmentation: Augmentation | None = None
    seed: int = 0
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0

    @property
    def label(self) -> str:
        size = f"p{self.num_positives}-q{self.num_negatives}" + (f"-{self.augmentation.name}" if self.augmentation else "")
        return slug("+".join(part.source for part in self.parts) + f"-{size}" + (f"-{self.limit}" if self.limit else ""))

    @property
    def num_columns(self) -> int:
        return 1 + self.num_positives + self.num_negatives

    @property
    def uses_gpu(self) -> bool:
        return self.augmentation is not None and self.augmentation.name == "paraphrases"

    @property
    def sources(self) -> tuple[GroupPart, ...]:
        return self.parts

    def read(self, reading: Reading) -> CorpusTable:
        """Return columns anchor, positive_1 …, negative_1 …, one row per premise, with counts of found and filled texts.

        Raises:
            DataError: as `group_by_premise`; an unreadable source; WordNet is missing.
            EncoderError: the paraphraser is missing or cannot generate text.
        """
        import pyarrow as pa

        from sentdist.corpora.premises import group_by_premise, inference_rows

        made = self.augmentation
        rows = [
            inference_rows(reading.rows(part, part.columns), columns=part.columns, labels=part.labels, where=part.source)
            for part in self.parts
        ]
        table, facts = group_by_premise(
            pa.concat_tables(rows),
            num_positives=self.num_positives,
            num_negatives=self.num_negatives,
            seed=self.seed,
            fill=self.fill,
            at_least=self.at_least,
            augment=None if made is None else lambda sentences: reworded(sentences, made, seed=self.seed, reading=reading),
            augmented_fraction=made.fraction if made is not None and made.name == "paraphrases" else 1.0,
            limit=self.limit,
            limit_seed=self.limit_seed,
        )
        columns = tuple(table.column_names)
        return CorpusTable(table=table, columns=columns, facts={"premises": asdict(facts)}, limit=self.limit, limit_seed=self.limit_seed)


def reworded(sentences: Sequence[str], made: Augmentation, *, seed: int, reading: Reading) -> Sequence[str]:
    """Return entailments as further positives."""
    from sentdist.data.augmentation import delete_words, nltk_folder, replace_synonyms
    from sentdist.learning.paraphrase import paraphrase

    match made.name:
        case "word_deletion":
            return delete_words(sentences, fraction=made.fraction, seed=seed)
        case "synonyms":
            return replace_synonyms(sentences, fraction=made.fraction, seed=seed, folder=nltk_folder(reading.root))
        case "paraphrases":
            revision = made.source_revision or ""
            folder = reading.folders.get(revision)
            assert reading.device is not None, "a corpus is read with a device"
            return paraphrase(
                sentences, checkpoint=folder or made.checkpoint, revision=None if folder else revision, seed=seed, device=reading.device()
            )
    assert_never(made.name)


class GroupPartSection(SourceSection):
    """One source of NLI rows."""

    columns: tuple[str, str, str] = ("premise", "hypothesis", "label")
    labels: NliLabels = ("entailment", "contradiction")


class AugmentationSection(Frozen):
    """How to make more positives from the entailments of a premise."""

    name: Rewording
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # None: as in the paper, 0.1, 0.2 and 0.5
    checkpoint: str | None = None  # a sequence-to-sequence model that paraphrases: a folder or a hub id
    revision: str | None = None  # of a hub checkpoint

    @model_validator(mode="after")
    def _only_paraphrases_take_a_checkpoint(self) -> AugmentationSection:
        if self.name == "paraphrases" and self.checkpoint is None:
            raise ValueError("checkpoint: found none; expected a sequence-to-sequence model that paraphrases (a folder, or a hub id)")
        if self.name != "paraphrases" and (self.checkpoint is not None or self.revision is not None):
            raise ValueError(f"checkpoint: has no effect on {self.name}; leave it out")
        return self

    def pinned(self, resolver: Resolver, *, where: str) -> Augmentation:
        """Return it with the commit of the paraphraser, or the digest of WordNet."""
        name, fraction = self.name, self.fraction or PRINTED_FRACTIONS[self.name]
        if self.checkpoint is not None:
            pin = resolver.encoder(self.checkpoint, revision=self.revision, where=f"{where}.checkpoint")
            return Augmentation(name=name, fraction=fraction, checkpoint=pin.name, source_revision=pin.revision)
        return Augmentation(name=name, fraction=fraction, source_revision=resolver.wordnet(where=where) if name == "synonyms" else None)


class GroupsSection(Section):
    """The grouped NLI rows of a recipe."""

    kind: Literal["groups"]
    parts: Annotated[tuple[GroupPartSection, ...], Field(min_length=1)]
    num_positives: Count = 5
    num_negatives: Count = 5
    at_least: Count = 1
    fill: Fill = "own_then_copies"
    augmentation: AugmentationSection | None = None
    seed: int = 0
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0

    def planned(self, given: Planning, *, where: str) -> tuple[GroupedCorpus, int]:
        """Return the stage, and an upper bound of its rows: half of the NLI rows."""
        pins = [part.pin(given.resolver, part.columns, where=f"{where}.parts[{number}]") for number, part in enumerate(self.parts)]
        corpus = GroupedCorpus(
            parts=tuple(GroupPart(**pinned(part, pin)) for pin, part in zip(pins, self.parts, strict=True)),
            augmentation=None if self.augmentation is None else self.augmentation.pinned(given.resolver, where=f"{where}.augmentation"),
            **self.model_dump(exclude={"kind", "parts", "augmentation"}),
        )
        most = max(1, sum(pin.num_rows for pin in pins) // (2 * self.at_least))
        return corpus, min(most, self.limit or most)
