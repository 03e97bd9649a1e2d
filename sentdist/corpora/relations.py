"""The corpus of triples of several relations, with hard negatives drawn within each relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.corpora.kind import CorpusStage, CorpusTable, PinnedPart, Planning, Reading, Section, SourceSection, pinned
from sentdist.frozen import NAME, Count, Frozen
from sentdist.recipe.stage import Json, slug

if TYPE_CHECKING:
    from sentdist.corpora.triples import RelationSource

# nli: entailments of (premise, hypothesis, label) rows, with contradictions as negatives; captions: pairs of texts that share a group;
# same: a sentence with itself; pairs: two columns unchanged.
Construction = Literal["pairs", "nli", "captions", "same"]
CapRule = Literal["first", "sample"]
Pool = Literal["relation", "all"]
COLUMNS: dict[str, tuple[str, ...]] = {
    "pairs": ("sentence1", "sentence2"),
    "nli": ("premise", "hypothesis", "label"),
    "captions": ("image", "sentence"),
    "same": ("sentence",),
}


class RelationFile(PinnedPart):
    """One source of a relation's pairs."""

    own: ClassVar[None] = None


class RelationPart(Frozen):
    """One relation and the sources of its pairs."""

    name: str
    construction: Construction
    sources: Annotated[tuple[RelationFile, ...], Field(min_length=1)]
    columns: tuple[str, ...]
    only: tuple[str, str] | None = None  # (column, value) of the rows to use
    cap: Count | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns to read."""
        return (*self.columns, *(self.only[:1] if self.only else ()))


class RelationalCorpus(CorpusStage):
    """(head, tail, hard negative) rows, each with the number of its relation in `relations`."""

    kind: ClassVar[str] = "relations"
    revision: ClassVar[int] = 1
    holds: ClassVar[str] = "pairs of several relations, with hard negatives"

    relations: Annotated[tuple[RelationPart, ...], Field(min_length=1)]
    cap_rule: CapRule = "first"
    held_out: Annotated[int, Field(ge=0)] = 0  # pairs of each relation held out for dev, and as many for test
    seed: int = 0

    @property
    def label(self) -> str:
        caps = {part.cap for part in self.relations if part.cap is not None}
        return slug("+".join(part.name for part in self.relations) + (f"-{max(caps)}" if caps else ""))

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
    def sources(self) -> tuple[RelationFile, ...]:
        return tuple(file for part in self.relations for file in part.sources)

    @property
    def described(self) -> tuple[str, ...]:
        """Description of the data for a model card."""
        return tuple(
            f"{part.name}: {file.source} ({file.split or 'all'}, {file.source_revision})"
            for part in self.relations
            for file in part.sources
        )

    def read(self, reading: Reading) -> CorpusTable:
        """Return columns anchor, positive, negative and relation, with counts of each relation."""
        from sentdist.corpora.triples import join_relations

        sources = relation_sources(self.relations, reading)
        found = join_relations(sources, cap_rule=self.cap_rule, held_out=self.held_out, seed=self.seed)
        facts: dict[str, Json] = {"relations": {name: asdict(count) for name, count in found.counts.items()}}
        return CorpusTable(table=found.table, columns=("anchor", "positive", "negative"), values=("relation",), facts=facts)


def relation_sources(parts: Sequence[RelationPart], reading: Reading) -> list[RelationSource]:
    """Read the tables of each relation."""
    from sentdist.corpora.triples import RelationSource

    return [
        RelationSource(
            name=part.name,
            tables=tuple(reading.rows(file, part.wanted) for file in part.sources),
            construction=part.construction,
            columns=part.columns,
            only=part.only,
            cap=part.cap,
        )
        for part in parts
    ]


class RelationFileSection(SourceSection):
    """One source of a relation's pairs."""


class RelationSection(Frozen):
    """One relation of a recipe."""

    name: Annotated[str, Field(pattern=NAME)]
    construction: Construction = "pairs"
    sources: Annotated[tuple[RelationFileSection, ...], Field(min_length=1)]
    columns: tuple[str, ...] | None = None  # None: the usual ones of this construction
    only: tuple[str, str] | None = None
    cap: Count | None = None  # None: that of the corpus

    @model_validator(mode="after")
    def _columns_fit(self) -> RelationSection:
        usual = COLUMNS[self.construction]
        if self.columns is not None and len(self.columns) != len(usual):
            raise ValueError(
                f"columns: found {len(self.columns)}; expected {len(usual)} for {self.construction}, such as {', '.join(usual)}"
            )
        return self


class RelationsSection(Section):
    """The relations of a recipe."""

    kind: Literal["relations"]
    relations: Annotated[tuple[RelationSection, ...], Field(min_length=1)]
    cap: Count | None = None  # maximum number of pairs per relation
    cap_rule: CapRule = "first"
    held_out: Annotated[int, Field(ge=0)] = 0
    seed: int = 0

    @model_validator(mode="after")
    def _names_differ(self) -> RelationsSection:
        names = [relation.name for relation in self.relations]
        if len(set(names)) != len(names):
            raise ValueError(f"relations: found {', '.join(names)}; expected each name once")
        if self.cap_rule != "first" and self.cap is None and all(relation.cap is None for relation in self.relations):
            raise ValueError("cap_rule: has no effect without a cap; leave it out or give a cap")
        return self

    def planned(self, given: Planning, *, where: str) -> tuple[RelationalCorpus, int]:
        """Return the stage, and an estimate of its rows: a third of NLI rows are entailments, five captions make ten pairs."""
        parts, rows = [], 0
        for number, part in enumerate(self.relations):
            columns = part.columns or COLUMNS[part.construction]
            wanted = (*columns, *(part.only[:1] if part.only else ()))
            pins = [
                file.pin(given.resolver, wanted, where=f"{where}.relations[{number}].sources[{place}]")
                for place, file in enumerate(part.sources)
            ]
            cap = part.cap or self.cap
            files = tuple(RelationFile(**pinned(file, pin)) for file, pin in zip(part.sources, pins, strict=True))
            parts.append(RelationPart(**part.model_dump(exclude={"sources", "columns", "cap"}), sources=files, columns=columns, cap=cap))
            found = sum(pin.num_rows for pin in pins)
            pairs = max(1, found // 3) if part.construction == "nli" else 2 * found if part.construction == "captions" else found
            rows += min(pairs, cap or pairs)
        return RelationalCorpus(relations=tuple(parts), **self.model_dump(exclude={"kind", "relations", "cap"})), rows


class LinksSection(Frozen):
    """Which held-out triples are ranked."""

    corpus: str | None = None  # a name under `corpora`; None: the recipe's corpus
    pool: Pool = "relation"  # rank among the tails of the relation, or of all relations
