"""What the code says beside each field of a recipe, for those who write one: editors show it."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from functools import cache

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sentdist.frozen import Frozen


class CommentedSchema(GenerateJsonSchema):
    """pydantic's schema, each field with its comment as a description."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for name, comment in field_comments(schema["cls"]).items():
            if name in made.get("properties", {}):
                made["properties"][name].setdefault("description", comment)
        return made


def field_comments(value: type[Frozen]) -> dict[str, str]:
    """The comment of each field that has one: the one behind it, or else the lines of comment above it; those of base classes, too."""
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
            said = comments.get(node.end_lineno or 0) or " ".join(comments[line] for line in range(above + 1, node.lineno))
            if said:
                found[node.target.id] = said[0].upper() + said[1:]
    return found
