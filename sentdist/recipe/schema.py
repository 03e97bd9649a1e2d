"""Generate the JSON schema of a recipe for editors: keys, types, descriptions and known names."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sentdist.corpora import SECTIONS as CORPUS_SECTIONS
from sentdist.corpora.graded import GradedSection
from sentdist.files import code_digest, whole_file
from sentdist.frozen import Frozen
from sentdist.recipe.recipe import LIKE, Recipe
from sentdist.recipe.sections import CHANGED_BY_METHODS, EvaluationSection, Method, SelectionSection
from sentdist.recipe.stage import Json
from sentdist.tasks.cards import TASK_GROUPS, TASKS
from sentdist.tasks.names import OWN, dev_names


class CommentedSchema(GenerateJsonSchema):
    """JSON schema of pydantic with the comment of each field as its description."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for name, comment in field_comments(schema["cls"]).items():
            if name in made.get("properties", {}):
                made["properties"][name].setdefault("description", comment)
        return made


def field_comments(value: type[Frozen]) -> dict[str, str]:
    """Return the comment of each field: the one on its line, or else the comment lines above it; base classes included."""
    found: dict[str, str] = {}
    for base in reversed(value.__mro__):
        above: list[str] = []
        for line in inspect.getsource(base).splitlines() if issubclass(base, Frozen) and base is not Frozen else ():
            text = line.strip()
            if text.startswith("# "):
                above.append(text[2:])
                continue
            field = re.match(r"(\w+): ", text)
            comment = text.partition("  # ")[2] or " ".join(above)
            if field is not None and comment:
                found[field[1]] = comment[0].upper() + comment[1:]
            above = []
    return found


DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMED = re.compile(r"# yaml-language-server: \$schema=((?:[^:]*/)?recipe\.schema\.json)")  # a path, no address of a server
MOST_LETTERS = 1000


def recipe_schema() -> dict[str, Json]:
    """Return the schema; unlike `Recipe` it does not check references between fields, nor settings without effect."""
    schema = Recipe.model_json_schema(schema_generator=CommentedSchema)
    sections = schema["$defs"]
    for field, section in CHANGED_BY_METHODS.items():  # `Method` accepts any mapping there; the section checks it later
        described = sections[Method.__name__]["properties"][field]["description"]
        sections[Method.__name__]["properties"][field] = {"$ref": f"#/$defs/{section.__name__}", "description": described}
    (pattern, corpus), *_ = schema["properties"]["corpora"].pop("patternProperties").items()
    schema["properties"]["corpora"]["patternProperties"] = {pattern: _or_like(corpus)}
    sections[EvaluationSection.__name__]["properties"]["tasks"]["items"] = _names((*TASK_GROUPS, *TASKS, OWN), others="=")
    sections[SelectionSection.__name__]["properties"]["task"] |= _names((*dev_names(), OWN), others="[=+]")
    sections[GradedSection.__name__]["properties"]["without"]["items"] = _names((*TASK_GROUPS, *TASKS), others="=")
    for field in ("corpora", "methods"):  # pydantic allows other keys beside those of a pattern
        schema["properties"][field]["additionalProperties"] = False
    return {"$schema": DIALECT, **schema, "$comment": _made_by()}


def _names(known: Sequence[str], *, others: str) -> dict[str, Json]:
    """Return a schema of a known name, which editors complete, or a text that matches `others`: KIND=SOURCE, names joined by +."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string", "pattern": others}]}


def _or_like(section: Json) -> Json:
    """Return a schema of a section, or of `like: NAME` with the fields that differ."""
    fields: dict[str, Json] = {name: {} for one in CORPUS_SECTIONS for name in one.model_fields}
    like: Json = {"type": "object", "required": [LIKE], "properties": {LIKE: {"type": "string"}, **fields}, "additionalProperties": False}
    return {"anyOf": [section, like]}


def _made_by() -> str:
    """Return the last value of the schema, by which a file is known to be current. Making it takes as long as planning."""
    return f"pydantic {pydantic.VERSION}, code {code_digest()}"


def keep_schema_of(recipe: Path) -> None:
    """Write the schema to the `recipe.schema.json` that a recipe's first line names, unless it is current; ignore a failed write."""
    with recipe.open(encoding="utf-8-sig") as lines:
        named = NAMED.fullmatch(lines.readline(MOST_LETTERS).strip())
    file = None if named is None else recipe.parent / named.group(1)
    with suppress(OSError):
        if file is not None and not (file.exists() and _made_by() in file.read_text(encoding="utf-8")):
            with whole_file(file) as part:
                part.write_text(json.dumps(recipe_schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
