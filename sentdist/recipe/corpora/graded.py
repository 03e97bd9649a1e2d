"""The corpus of graded pairs: NLI labels or similarity scores, mapped to one scale."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sentdist.errors import RecipeError
from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import Labels
from sentdist.recipe.corpora.kind import CorpusStage, Planning, Section, pinned
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.specs import OwnRows
from sentdist.recipe.stage import slug
from sentdist.tasks.sts import StsTask

Scale = Literal["nli", "zero_to_five", "one_to_five"]
Rounding = Literal["half_even", "half_up", "truncate", "none"]
Spacing = Annotated[float, Field(gt=0.0)]

TOP_LABEL: dict[str, float] = {"nli": 2.0, "zero_to_five": 5.0, "one_to_five": 5.0}


class GradedPart(Frozen):
    """Pairs of one source."""

    later_fields: ClassVar[tuple[str, ...]] = ("own",)

    source: str
    source_revision: str
    split: str | None = "train"
    columns: tuple[str, str, str] = ("sentence1", "sentence2", "score")
    scale: Scale  # nli: contradiction 0, neutral 1, entailment 2; one_to_five is mapped to 0 … 5
    own: OwnRows | None = None  # the source is a user file, whose scores are mapped to this scale

    @property
    def name(self) -> str:
        """The name in counts and errors."""
        return f"{self.source}:{self.split}" if self.split else self.source


class GradedCorpus(CorpusStage):
    """Pairs with labels from 0."""

    kind: ClassVar[str] = "graded"
    revision: ClassVar[int] = 1
    holds: ClassVar[str] = "pairs with a label each"
    reader: ClassVar[str] = "sentdist.stages.corpora:graded_rows"

    parts: Annotated[tuple[GradedPart, ...], Field(min_length=1)]
    rounding: Rounding = "half_even"  # of scores, to the grid of labels
    spacing: Spacing = 1.0  # of the grid
    without: tuple[StsTask, ...] = ()  # tasks whose pairs are left out of the training
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0

    @property
    def label(self) -> str:
        filtered = "-filtered" if self.without else ""
        return slug("+".join(part.source for part in self.parts) + (f"-{self.limit}" if self.limit else "") + filtered)

    @property
    def num_columns(self) -> int:
        return 2

    @property
    def num_positives(self) -> int:
        return 1

    @property
    def labels(self) -> Labels:
        return Labels(top=self.top_label, spacing=None if self.rounding == "none" else self.spacing)

    @property
    def top_label(self) -> float:
        """The highest label; the lowest is 0."""
        return max(TOP_LABEL[part.scale] for part in self.parts)

    @property
    def sources(self) -> tuple[GradedPart, ...]:
        return self.parts


class GradedPartSection(Frozen):
    """One source of graded pairs."""

    source: str
    revision: str | None = None
    split: str | None = "train"
    columns: tuple[str, str, str] = ("sentence1", "sentence2", "score")
    scale: Scale


class GradedSection(Section):
    """The graded pairs of a recipe."""

    kind: Literal["graded"]
    parts: Annotated[tuple[GradedPartSection, ...], Field(min_length=1)]
    rounding: Rounding = "half_even"
    spacing: Spacing = 1.0
    without: tuple[str, ...] = ()  # names of tasks or groups of tasks
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0

    def planned(self, given: Planning, *, where: str) -> tuple[GradedCorpus, int]:
        return graded_corpus(self, given.resolver, without=given.pairs_of(self.without, f"{where}.without"), where=where)


def graded_corpus(section: GradedSection, resolver: Resolver, *, without: tuple[StsTask, ...], where: str) -> tuple[GradedCorpus, int]:
    """Return the stage of a section, and an estimate of its rows."""
    pins = [
        resolver.source(part.source, split=part.split, revision=part.revision, columns=part.columns, where=f"{where}.parts[{number}]")
        for number, part in enumerate(section.parts)
    ]
    parts = tuple(GradedPart(**pinned(part, pin)) for pin, part in zip(pins, section.parts, strict=True))
    corpus = GradedCorpus(parts=parts, without=without, **section.model_dump(exclude={"kind", "parts", "without"}))
    _check(section, corpus, where)
    rows = sum(pin.num_rows for pin in pins)
    return corpus, min(rows, section.limit or rows)


def _check(section: GradedSection, corpus: GradedCorpus, where: str) -> None:
    """Raise RecipeError for scales that cannot be mixed, and for rounding without effect."""
    scales = {part.scale for part in section.parts}
    names = [part.name for part in corpus.parts]
    is_nli = scales == {"nli"}
    for holds, field, found, expected, remedy in (
        (is_nli or "nli" not in scales, "parts", "NLI labels and scores", "one kind of labels", "Make two corpora of them."),
        (len(set(names)) == len(names), "parts", f"{', '.join(names)}", "each source and split once", "Drop the repetition."),
        (not is_nli or section.rounding == "half_even", "rounding", section.rounding, "no rounding of NLI labels", "Leave it out."),
        (not is_nli or section.spacing == 1.0, "spacing", f"{section.spacing:g}", "no spacing for NLI labels", "Leave it out."),
        (
            section.rounding != "none" or section.spacing == 1.0,
            "spacing", f"{section.spacing:g} with rounding none", "a rounding", "Leave spacing out, or choose a rounding.",
        ),
        (
            round(corpus.top_label / section.spacing, 9) % 1 == 0,
            "spacing", f"{section.spacing:g}", f"a divisor of {corpus.top_label:g}, the highest label", "Use 1 for integers.",
        ),
    ):  # fmt: skip
        if not holds:
            raise RecipeError(where=f"{where}.{field}", found=found, expected=expected, remedy=remedy)
