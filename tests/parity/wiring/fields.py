"""Which fields there are, found by looking at the values themselves, and which test is of which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args

from sentdist.frozen import Frozen
from sentdist.plan.corpora import CORPORA
from sentdist.plan.recipe import Recipe
from sentdist.plan.stages import STAGES
from tests.support.planning import section_of

Test = TypeVar("Test", bound=Callable[..., None])
COVERED: set[str] = set()


def covers(*fields: str) -> Callable[[Test], Test]:
    """Say which "Class.field" a test changes."""

    def mark(test: Test) -> Test:
        COVERED.update(fields)
        return test

    return mark


# A recipe's section and the value of a stage that it becomes: a test goes from the one to the other.
BECOMES = {
    "EncoderSection": "EncoderSpec", "GradedPartSection": "GradedPart", "GroupPartSection": "GroupPart", "AugmentationSection": "Augmentation",
    "RelationSection": "RelationPart", "RelationFileSection": "RelationFile",
    "TargetsSection": "Targets", "FoldsSection": "Fold", "SelectionSection": "Selection", "EvaluationSection": "Scores",
} | {section_of(corpus).__name__: corpus.__name__ for corpus in CORPORA}  # fmt: skip


def all_fields() -> Iterator[str]:
    """Every field of every value that a stage or a recipe can hold."""
    seen: set[type] = set()
    open_ = [*STAGES.values(), Recipe]
    while open_:
        found: Any = open_.pop()
        if isinstance(found, type) and issubclass(found, Frozen) and found not in seen:
            seen.add(found)
            for name, field in found.model_fields.items():
                yield f"{BECOMES.get(found.__name__, found.__name__)}.{name}"
                open_.append(field.annotation)
        open_.extend(get_args(found))
