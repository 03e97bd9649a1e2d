"""The corpus of triples of several relations, with hard negatives drawn within each relation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.frozen import NAME, Count, Frozen
from sentdist.recipe.corpora.kind import CorpusStage, Planning, Section, pinned
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.stage import slug

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


class RelationFile(Frozen):
    """One source of a relation's pairs."""

    own: ClassVar[None] = None

    source: str
    source_revision: str
    split: str | None = "train"


class RelationPart(Frozen):
    """One relation and the sources of its pairs."""

    name: str
    construction: Construction
    sources: Annotated[tuple[RelationFile, ...], Field(min_length=1)]
    columns: tuple[str, ...]
    only: tuple[str, str] | None = None  # (column, value) of the rows to use
    cap: Count | None = None


class RelationalCorpus(CorpusStage):
    """(head, tail, hard negative) rows, each with the number of its relation in `relations`."""

    kind: ClassVar[str] = "relations"
    revision: ClassVar[int] = 1
    holds: ClassVar[str] = "pairs of several relations, with hard negatives"
    reader: ClassVar[str] = "sentdist.stages.corpora:relations_rows"

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


class RelationFileSection(Frozen):
    """One source of a relation's pairs."""

    own: ClassVar[None] = None

    source: str
    revision: str | None = None
    split: str | None = "train"


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
        return relational_corpus(self, given.resolver, where=where)


class LinksSection(Frozen):
    """Which held-out triples are ranked."""

    corpus: str | None = None  # a name under `corpora`; None: the recipe's corpus
    pool: Pool = "relation"  # rank among the tails of the relation, or of all relations


def relational_corpus(section: RelationsSection, resolver: Resolver, *, where: str) -> tuple[RelationalCorpus, int]:
    """Return the stage of a section, and an estimate of its rows: a third of NLI rows are entailments, five captions make ten pairs."""
    parts, rows = [], 0
    for number, part in enumerate(section.relations):
        columns = part.columns or COLUMNS[part.construction]
        wanted = (*columns, *(part.only[:1] if part.only else ()))
        found = 0
        files = []
        for place, file in enumerate(part.sources):
            at = f"{where}.relations[{number}].sources[{place}]"
            pin = resolver.source(file.source, split=file.split, revision=file.revision, columns=wanted, where=at)
            files.append(RelationFile(**pinned(file, pin)))
            found += pin.num_rows
        cap = part.cap or section.cap
        own = part.model_dump(exclude={"sources", "columns", "cap"})
        parts.append(RelationPart(**own, sources=tuple(files), columns=columns, cap=cap))
        pairs = max(1, found // 3) if part.construction == "nli" else 2 * found if part.construction == "captions" else found
        rows += min(pairs, cap or pairs)
    return RelationalCorpus(relations=tuple(parts), **section.model_dump(exclude={"kind", "relations", "cap"})), rows
