"""Kinds of training corpus. A file each has the section of a recipe, the stage with its checks and label, and how its rows are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union, get_args

from pydantic import Discriminator, Tag

from sentdist.corpora.graded import GradedCorpus, GradedSection
from sentdist.corpora.groups import GroupedCorpus, GroupsSection
from sentdist.corpora.kind import CorpusStage, Section
from sentdist.corpora.own import OwnSection
from sentdist.corpora.relations import RelationalCorpus, RelationsSection
from sentdist.corpora.rows import RowsCorpus, RowsSection

CORPORA: tuple[type[CorpusStage], ...] = (GradedCorpus, GroupedCorpus, RelationalCorpus, RowsCorpus)
SECTIONS: tuple[type[Section], ...] = (GradedSection, GroupsSection, OwnSection, RelationsSection, RowsSection)
SECTION_KINDS = tuple(get_args(section.model_fields["kind"].annotation)[0] for section in SECTIONS)


def _kind_of(value: object) -> object:
    return value.get("kind", "rows") if isinstance(value, dict) else getattr(value, "kind", None)


if TYPE_CHECKING:
    AnyCorpus = CorpusStage
    CorpusSection = Section
else:
    AnyCorpus = Union[CORPORA]  # noqa: UP007
    _TAGGED = (Annotated[section, Tag(kind)] for section, kind in zip(SECTIONS, SECTION_KINDS, strict=True))
    CorpusSection = Annotated[Union[tuple(_TAGGED)], Discriminator(_kind_of)]  # noqa: UP007
