"""The kinds of training corpus: one file each, with its section of a recipe and its stage. Files here are found automatically."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Annotated, TypeVar, Union, get_args

from pydantic import Discriminator, Tag

from sentdist.recipe.corpora.kind import CorpusStage, Section

Kind = TypeVar("Kind", CorpusStage, Section)


def _found(parent: type[Kind]) -> tuple[type[Kind], ...]:
    """Return the subclasses of `parent` in the files of this package, in the order of files."""
    files = sorted(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}."))
    values = [(file, value) for file in files for value in vars(importlib.import_module(file)).values() if isinstance(value, type)]
    return tuple(value for file, value in values if issubclass(value, parent) and value.__module__ == file and value is not parent)


CORPORA = _found(CorpusStage)
SECTIONS = _found(Section)
SECTION_KINDS = tuple(get_args(section.model_fields["kind"].annotation)[0] for section in SECTIONS)


def _kind_of(value: object) -> object:
    return value.get("kind", "rows") if isinstance(value, dict) else getattr(value, "kind", None)


if TYPE_CHECKING:
    AnyCorpus = CorpusStage
    CorpusSection = Section
else:
    AnyCorpus = Union[CORPORA]  # noqa: UP007
    _TAGGED = (Annotated[section, Tag(section.model_fields["kind"].annotation.__args__[0])] for section in SECTIONS)
    CorpusSection = Annotated[Union[tuple(_TAGGED)], Discriminator(_kind_of)]  # noqa: UP007
