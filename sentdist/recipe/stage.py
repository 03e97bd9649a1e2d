"""The base class of stages (frozen values with a key that identifies the artifact), their order, and canonical spelling."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, wraps
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, Self, TypeVar

from pydantic import JsonValue

from sentdist.frozen import Frozen

Json = JsonValue
Purpose = Literal["training", "scores", "aside"]
Processes = Literal["one", "shards", "group"]

# Sources `generated/…` were once called `embedded/…`. Keys and places of artifacts keep that word, so that finished work stays finished.
_SOURCE, _SOURCE_IN_KEYS = '"generated/', '"embedded/'
_SOURCE_IN_LABELS = re.compile(r"(^|\+|-on-)(?:generated|embedded)-(?=(?:nli|sts|faq)\b)")
KEY_LENGTH = 16  # hex digits: 64 bits, a chance of 3e-8 that two of a million stages collide


class Stage(Frozen):
    """Description of an artifact to build. All fields enter the key; a field that holds a Stage is an edge of the graph."""

    kind: ClassVar[str]
    revision: ClassVar[int]  # raised when the meaning of a stage changes while its fields do not
    purpose: ClassVar[Purpose] = "aside"  # "training": part of making an encoder, counts as cost of a trial; "scores"; "aside": in no plan
    speed_of: ClassVar[str | None] = None  # kind of stage whose finished artifacts forecast the work of this one; None: no forecast
    # Who builds it on a cluster: "one" process; a "group" of all workers; "shards": a group if it has several workers. None: who needs it.
    built_by: ClassVar[Processes | None] = None

    @cached_property
    def key(self) -> str:
        """Digest of kind, revision, fields and the keys of the inputs."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.replace(_SOURCE, _SOURCE_IN_KEYS).encode()).hexdigest()[:KEY_LENGTH]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, but drop the cached key if fields change."""
        copy = super().model_copy(update=update, deep=deep)
        if update:
            copy.__dict__.pop("key", None)
        return copy

    @property
    def label(self) -> str:
        """Short readable name; it precedes the key in the name of the artifact's folder."""
        return self.kind

    @property
    def precision_used(self) -> str | None:
        """Precision in which the stage's encoder computes; None without an encoder."""
        return None

    @property
    def uses_gpu(self) -> bool:
        """Whether the stage uses a GPU if trainings have one."""
        return self.precision_used is not None

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        """Return an upper bound of the sentences that the stage trains on or encodes.

        Args:
            rows: `rows` of a plan.

        Raises:
            TypeError: a kind of stage that plans do not contain.
        """
        raise TypeError(f"{self.kind}.num_sentences is not implemented")

    @property
    def place(self) -> str:
        """Folder of the artifact below the root of a store."""
        label = _SOURCE_IN_LABELS.sub(r"\1embedded-", self.label)
        return f"{self.kind}/{label}-{self.key}"

    def canonical(self) -> dict[str, Json]:
        """Return kind, revision and fields as JSON values, every input stage replaced by its key."""
        return {"kind": self.kind, "revision": self.revision, "fields": canonical_fields(self, self.kind)}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        """The stages in the fields of this one, each once, in order of appearance."""
        found = {stage.key: stage for name in type(self).model_fields for stage in _stages_in(getattr(self, name))}
        return tuple(found.values())


def with_current_source_names(canonical: dict[str, Json]) -> dict[str, Json]:
    """Return canonical values of an older version with the current names of sources, so that records can be compared."""
    renamed: dict[str, Json] = json.loads(json.dumps(canonical).replace(_SOURCE_IN_KEYS, _SOURCE))
    return renamed


def label_of(place: str) -> str:
    """Return the label of the stage at a place: the folder name without the key, with the current names of sources."""
    return _SOURCE_IN_LABELS.sub(r"\1generated-", place.partition("/")[2].rpartition("-")[0])


def as_number(value: object) -> float | None:
    """Return a JSON value as float; None if it is no number (booleans are none)."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def slug(text: str) -> str:
    """Return a text as lower-case words for the name of a folder."""
    return "".join(letter if letter.isalnum() or letter in "+-._" else "-" for letter in text.lower()).strip("-")


def topological(targets: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the targets and all stages they need, inputs first, each once."""
    ordered: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.key in ordered:
            return
        for needed in stage.inputs:
            visit(needed)
        ordered[stage.key] = stage

    for target in targets:
        visit(target)
    return tuple(ordered.values())


def _canonical(value: object, where: str) -> Json:
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, enum.Enum):
        return _canonical(value.value, where)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{where}: {value} has no canonical spelling")
        return value + 0.0  # -0.0 and 0.0 are one number
    if isinstance(value, tuple):
        return [_canonical(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, Stage):
        return {"stage": value.key}
    if isinstance(value, Frozen):
        return canonical_fields(value, where)
    raise TypeError(f"{where}: a {type(value).__name__} has no canonical spelling, so it cannot be in a stage")


def canonical_fields(value: Frozen, where: str) -> dict[str, Json]:
    """Return the fields of a value as keys and records spell them.

    Args:
        where: Name of the value, for errors.

    Raises:
        TypeError: a field has no canonical spelling.
    """
    declared = type(value).model_fields
    silent = {name for name in value.later_fields if getattr(value, name) == declared[name].default}
    return {name: _canonical(getattr(value, name), f"{where}.{name}") for name in declared if name not in silent}


def _stages_in(value: object) -> Iterator[Stage]:
    if isinstance(value, Stage):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _stages_in(item)
    elif isinstance(value, Frozen):
        for name in type(value).model_fields:
            yield from _stages_in(getattr(value, name))


Owner = TypeVar("Owner")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def memoized(method: Callable[Concatenate[Owner, Given], Answer]) -> Callable[Concatenate[Owner, Given], Answer]:
    """Cache the results of a method per object and arguments, as long as the object lives.

    For immutable results that depend only on the object and on hashable arguments. Exceptions are not cached.
    """
    name = f"_answers_of_{method.__name__}"

    @wraps(method)
    def answer(self: Owner, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        answers: dict[Any, Answer] = self.__dict__.setdefault(name, {})
        given = (args, tuple(sorted(kwargs.items()))) if kwargs else args
        if given not in answers:
            answers[given] = method(self, *args, **kwargs)
        return answers[given]

    return answer
