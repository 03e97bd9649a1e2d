"""Set values of a recipe by dotted path (`--set`, `sweep`), shorten paths for display, and check which fields may vary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sentdist.corpora import CorpusSection
from sentdist.corpora.own import OwnSection
from sentdist.errors import RecipeError, brief
from sentdist.recipe.specs import OwnFileSection
from sentdist.recipe.stage import Json

_ITEM = re.compile(r"\w+\[\d*\]")  # as other languages write it


def with_path(values: dict[str, Json], dotted: str, value: Json, *, where: str) -> dict[str, Json]:
    """Return a copy of nested mappings with one dotted path set; every mapping on the path is copied.

    Raises:
        RecipeError: the path leads into a value that is no mapping, or to an item that a list does not have.
    """
    head, _, rest = dotted.partition(".")
    if _ITEM.fullmatch(head):
        remedy = f"For the first one: {head.partition('[')[0]}.0"
        raise RecipeError(where=where, found=f'"{head}"', expected="list items by index, from 0, separated by dots", remedy=remedy)
    copy = dict(values)
    if not rest:
        copy[head] = value
        return copy
    inner = copy.get(head, {})
    if inner is None:
        inner = {}
    if isinstance(inner, list | tuple):
        copy[head] = _with_item(inner, rest, value, where=where)
        return copy
    if not isinstance(inner, dict):
        raise RecipeError(where=where, found=f"{dotted}: {head} is {brief(inner)}", expected="a mapping there", remedy="Shorten the path.")
    copy[head] = with_path(inner, rest, value, where=where)
    return copy


def with_key(values: dict[str, Json], sections: Sequence[str], key: str, value: Json) -> dict[str, Json]:
    """Return a copy of nested mappings with one key set in the mapping below `sections`."""
    if not sections:
        return {**values, key: value}
    inner = values.get(sections[0])
    return {**values, sections[0]: with_key(inner if isinstance(inner, dict) else {}, sections[1:], key, value)}


def short_names(groups: Iterable[Sequence[str]]) -> dict[str, str]:
    """Map each dotted path to its last part, or to as many last parts as distinguish it from the other paths of its groups."""
    found: dict[str, str] = {}
    for group in groups:
        for path in group:
            parts, others = path.split("."), [other.split(".") for other in group if other != path]
            enough = (count for count in range(1, len(parts)) if all(other[-count:] != parts[-count:] for other in others))
            name = ".".join(parts[-next(enough, len(parts)) :])
            found[path] = max(found.get(path, ""), name, key=len)
    return found


def _with_item(items: Sequence[Json], dotted: str, value: Json, *, where: str) -> list[Json]:
    """Return a copy of a list with a dotted path into one of its items set; items are counted from 0."""
    head, _, rest = dotted.partition(".")
    if not head.isdecimal() or int(head) >= len(items):
        raise RecipeError(
            where=where,
            found=f'"{head}" in a list of {len(items)}',
            expected=f"a number from 0 to {len(items) - 1}",
            remedy="List items are counted from 0: terms.1.weight is the weight of the second term.",
        )
    place, copy = int(head), list(items)
    inner = copy[place]
    if rest and not isinstance(inner, dict):
        raise RecipeError(where=where, found=f"{dotted}: {head} is {brief(inner)}", expected="a mapping there", remedy="Shorten the path.")
    copy[place] = with_path(inner, rest, value, where=where) if rest and isinstance(inner, dict) else value
    return copy


def check_varied(section: str, paths: Iterable[str], corpora: Mapping[str, CorpusSection], *, has_folds: bool) -> None:
    """Raise ValueError for a field of a sweep or a search that decides which rows are held out.

    Args:
        corpora: Corpus sections by their dotted path.
    """
    fixed = [field for where, corpus in corpora.items() for field in _deciding(where, corpus, has_folds=has_folds)]
    for path in paths:
        if any(f"{path}.".startswith(f"{field}.") for field in ("folds", *fixed)) or any(field.startswith(f"{path}.") for field in fixed):
            raise ValueError(
                f"{section}.{path}: decides which rows are held out, so scores at different values are of different rows and cannot be "
                "compared; expected one value: make a recipe for each"
            )


def _deciding(where: str, corpus: CorpusSection, *, has_folds: bool) -> list[str]:
    """Return the fields of a corpus that decide which rows are held out: for a user file all but the limit of the training rows."""
    fields = tuple(OwnFileSection.model_fields) if isinstance(corpus, OwnSection) else ("source",) if has_folds else ()
    return [f"{where}.{field}" for field in fields]
