"""A corpus of triples of mixed relations, with hard negatives drawn within each relation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.plan.resolver import Resolver
from sentdist.plan.stage import Frozen, Stage, slug

# nli: entailments of (premise, hypothesis, label) rows, with contradictions as negatives; captions: pairs of texts that share a group;
# same: a sentence with itself; pairs: two columns as they stand.
Construction = Literal["pairs", "nli", "captions", "same"]
CapRule = Literal["first", "sample"]


class RelationPart(Frozen):
    """One relation and where its pairs come from."""

    name: str
    construction: Construction = "pairs"
    source: str
    source_revision: str
    split: str | None = "train"
    columns: tuple[str, ...] = ("sentence1", "sentence2")


class RelationalCorpus(Stage):
    """(head, tail, hard negative) rows, each with the number of its relation in `relations`."""

    kind: ClassVar[str] = "relations"
    revision: ClassVar[int] = 1

    relations: Annotated[tuple[RelationPart, ...], Field(min_length=1)]
    cap: Annotated[int, Field(ge=1)] | None = None  # rows of a relation, at most
    cap_rule: CapRule = "first"
    seed: int = 0

    @property
    def label(self) -> str:
        return slug("+".join(part.name for part in self.relations) + (f"-{self.cap}" if self.cap else ""))

    @property
    def num_columns(self) -> int:
        return 3

    @property
    def num_positives(self) -> int:
        return 1

    @property
    def relation_names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.relations)

    @property
    def described(self) -> tuple[str, ...]:
        """What the data is, for a model card."""
        return tuple(f"{part.name}: {part.source} ({part.split or 'all'}, {part.source_revision})" for part in self.relations)


class RelationSection(Frozen):
    """One relation of a recipe."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    construction: Construction = "pairs"
    source: str
    revision: str | None = None
    split: str | None = "train"
    columns: tuple[str, ...] = ("sentence1", "sentence2")


class RelationsSection(Frozen):
    """The relations of a recipe."""

    kind: Literal["relations"]
    relations: Annotated[tuple[RelationSection, ...], Field(min_length=1)]
    cap: Annotated[int, Field(ge=1)] | None = None
    cap_rule: CapRule = "first"
    seed: int = 0

    @model_validator(mode="after")
    def _names_differ(self) -> RelationsSection:
        names = [relation.name for relation in self.relations]
        if len(set(names)) != len(names):
            raise ValueError(f"relations: found {', '.join(names)}; expected each name once")
        return self


def relational_corpus(section: RelationsSection, resolver: Resolver, *, where: str) -> tuple[RelationalCorpus, int]:
    """The stage of a section, and its rows as far as planning can know."""
    parts, rows = [], 0
    for number, part in enumerate(section.relations):
        at = f"{where}.relations[{number}]"
        pin = resolver.source(part.source, split=part.split, revision=part.revision, columns=part.columns, where=at)
        parts.append(
            RelationPart(
                name=part.name, construction=part.construction, source=pin.name, source_revision=pin.revision, split=part.split, columns=part.columns
            )
        )  # fmt: skip
        rows += min(pin.num_rows, section.cap or pin.num_rows)
    return RelationalCorpus(relations=tuple(parts), cap=section.cap, cap_rule=section.cap_rule, seed=section.seed), rows
