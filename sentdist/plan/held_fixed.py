"""What may not vary within a recipe: which rows are held out, for scores of other rows do not compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sentdist.plan.corpora import CorpusSection
from sentdist.plan.corpora.own import OwnSection
from sentdist.plan.own_file import OwnFileSection


def check_varied(section: str, paths: Iterable[str], corpora: Mapping[str, CorpusSection], *, has_folds: bool) -> None:
    """Raise ValueError for a field of a sweep or a search that decides which rows test. corpora: by their dotted path."""
    fixed = [field for where, corpus in corpora.items() for field in _deciding(where, corpus, has_folds=has_folds)]
    for path in paths:
        if any(f"{path}.".startswith(f"{field}.") for field in ("folds", *fixed)) or any(field.startswith(f"{path}.") for field in fixed):
            raise ValueError(
                f"{section}.{path}: decides which rows are held out, so scores at two of its values are of other rows and do not compare; "
                "expected one value: make a recipe for each"
            )


def _deciding(where: str, corpus: CorpusSection, *, has_folds: bool) -> list[str]:
    """The fields of a corpus that decide which rows test: of one's own file all but the limit of those that train."""
    fields = tuple(OwnFileSection.model_fields) if isinstance(corpus, OwnSection) else ("source",) if has_folds else ()
    return [f"{where}.{field}" for field in fields]
