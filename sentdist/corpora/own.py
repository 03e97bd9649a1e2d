"""The corpus of a user file: its format is detected, and the rows that are not held out are trained on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from sentdist.corpora.graded import GradedCorpus, GradedPart
from sentdist.corpora.kind import CorpusStage, Planning, Section
from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import RecipeError
from sentdist.recipe.resolver import OwnPin, Resolver
from sentdist.recipe.specs import OwnFileSection
from sentdist.recipe.stage import Json
from sentdist.recipe.wording import explained


class OwnSection(OwnFileSection, Section):
    """A user file; all rows train except those held out."""

    kind: Literal["own"]
    limit: Annotated[int, Field(ge=1)] | None = None  # of the training rows
    limit_seed: int = 0

    @property
    def shown(self) -> str:
        return self.file

    def pinned(self, resolver: Resolver, *, where: str) -> OwnPin:
        return resolver.own(self, where=where)

    def planned(self, given: Planning, *, where: str) -> tuple[CorpusStage, int]:
        pin = self.pinned(given.resolver, where=where)
        num_rows = min(pin.num_rows, self.limit or pin.num_rows)
        if pin.rows.shape == "graded":
            part = GradedPart(source=pin.name, source_revision=pin.revision, scale="zero_to_five", own=pin.rows)
            return GradedCorpus(parts=(part,), rounding="none", limit=self.limit, limit_seed=self.limit_seed), num_rows
        corpus = RowsCorpus(
            source=pin.name,
            source_revision=pin.revision,
            split="train",
            columns=("sent0", "sent1", "hard_neg") if pin.rows.shape == "triplets" else ("sent0", "sent1"),
            limit=self.limit,
            limit_seed=self.limit_seed,
            own=pin.rows,
        )
        return corpus, num_rows

    def tokens(self, given: Planning, *, where: str) -> float | None:
        return self.pinned(given.resolver, where=where).tokens


def own_section(values: dict[str, Json], *, where: str) -> OwnSection:
    """Check the values of a section; raise RecipeError for an unknown field or an invalid value."""
    try:
        return OwnSection.model_validate(values)
    except ValidationError as error:
        raise RecipeError(where=where, found=explained(error.errors(), values), expected="", remedy="") from None
