"""How a mistake in a recipe is put into words: the field, what was found, what it may have meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentdist.errors import LONGEST_VALUE, brief, one_line
from sentdist.plan.corpora import SECTION_KINDS
from sentdist.plan.objectives import OBJECTIVE_NAMES
from sentdist.spelling import did_you_mean, near

TAGS = frozenset({*OBJECTIVE_NAMES, *SECTION_KINDS})  # pydantic puts the chosen member of a union into the place of an error


def not_one_of(name: str, names: Sequence[str]) -> str:
    """A sentence that says what names there are."""
    return f'"{one_line(name, LONGEST_VALUE)}" is not one of {", ".join(names) or "(none)"}. {did_you_mean(name, names)}'.rstrip()


def explained(problem: object, fields_beside: Callable[[list[str]], list[str]]) -> str:
    """One of pydantic's errors as a line for people. fields_beside: the fields that a mapping at a place can have."""
    assert isinstance(problem, dict)
    location = _place([str(part) for part in problem["loc"]])
    where = ".".join(location)
    message = problem["msg"].removeprefix("Value error, ")
    match problem["type"]:
        case "extra_forbidden":
            known = fields_beside(location[:-1])
            closest = near(location[-1], known)
            hint = f'; did you mean "{closest}"?' if closest else f"; known are {', '.join(known)}" if known else ""
            return f"{where}: unknown key{hint}"
        case "value_error":
            return f"{where}: {message}" if where else message
        case "union_tag_invalid" if (location and location[-1] in ("corpus",)) or "corpora" in location[:1]:
            return f"{where}.kind: {not_one_of(str(problem['ctx']['tag']), SECTION_KINDS)}"
        case "union_tag_invalid":
            return f"{where}.name: {not_one_of(str(problem['ctx']['tag']), OBJECTIVE_NAMES)}"
        case "union_tag_not_found" if where.startswith("corp"):
            return f"{where}: found {brief(problem['input'])}; expected a mapping that says where the rows are"
        case "union_tag_not_found":
            return f"{where}.name: found nothing; expected one of {', '.join(OBJECTIVE_NAMES)}"
        case "missing":
            return f"{where}: found nothing; expected a value"
    return f"{where}: {message}, found {brief(problem['input'])}"


def _place(parts: list[str]) -> list[str]:
    """The place as a person would write it: without the union members that pydantic puts in."""
    kept: list[str] = []
    for before, part in zip(["", *parts], parts, strict=False):
        is_member = part in TAGS and (before in ("objective", "corpus") or (len(kept) == 2 and kept[0] == "corpora"))
        if not is_member:
            kept.append(part)
    return kept
