"""The kinds of training corpus: one file each, with what a recipe says of it and the stage that it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union, get_args

from pydantic import Discriminator, Tag

from sentdist.plan.corpora.graded import GradedCorpus, GradedSection
from sentdist.plan.corpora.groups import GroupedCorpus, GroupsSection
from sentdist.plan.corpora.relations import RelationalCorpus, RelationsSection
from sentdist.plan.corpora.rows import Corpus, RowsSection

AnyCorpus = Corpus | GradedCorpus | RelationalCorpus | GroupedCorpus
AnySection = RowsSection | GradedSection | RelationsSection | GroupsSection

CORPORA: tuple[type[AnyCorpus], ...] = get_args(AnyCorpus)
SECTIONS: tuple[type[AnySection], ...] = get_args(AnySection)
CORPUS_KINDS = tuple(corpus.recipe_kind for corpus in CORPORA)


def _kind_of(value: object) -> object:
    return value.get("kind", "rows") if isinstance(value, dict) else getattr(value, "kind", None)


if TYPE_CHECKING:
    CorpusSection = AnySection
else:
    _TAGGED = (Annotated[section, Tag(section.model_fields["kind"].annotation.__args__[0])] for section in SECTIONS)
    CorpusSection = Annotated[Union[tuple(_TAGGED)], Discriminator(_kind_of)]  # noqa: UP007
