"""Generate the JSON schema of a recipe for editors: keys, types, descriptions and known names."""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
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
        if issubclass(base, Frozen) and base is not Frozen:
            found |= _of_class(base)
    return found


@cache
def _of_class(value: type[Frozen]) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(value))
    lines = source.splitlines()
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# fmt:")
    }
    (made,) = ast.parse(source).body
    assert isinstance(made, ast.ClassDef)
    found: dict[str, str] = {}
    for node in made.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = node.lineno - 1
            while above in comments and lines[above - 1].lstrip().startswith("#"):
                above -= 1
            comment = comments.get(node.end_lineno or 0) or " ".join(comments[line] for line in range(above + 1, node.lineno))
            if comment:
                found[node.target.id] = comment[0].upper() + comment[1:]
    return found


DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMED = re.compile(r"# yaml-language-server: \$schema=((?:[^:]*/)?recipe\.schema\.json)")  # a path, no address of a server
MOST_LETTERS = 1000


def recipe_schema() -> dict[str, Json]:
    """Return the schema; unlike `Recipe` it does not check references between fields, nor settings without effect."""
    schema = Recipe.model_json_schema(schema_generator=CommentedSchema)
    for field, section in CHANGED_BY_METHODS.items():  # `Method` accepts any mapping there; the section checks it later
        properties = schema["$defs"][Method.__name__]["properties"]
        properties[field] = {"$ref": f"#/$defs/{section.__name__}", "description": properties[field]["description"]}
    corpora = schema["properties"]["corpora"]
    for key in ("additionalProperties", "patternProperties"):
        if isinstance(corpora.get(key), dict):
            corpora[key] = (
                _or_like(corpora[key]) if key == "additionalProperties" else {name: _or_like(one) for name, one in corpora[key].items()}
            )
    sections = schema["$defs"]
    sections[EvaluationSection.__name__]["properties"]["tasks"]["items"] = _names((*TASK_GROUPS, *TASKS, OWN), others="=")
    sections[SelectionSection.__name__]["properties"]["task"] |= _names((*dev_names(), OWN), others="[=+]")
    sections[GradedSection.__name__]["properties"]["without"]["items"] = _names((*TASK_GROUPS, *TASKS), others="=")
    _refuse_other_keys(schema)
    return {"$schema": DIALECT, **schema, "$comment": _made_by()}


def _names(known: Sequence[str], *, others: str) -> dict[str, Json]:
    """Return a schema of a known name, which editors complete, or a text that matches `others`: KIND=SOURCE, names joined by +."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string", "pattern": others}]}


def _or_like(section: Json) -> Json:
    """Return a schema of a section, or of `like: NAME` with the fields that differ."""
    fields: dict[str, Json] = {name: {} for one in CORPUS_SECTIONS for name in one.model_fields}
    like: Json = {"type": "object", "required": [LIKE], "properties": {LIKE: {"type": "string"}, **fields}, "additionalProperties": False}
    return {"anyOf": [section, like]}


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(recipe_schema(), indent=1, ensure_ascii=False) + "\n"


def _made_by() -> str:
    """Return the last value of the schema: a file that ends with it is complete and current. Making it takes as long as planning."""
    return f"pydantic {pydantic.VERSION}, code {code_digest()}"


def keep_schema_of(recipe: Path) -> None:
    """Write the schema to the `recipe.schema.json` that a recipe's first line names, unless it is current; ignore a failed write."""
    with recipe.open(encoding="utf-8-sig") as lines:
        named = NAMED.fullmatch(lines.readline(MOST_LETTERS).strip())
    if named is None:
        return
    file = recipe.parent / named.group(1)
    with suppress(OSError):
        if not file.exists() or not file.read_bytes().endswith(f'"$comment": "{_made_by()}"\n}}\n'.encode()):
            with whole_file(file) as part:
                part.write_bytes(schema_text().encode())


def _refuse_other_keys(value: Json) -> None:
    """Forbid other keys in mappings with key patterns; pydantic allows them."""
    if isinstance(value, dict):
        if "patternProperties" in value:
            value.setdefault("additionalProperties", False)
        for inner in value.values():
            _refuse_other_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_other_keys(inner)
