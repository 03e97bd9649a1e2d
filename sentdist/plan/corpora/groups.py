"""A corpus of anchors with P positives and Q negatives each: NLI rows grouped by premise."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sentdist.plan.resolver import Resolver
from sentdist.plan.stage import Frozen, Stage, slug

Count = Annotated[int, Field(ge=1)]
Fill = Literal["own_then_copies", "copies"]


class GroupPart(Frozen):
    """NLI rows of one source."""

    source: str
    source_revision: str
    split: str | None = "train"
    columns: tuple[str, str, str] = ("premise", "hypothesis", "label")


class Augmentation(Frozen):
    """How positives are made where a premise has too few, instead of copying the anchor (SupMPN, Table A1)."""

    name: Literal["word_deletion", "synonyms", "paraphrases"]
    fraction: Annotated[float, Field(gt=0.0, le=1.0)]  # of the words deleted or replaced, or of the entailments paraphrased
    checkpoint: str | None = None  # of the paraphraser: any seq2seq model


class GroupedCorpus(Stage):
    """(anchor, P positives, Q negatives) rows."""

    kind: ClassVar[str] = "groups"
    revision: ClassVar[int] = 1

    parts: Annotated[tuple[GroupPart, ...], Field(min_length=1)]
    num_positives: Count = 5
    num_negatives: Count = 5
    fill: Fill = "own_then_copies"
    augmentation: Augmentation | None = None
    seed: int = 0
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0

    @property
    def label(self) -> str:
        size = f"p{self.num_positives}-q{self.num_negatives}"
        return slug("+".join(part.source for part in self.parts) + f"-{size}" + (f"-{self.limit}" if self.limit else ""))

    @property
    def num_columns(self) -> int:
        return 1 + self.num_positives + self.num_negatives

    @property
    def described(self) -> tuple[str, ...]:
        """What the data is, for a model card."""
        return tuple(f"{part.source} ({part.split or 'all'}, {part.source_revision})" for part in self.parts)


class GroupPartSection(Frozen):
    """One source of NLI rows."""

    source: str
    revision: str | None = None
    split: str | None = "train"
    columns: tuple[str, str, str] = ("premise", "hypothesis", "label")


class GroupsSection(Frozen):
    """The grouped NLI rows of a recipe."""

    kind: Literal["groups"]
    parts: Annotated[tuple[GroupPartSection, ...], Field(min_length=1)]
    num_positives: Count = 5
    num_negatives: Count = 5
    fill: Fill = "own_then_copies"
    augmentation: Augmentation | None = None
    seed: int = 0
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0


def grouped_corpus(section: GroupsSection, resolver: Resolver, *, where: str) -> tuple[GroupedCorpus, int]:
    """The stage of a section, and its rows as far as planning can know: an upper bound, a third of the NLI rows."""
    parts, rows = [], 0
    for number, part in enumerate(section.parts):
        at = f"{where}.parts[{number}]"
        pin = resolver.source(part.source, split=part.split, revision=part.revision, columns=part.columns, where=at)
        parts.append(GroupPart(source=pin.name, source_revision=pin.revision, split=part.split, columns=part.columns))
        rows += pin.num_rows
    shared = section.model_dump(exclude={"kind", "parts", "augmentation"})
    corpus = GroupedCorpus(parts=tuple(parts), augmentation=section.augmentation, **shared)
    return corpus, min(max(1, rows // 3), section.limit or rows)
