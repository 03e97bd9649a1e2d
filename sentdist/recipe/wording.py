"""Parse YAML strictly, and word errors in recipes: the field, what was found and expected, and a suggestion."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, get_args, get_origin

import yaml

from sentdist.corpora import SECTION_KINDS, SECTIONS
from sentdist.errors import LONGEST_VALUE, RecipeError, brief, counted, did_you_mean, first_line, near, one_line
from sentdist.frozen import NAME, ONE_LINE, Frozen
from sentdist.recipe.objectives import OBJECTIVE_NAMES, OBJECTIVES, Sum
from sentdist.recipe.stage import Json

MOST_BYTES = 1_000_000  # of a recipe or a `--set`; the shipped recipes have 1,000 to 4,000
MOST_VALUES = 20_000  # counted with aliases expanded: pydantic and messages walk an aliased value as often as it is named
DEEPEST = 32
MOST_LETTERS_A_NUMBER = 100
TOO_LARGE = "above 64 bits"
_HALVES = re.compile("[\ud800-\udfff]")


if yaml.__with_libyaml__:

    class _Loader(yaml.composer.Composer, yaml.CSafeLoader):
        """libyaml parses, several times faster than PyYAML; PyYAML composes, so that values can be counted early."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)
else:
    _Loader = yaml.SafeLoader  # type: ignore[assignment,misc]


class StrictLoader(_Loader):
    """YAML with `5e-5` as a number, without duplicate keys, recursion, alias bombs, deep nesting or integers above 64 bits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_values = 0
        self._depth = 0
        self._sizes: dict[str, int] = {}  # values under each anchor that is complete

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one value and count it; an alias counts as many values as its anchor."""
        event = self.peek_event()
        assert event is not None  # there is a value to compose
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self.anchors and event.anchor not in self._sizes:
                self._refuse(f"*{event.anchor} contains itself", event)
            self._count(self._sizes.get(str(event.anchor), 0), event)
            return super().compose_node(parent, index)
        before, self._depth = self._num_values, self._depth + 1
        if self._depth > DEEPEST:
            self._refuse(f"more than {DEEPEST} levels of nesting", event)
        self._count(1, event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if (anchor := getattr(event, "anchor", None)) is not None:
            self._sizes[anchor] = self._num_values - before
        return node

    def _count(self, number: int, event: yaml.Event) -> None:
        self._num_values += number
        if self._num_values > MOST_VALUES:
            self._refuse(f"more than {MOST_VALUES:,} values, aliases expanded", event)

    def _refuse(self, found: str, event: yaml.Event) -> NoReturn:
        raise yaml.composer.ComposerError(None, None, found, event.start_mark)  # type: ignore[arg-type]  # the stubs know marks of libyaml too


def parsed_yaml(text: str, *, where: str, expected: str, remedy: str) -> Json:
    """Parse a YAML text.

    Raises:
        RecipeError: invalid YAML, or content that `StrictLoader` refuses.
    """
    found: str | None = None
    try:
        if len(text) <= MOST_BYTES:
            value: Json = yaml.load(text, Loader=StrictLoader)
            return value
        found = f"a text of {len(text):,} characters, more than {MOST_BYTES:,}"
    except yaml.YAMLError as error:
        found, expected, remedy = _in_words(error, text, expected, remedy)
    except (ValueError, RecursionError) as error:  # PyYAML's own constructors of dates and numbers
        found = f"a value that cannot be read ({first_line(error)})"
    raise RecipeError(where=where, found=found, expected=expected, remedy=remedy)


def _in_words(error: yaml.YAMLError, text: str, expected: str, remedy: str) -> tuple[str, str, str]:
    """Return found (with the line if there are several), expected and remedy for a YAML error."""
    mark = getattr(error, "problem_mark", None)
    problem = one_line(str(getattr(error, "problem", None) or error), 300).removeprefix("found ")
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    where = f"line {mark.line + 1}: " if mark is not None and len(lines) > 1 else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"{where}a tab at the start of the line", "spaces, with which YAML indents", "Replace it by spaces."
    if TOO_LARGE in problem:
        return f"{where}{problem}", expected, "Give a number below 2^63."
    for opening, closing in ("[]", "{}"):
        if not where and text.count(opening) != text.count(closing):
            found = f"{text.count(opening)} {opening} and {text.count(closing)} {closing}"
            return found, expected, f"Close the bracket: {closing}" if text.count(opening) > text.count(closing) else f"Open it: {opening}"
    return f"{where}{problem}", expected, remedy


def _mapping_without_duplicates(loader: StrictLoader, node: yaml.MappingNode) -> dict[object, object]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "a list or a mapping cannot be a key", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f'the key "{key}" occurs twice', key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


def _integer_of_64_bits(loader: StrictLoader, node: yaml.ScalarNode) -> int:
    value = loader.construct_yaml_int(node) if len(node.value) <= MOST_LETTERS_A_NUMBER else None
    if value is None or not -(1 << 63) <= value < 1 << 63:
        raise yaml.constructor.ConstructorError(None, None, f"an integer of {len(node.value):,} digits, {TOO_LARGE}", node.start_mark)
    return int(value)


def _text(loader: StrictLoader, node: yaml.ScalarNode) -> str:
    value = str(loader.construct_yaml_str(node))
    if not value.isascii() and _HALVES.search(value):
        raise yaml.constructor.ConstructorError(None, None, "a lone surrogate, which no file can hold", node.start_mark)
    return value


StrictLoader.add_constructor("tag:yaml.org,2002:str", _text)
StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)
StrictLoader.add_constructor("tag:yaml.org,2002:int", _integer_of_64_bits)
StrictLoader.add_implicit_resolver(  # YAML 1.1 wants a dot and a sign in an exponent; people write 5e-5 and 1e5
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


A_LIST = "a list"  # what a field takes, in words


def fields_at(section: type[Frozen], place: Sequence[str]) -> dict[str, str]:
    """Return the fields of the section at a place below `section`, with a description of their values; empty if it is no section.

    Args:
        place: Names of fields, keys of mappings and indices of lists, and the tags that pydantic adds: the name or kind of a section.
    """
    found: list[type[Frozen]] = [section]
    is_key = False
    for step in place:
        if is_key:
            is_key = False
        elif chosen := [one for one in found if found[1:] and _tag(one) == step]:
            found = chosen
        elif not step.isdigit():
            kinds = [one.model_fields[step].annotation for one in found if step in one.model_fields]
            found = list(dict.fromkeys(inner for kind in kinds for inner in _sections_in(kind)))
            is_key = any(get_origin(kind) is dict for kind in kinds)
    return {field: _taken(about.annotation) for one in reversed(found) for field, about in one.model_fields.items()}


def _taken(kind: Any) -> str:
    """Describe the values of a field of a type."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        return A_LIST
    return "fields with their values below it" if next(_sections_in(kind), None) is not None else "a value"


def _tag(section: type[Frozen]) -> object:
    """Return the value by which one of several sections is chosen: its kind or name."""
    return next((section.model_fields[field].default for field in ("kind", "name") if field in section.model_fields), None)


def _sections_in(kind: Any) -> Iterator[type[Frozen]]:
    """Yield the sections that a field of a type can hold, also in lists and mappings."""
    if isinstance(kind, type) and issubclass(kind, Frozen):
        yield kind
    for inner in get_args(kind):
        yield from _sections_in(inner)


TAGS = frozenset({*OBJECTIVE_NAMES, *SECTION_KINDS})  # pydantic puts the chosen member of a union into the place of an error
ALIKE = 0.83  # similarity of keys that keeps all known keys distinct: precision (0.82) is no misspelt revision
MOST_PROBLEMS = 8  # named for one recipe: more of them are one mistake in many places
PATTERNS = {NAME: "lower-case letters, digits, - and _", ONE_LINE: "one line without control characters"}
ABSENT = {
    "name": "a name such as my_recipe",
    "corpus": "where the rows are, such as {source: nli/triplets}",
    "evaluation": "tasks, such as {tasks: [sts]}",
    "methods": "the rows of the result table, each a method by its name",
}
_MEMBER = re.compile(r"constrained-\w+|\w+\[(?!\d*\]).*\]")  # of a union, as pydantic calls one in the place of an error
_PLAIN = ("bool", "int", "float", "str")  # likewise, of a field below methods.NAME.training or .encoder
_OF_ANOTHER_KIND = ("int_type", "float_type", "bool_type", "string_type", "tuple_type", "dict_type", "model_type", "literal_error")
_FIELD = re.compile(r"[\w.\[\]-]+: ")
_MEANT_BELOW = re.compile(r'((?:[^:"]+\.)?)[^:".]+: unknown key; did you mean "(\w+)(?:\[\])?\.')

Fields = Callable[[list[str]], Mapping[str, str]]
Problem = Mapping[str, Any]


def not_one_of(name: str, names: Sequence[str]) -> str:
    """Return a sentence that rejects a name and lists the known ones, with a suggestion."""
    return f'"{one_line(name, LONGEST_VALUE)}" is not one of {", ".join(names) or "(none)"}. {did_you_mean(name, names)}'.rstrip()


def explained(problems: Iterable[Problem], fields_beside: Fields) -> str:
    """Return pydantic's errors as sentences for users, each once.

    Args:
        fields_beside: Returns the fields that a mapping at a place can have, with a description of their values.
    """
    by_head: dict[str, list[str]] = {}
    found = _of_unions(problems)
    for problem in found[: 4 * MOST_PROBLEMS]:
        head, _, expected = _line(problem, fields_beside).partition("; expected ")
        by_head.setdefault(head, []).append(expected)
    lines = [f"{head}; expected {' or '.join(dict.fromkeys(wanted))}" if wanted[0] else head for head, wanted in by_head.items()]
    # A section that is absent because its fields were written beside it is one mistake, not two.
    written_beside = {"".join(meant.groups()) for line in lines if (meant := _MEANT_BELOW.match(line))}
    lines = [line for line in lines if line.partition(": found nothing")[0] not in written_beside]
    more = len(lines) + max(0, len(found) - 4 * MOST_PROBLEMS) - MOST_PROBLEMS
    sentences = [line if line.endswith((".", "?")) else f"{line}." for line in lines[:MOST_PROBLEMS]]
    return " ".join(sentences + ([f"And {more:,} more."] if more > 0 else []))


def _of_unions(problems: Iterable[Problem]) -> list[Problem]:
    """Drop errors of union members that the value was not meant for."""
    by_place: dict[tuple[object, ...], list[Problem]] = {}
    problems = list(problems)
    for problem in problems:
        place = list(problem["loc"])
        if problem["type"] == "too_short" and any(one["loc"][: len(place)] == problem["loc"] and one is not problem for one in problems):
            continue  # only valid items were counted
        number = next((n for n, part in enumerate(place) if _is_member(place, n, part)), len(place))
        by_place.setdefault((*place[:number], "" if number < len(place) else problem["type"]), []).append(problem)
    kept: list[Problem] = []
    for found in by_place.values():
        meant = [one for one in found if one["type"] not in _OF_ANOTHER_KIND]
        kept += (meant or found) if len(found) > 1 else found
    return kept


def _is_member(place: Sequence[object], number: int, part: object) -> bool:
    is_plain = place[0] == "methods" and number == len(place) - 1 > 3 and part in _PLAIN
    return isinstance(part, str) and (_MEMBER.fullmatch(part) is not None or is_plain)


def _line(problem: Problem, fields_beside: Fields) -> str:
    location = _place(problem["loc"])
    where = ".".join(location)
    match problem["type"]:
        case "extra_forbidden":
            return f"{where}: {_unknown(problem['loc'], location, fields_beside)}"
        case "value_error":
            message = problem["msg"].removeprefix("Value error, ")
            return f"{where}{'.' if _FIELD.match(message) else ': '}{message}" if where else message
        case "union_tag_invalid" if (location and location[-1] in ("corpus",)) or "corpora" in location[:1]:
            return f"{where}.kind: {not_one_of(str(problem['ctx']['tag']), SECTION_KINDS)}"
        case "union_tag_invalid":
            return f"{where}.name: {not_one_of(str(problem['ctx']['tag']), OBJECTIVE_NAMES)}"
        case "union_tag_not_found" if where.startswith("corp"):
            return f"{where}: found {_found(problem)}; expected a mapping with the source of the rows"
        case "union_tag_not_found":
            return f"{where}.name: found nothing; expected one of {', '.join(OBJECTIVE_NAMES)}{_with_its_name(problem['input'])}"
        case "missing":
            expected = ABSENT.get(where) or fields_beside(location[:-1]).get(location[-1], "a value")
        case "model_type" | "model_attributes_type" | "dict_type" if not where.endswith(".objective"):
            expected = ABSENT.get(where) or f"{expected_of(problem, where)}{_as_fields(problem['input'], location, fields_beside)}"
        case "tuple_type" if location[0] == "sweep" and isinstance(problem["input"], dict) and problem["input"]:
            field, values = next(iter(problem["input"].items()))
            expected = f"a list of values. Name a nested field with dots: {{{where.partition('.')[2]}.{field}: {brief(values)}}}"
        case _:
            expected = expected_of(problem, where)
    return f"{where}: found {_found(problem)}; expected {expected}"


def _as_fields(value: object, location: Sequence[str], fields_beside: Fields) -> str:
    """Return how to write the given value as the first, most important field of a section; `{}` for an empty method."""
    if value is None and len(location) == 2 and location[0] == "methods":
        return ", or {} for the untouched encoder"
    first = next(iter(fields_beside([*location])), None)
    return f", such as {{{first}: {one_line(value, LONGEST_VALUE)}}}" if first is not None and isinstance(value, str) else ""


def _with_its_name(value: object) -> str:
    """Return how to write `{info_nce: {temperature: 0.05}}` correctly; "" for other values."""
    name, fields = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else (None, None)
    if name not in OBJECTIVE_NAMES or not isinstance(fields, dict | None):
        return ""
    return f". Write {{{', '.join([f'name: {name}', *(f'{field}: {given}' for field, given in (fields or {}).items())])}}}"


def _unknown(loc: Sequence[object], location: list[str], fields_beside: Fields) -> str:
    """Reject an unknown field, with a suggestion or the fields of the objective or kind of corpus that it was given to."""
    is_tagged = len(loc) > 1 and _place(loc[:-1]) == _place(loc[:-2])  # by a kind or name, which users do not write in a place
    of = str(loc[-2]) if is_tagged and loc[-2] in TAGS else None
    known = list(fields_beside(location[:-1]) or fields_beside([str(step) for step in loc[:-1]]))
    if of in OBJECTIVE_NAMES:
        known = list((OBJECTIVES | {"sum": Sum})[of].model_fields)
    elif of in SECTION_KINDS:
        known = list(SECTIONS[SECTION_KINDS.index(of)].model_fields)
    name = location[-1].partition("[")[0]  # seeds[0]: 3
    others = [field for field in known if field != location[-1]]
    if closest := near(name, others, alike=ALIKE) or _below(location, known, fields_beside) or _above(location, fields_beside):
        return f'unknown key; did you mean "{closest}"?'
    fields = ", ".join(field for field in known if of is None or field not in ("name", "kind"))
    return f"unknown key; {'known are' if of is None else f'{of} has'} {fields}" if fields else "unknown key"


def _below(location: list[str], known: Sequence[str], fields_beside: Fields) -> str | None:
    """Return the field of a neighbouring section that was meant: `methods.NAME.field` in a mapping, `parts[].field` in a list."""
    place, sections = location[:-1], dict[str, str]()
    taken = fields_beside(place)
    for section in known:
        inner = fields_beside([*place, section])
        is_list = taken.get(section) == A_LIST
        is_one_of_many = not is_list and bool(inner) and fields_beside([*place, section, "NAME"]) == inner
        sections = dict.fromkeys(inner, f"{section}[]" if is_list else f"{section}.NAME" if is_one_of_many else section) | sections
    field = near(location[-1], sections, alike=ALIKE)
    return None if field is None else f"{sections[field]}.{field}"


def _above(location: list[str], fields_beside: Fields) -> str | None:
    """Return the field of that name in an enclosing section: `bank` belongs beside an objective, not into it."""
    around = (location[:depth] for depth in range(len(location) - 2, 0, -1))
    return next((".".join([*place, location[-1]]) for place in around if location[-1] in fields_beside(place)), None)


def _found(problem: Problem) -> str:
    value = problem["input"]
    if problem["type"] == "missing" or value is None:
        return "nothing"
    if problem["type"] == "too_short":
        return "none" if isinstance(value, dict) else "an empty list" if not value else brief(value)
    return brief(value)


def expected_of(problem: Problem, where: str) -> str:
    """Describe the values that a field accepts, from pydantic's error."""
    context = problem.get("ctx") or {}
    value = problem["input"]
    match problem["type"]:
        case "tuple_type" | "list_type":
            return f"a list, such as [{value}]" if isinstance(value, str | int | float) and len(str(value)) < 40 else "a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            example = f", such as {{name: {value if value in OBJECTIVE_NAMES else 'info_nce'}}}" if where.endswith(".objective") else ""
            return f"fields with their values below it{example}"
        case "int_type" | "int_parsing" | "int_from_float":
            return "a whole number"
        case "float_type" | "float_parsing":
            return "a number"
        case "bool_type" | "bool_parsing":
            return "true or false"
        case "string_type" | "string_too_short":
            return "text"
        case "greater_than_equal":
            return f"{context['ge']:g} or more"
        case "greater_than":
            return f"more than {context['gt']:g}"
        case "less_than_equal":
            return f"at most {context['le']:g}"
        case "less_than":
            return f"less than {context['lt']:g}"
        case "string_too_long":
            return f"at most {counted(context['max_length'], 'character')}"
        case "too_short":
            return f"at least {'one' if context['min_length'] == 1 else context['min_length']}"
        case "string_pattern_mismatch":
            return PATTERNS.get(context["pattern"], f"text of the form {context['pattern']}")
        case "literal_error":
            choices = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]]
            hint = did_you_mean(value, choices) if isinstance(value, str) else ""
            return f"{'one of ' if len(choices) > 1 else ''}{', '.join(choices)}{f'. {hint}' if hint else ''}"
    return str(problem["msg"].removeprefix("Input should be "))


def _place(loc: Sequence[object]) -> list[str]:
    """Return the place as users write it, without the union members that pydantic adds."""
    kept: list[str] = []
    parts = [str(part) for part in loc]
    for number, (before, part) in enumerate(zip(["", *parts], parts, strict=False)):
        is_tag = part in TAGS and (before in ("objective", "corpus") or (number == 2 and parts[0] == "corpora"))
        if not is_tag and not _is_member(loc, number, loc[number]):
            kept.append(part)
    return kept


def value_text(value: Json) -> str:
    """Return a value of a recipe as short text, such as `{0.01, 0.02}`."""
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(value_text, value)) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)
