"""Corpora that are like another one of the recipe: what they do not say themselves is taken from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sentdist.errors import brief
from sentdist.plan.wording import not_one_of

LIKE = "like"
MAIN = "corpus"  # the recipe's own, beside the names under `corpora`


def with_inherited_corpora(values: object) -> object:
    """The values of a recipe with each `like: NAME` under `corpora` written out.

    NAME is `corpus` or another name under `corpora`. A list of names under `relations` stands for the relations of that name there. What
    `--set` changes of the one is changed of those like it.

    Raises:
        ValueError: an unknown name, a circle, a relation that is not there, a sweep or search over the corpus that others are like.
    """
    if not isinstance(values, dict) or not isinstance(corpora := values.get("corpora"), dict):
        return values
    known = {MAIN: values.get(MAIN), **corpora}
    inherits = {name: one[LIKE] for name, one in corpora.items() if isinstance(one, dict) and LIKE in one}
    for section, path in _varied(values):
        changed = path.removeprefix("corpora.").partition(".")[0]
        if changed in inherits.values():
            raise ValueError(
                f"{section}.{path}: corpora that are like {changed} would keep their values; expected each to be varied, or no like"
            )
    written = {name: _written(name, known, inherits, ()) if name in inherits else one for name, one in corpora.items()}
    return values | {"corpora": written} if inherits else values


def _varied(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields that a sweep or a search changes, with the section that says so, before anything is checked."""
    search = values.get("search")
    for section, paths in (("sweep", values.get("sweep")), ("search.space", search.get("space") if isinstance(search, dict) else None)):
        yield from ((section, str(path)) for path in (paths if isinstance(paths, dict) else ()))


def _written(name: str, known: dict[str, Any], inherits: dict[str, Any], chain: tuple[str, ...]) -> dict[str, Any]:
    own, other = known[name], inherits[name]
    where = f"corpora.{name}.{LIKE}"
    if not isinstance(other, str) or other not in known:
        raise ValueError(f"{where}: {not_one_of(str(other), tuple(known))}")
    if other == name or other in chain:
        raise ValueError(f"{where}: found {' → '.join((*chain, name, other))}; expected no circle")
    base = _written(other, known, inherits, (*chain, name)) if other in inherits else known[other]
    if not isinstance(base, dict):
        raise ValueError(f"{where}: found {other}, which is no section; expected a corpus")
    merged = {**base, **{field: value for field, value in own.items() if field != LIKE}}
    if "relations" in own:
        named, there, of = own["relations"], base.get("relations"), f"corpora.{name}.relations"
        if not isinstance(named, list | tuple):
            raise ValueError(f"{of}: found {brief(named)}; expected a list of relations, or of names of those under {other}")
        merged["relations"] = [_relation(one, [*there] if isinstance(there, list | tuple) else [], where=of) for one in named]
    return merged


def _relation(one: Any, there: Sequence[Any], *, where: str) -> Any:
    if not isinstance(one, str):
        return one
    named = {relation.get("name"): relation for relation in there if isinstance(relation, dict)}
    if one not in named:
        raise ValueError(f"{where}: {not_one_of(one, tuple(map(str, named)))}")
    return named[one]
