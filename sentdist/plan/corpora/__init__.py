"""The kinds of training corpus: one file each, with what a recipe says of it and the stage that it becomes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Tag

from sentdist.plan.corpora.graded import GradedCorpus, GradedSection
from sentdist.plan.corpora.groups import GroupedCorpus, GroupsSection
from sentdist.plan.corpora.relations import RelationalCorpus, RelationsSection
from sentdist.plan.corpora.rows import Corpus, RowsSection

CORPORA = (Corpus, GradedCorpus, RelationalCorpus, GroupedCorpus)
CORPUS_KINDS = tuple(corpus.recipe_kind for corpus in CORPORA)

AnyCorpus = Corpus | GradedCorpus | RelationalCorpus | GroupedCorpus


def _kind_of(value: object) -> object:
    return value.get("kind", "rows") if isinstance(value, dict) else getattr(value, "kind", None)


CorpusSection = Annotated[
    Annotated[RowsSection, Tag("rows")]
    | Annotated[GradedSection, Tag("graded")]
    | Annotated[RelationsSection, Tag("relations")]
    | Annotated[GroupsSection, Tag("groups")],
    Discriminator(_kind_of),
]
