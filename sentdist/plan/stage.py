"""What a stage is: a frozen value that says what to make, and the key that names it."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, wraps
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, Self, TypeVar

from pydantic import JsonValue

from sentdist.frozen import Frozen

Json = JsonValue
Purpose = Literal["training", "scores", "aside"]
Processes = Literal["one", "pool", "group"]

# Sources `generated/…` were once called `embedded/…`. Keys and places of artifacts keep that word, so that finished work stays finished.
_SOURCE, _SOURCE_IN_KEYS = '"generated/', '"embedded/'
_SOURCE_IN_LABELS = re.compile(r"(^|\+|-on-)(?:generated|embedded)-(?=(?:nli|sts|faq)\b)")
KEY_LENGTH = 16  # hex digits: 64 bits, a chance of 3e-8 that two of a million stages collide


class Stage(Frozen):
    """One thing to make. Every field counts; a field that holds a Stage is an edge of the graph.

    `revision` is bumped when a stage comes to mean something else although its fields did not change.
    purpose: "training" for what an encoder is made of, whose seconds are a trial's cost; "scores" for what scores it;
    "aside" for what no plan has.
    speed_of: the kind of stage by whose finished artifacts the work of this one is forecast; None: it is not forecast.
    built_by: the processes that build it where there are several: "one"; a "pool", of which each makes parts by itself; a "group", all at
    once. None: no cluster is asked for it, whoever needs it makes it.
    """

    kind: ClassVar[str]
    revision: ClassVar[int]
    purpose: ClassVar[Purpose]
    speed_of: ClassVar[str | None]
    built_by: ClassVar[Processes | None]

    @cached_property
    def key(self) -> str:
        """Digest of kind, revision, fields and the keys of the inputs."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.replace(_SOURCE, _SOURCE_IN_KEYS).encode()).hexdigest()[:KEY_LENGTH]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, whose copy would keep the key of the fields that were."""
        copy = super().model_copy(update=update, deep=deep)
        if update:
            copy.__dict__.pop("key", None)
        return copy

    @property
    def label(self) -> str:
        """A few words for people: they stand before the key in the name of the artifact's folder."""
        return self.kind

    @property
    def precision_used(self) -> str | None:
        """The precision in which the stage's encoder computes; None where it has no encoder."""
        raise TypeError(f"nobody said in which precision the stage {self.kind} computes")

    @property
    def uses_gpu(self) -> bool:
        """Whether it computes on a GPU where trainings have one."""
        return self.precision_used is not None

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        """Sentences that it trains on or encodes, at most. rows: as a plan has them. Raises TypeError for what no plan has."""
        raise TypeError(f"nobody said how many sentences the stage {self.kind} goes through")

    @property
    def place(self) -> str:
        """Folder of the artifact below the root of a store."""
        label = _SOURCE_IN_LABELS.sub(r"\1embedded-", self.label)
        return f"{self.kind}/{label}-{self.key}"

    def canonical(self) -> dict[str, Json]:
        """Kind, revision and fields as JSON values, every input stage replaced by its key."""
        return {"kind": self.kind, "revision": self.revision, "fields": canonical_fields(self, self.kind)}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        """The stages that stand in the fields of this one, each once, in order of appearance."""
        found = {stage.key: stage for name in type(self).model_fields for stage in _stages_in(getattr(self, name))}
        return tuple(found.values())


def in_words_of_today(canonical: dict[str, Json]) -> dict[str, Json]:
    """The canonical values of a stage that an older version wrote, with sources as they are called now, so that records compare."""
    renamed: dict[str, Json] = json.loads(json.dumps(canonical).replace(_SOURCE_IN_KEYS, _SOURCE))
    return renamed


def label_of(place: str) -> str:
    """The label of the stage whose artifact lies in such a place: the folder without the key, with sources as they are called now."""
    return _SOURCE_IN_LABELS.sub(r"\1generated-", place.partition("/")[2].rpartition("-")[0])


def as_number(value: object) -> float | None:
    """What a record or a recipe holds as a number; None for anything else, true and false among it."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def slug(text: str) -> str:
    """Lower-case words for a folder's name."""
    return "".join(letter if letter.isalnum() or letter in "+-._" else "-" for letter in text.lower()).strip("-")


def topological(targets: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """All stages that the targets need, inputs before users, each once."""
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


def longest_path(stages: Iterable[Stage], cost: Callable[[Stage], float]) -> float:
    """The most that stages cost that must follow each other: what they take, however many run at once. stages: inputs before users;
    an input that is not among them costs nothing."""
    ends: dict[str, float] = {}
    for stage in stages:
        ends[stage.key] = cost(stage) + max((ends.get(needed.key, 0.0) for needed in stage.inputs), default=0.0)
    return max(ends.values(), default=0.0)


def most_at_once(stages: Iterable[Stage]) -> int:
    """How many of these stages can be built at once: no more than there are chains of stages that wait for one another.
    stages: inputs before users."""
    ends: set[str] = set()
    num_chains = 0
    for stage in stages:
        before = next((needed.key for needed in stage.inputs if needed.key in ends), None)
        ends = (ends - {before}) | {stage.key}
        num_chains += before is None
    return num_chains


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
    raise TypeError(f"{where}: a {type(value).__name__} has no canonical spelling, so it cannot stand in a stage")


def canonical_fields(value: Frozen, where: str) -> dict[str, Json]:
    """The fields of a value as keys and records spell them. where: its name, for the TypeError of one that has no canonical spelling."""
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
    """Keep what a method answers, for each object by what it is given, as long as the object lives.

    For answers that nobody changes and that follow from the object and from hashable arguments. What raises is not kept.
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
