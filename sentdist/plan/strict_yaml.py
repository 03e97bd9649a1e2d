"""YAML as a recipe may be written: numbers as people write them, no silent duplicates, nothing that grows when it is read."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import NoReturn

import yaml

from sentdist.errors import RecipeError, first_line, one_line
from sentdist.plan.stage import Json

MOST_BYTES = 1_000_000  # of a recipe or a `--set`; the shipped recipes have 1,000 to 4,000
MOST_VALUES = 20_000  # counted with aliases expanded: pydantic and messages walk an aliased value as often as it is named
DEEPEST = 32
MOST_LETTERS_A_NUMBER = 100
TOO_LARGE = "above 64 bits"
_HALVES = re.compile("[\ud800-\udfff]")


if yaml.__with_libyaml__:

    class _Loader(yaml.composer.Composer, yaml.CSafeLoader):
        """libyaml reads, several times as quick as PyYAML does; PyYAML composes, so that values can be counted as they come."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)
else:
    _Loader = yaml.SafeLoader  # type: ignore[assignment,misc]


class StrictLoader(_Loader):
    """YAML with `5e-5` as a number, without duplicate keys, recursion, alias bombs, deep nesting and integers above 64 bits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_values = 0
        self._depth = 0
        self._sizes: dict[str, int] = {}  # values under each anchor that is complete

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one value and count it; an alias counts as much as what it stands for."""
        event = self.peek_event()
        assert event is not None  # there is a value to compose
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self.anchors and event.anchor not in self._sizes:
                self._refuse(f"*{event.anchor} stands inside itself", event)
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
    """The value of a YAML text.

    Raises:
        RecipeError: no YAML, or more than `StrictLoader` takes.
    """
    found: str | None = None
    try:
        if len(text) <= MOST_BYTES:
            value: Json = yaml.load(text, Loader=StrictLoader)
            return value
        found = f"a text of {len(text):,} letters, more than {MOST_BYTES:,}"
    except yaml.YAMLError as error:
        found, expected, remedy = _in_words(error, text, expected, remedy)
    except (ValueError, RecursionError) as error:  # PyYAML's own constructors of dates and numbers
        found = f"a value that cannot be read ({first_line(error)})"
    raise RecipeError(where=where, found=found, expected=expected, remedy=remedy)


def _in_words(error: yaml.YAMLError, text: str, expected: str, remedy: str) -> tuple[str, str, str]:
    """What was found, with its line where there are several; what was expected and what to do, as far as that can be known."""
    mark = getattr(error, "problem_mark", None)
    problem = one_line(str(getattr(error, "problem", None) or error), 300).removeprefix("found ")
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    where = f"line {mark.line + 1}: " if mark is not None and len(lines) > 1 else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"{where}a tab at its beginning", "blanks there, by which YAML indents", "Replace it by blanks."
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
            raise yaml.constructor.ConstructorError(None, None, f'the key "{key}" stands twice', key_node.start_mark)
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
        raise yaml.constructor.ConstructorError(None, None, "half of a surrogate pair, which no file can hold", node.start_mark)
    return value


StrictLoader.add_constructor("tag:yaml.org,2002:str", _text)
StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)
StrictLoader.add_constructor("tag:yaml.org,2002:int", _integer_of_64_bits)
StrictLoader.add_implicit_resolver(  # YAML 1.1 wants a dot and a sign in an exponent; people write 5e-5 and 1e5
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)
