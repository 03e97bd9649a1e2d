"""The corpus of anchors with P positives and Q negatives each: NLI rows grouped by premise."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.frozen import Count, Frozen
from sentdist.recipe.corpora.kind import CorpusStage, Planning, Section, pinned
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.stage import slug

Fill = Literal["own_then_copies", "copies"]


NliLabels = tuple[str, str]
Rewording = Literal["word_deletion", "synonyms", "paraphrases"]

PRINTED_FRACTIONS: dict[Rewording, float] = {"word_deletion": 0.1, "synonyms": 0.2, "paraphrases": 0.5}  # SupMPN, Appendix A.1


class GroupPart(Frozen):
    """NLI rows of one source."""

    own: ClassVar[None] = None

    source: str
    source_revision: str
    split: str | None = "train"
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
    reader: ClassVar[str] = "sentdist.stages.corpora:groups_rows"

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


class GroupPartSection(Frozen):
    """One source of NLI rows."""

    source: str
    revision: str | None = None
    split: str | None = "train"
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
        return grouped_corpus(self, given.resolver, where=where)


def grouped_corpus(section: GroupsSection, resolver: Resolver, *, where: str) -> tuple[GroupedCorpus, int]:
    """Return the stage of a section, and an upper bound of its rows: half of the NLI rows."""
    parts, rows = [], 0
    for number, part in enumerate(section.parts):
        at = f"{where}.parts[{number}]"
        pin = resolver.source(part.source, split=part.split, revision=part.revision, columns=part.columns, where=at)
        parts.append(GroupPart(**pinned(part, pin)))
        rows += pin.num_rows
    shared = section.model_dump(exclude={"kind", "parts", "augmentation"})
    augmentation = None if section.augmentation is None else _augmentation(section.augmentation, resolver, where=f"{where}.augmentation")
    corpus = GroupedCorpus(parts=tuple(parts), augmentation=augmentation, **shared)
    most = max(1, rows // (2 * section.at_least))
    return corpus, min(most, section.limit or most)


def _augmentation(section: AugmentationSection, resolver: Resolver, *, where: str) -> Augmentation:
    name, fraction = section.name, section.fraction or PRINTED_FRACTIONS[section.name]
    if section.checkpoint is not None:
        pin = resolver.encoder(section.checkpoint, revision=section.revision, where=f"{where}.checkpoint")
        return Augmentation(name=name, fraction=fraction, checkpoint=pin.name, source_revision=pin.revision)
    revision = resolver.wordnet(where=where) if name == "synonyms" else None
    return Augmentation(name=name, fraction=fraction, source_revision=revision)
