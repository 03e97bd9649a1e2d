"""What plan and store tests share: a resolver that answers at once, and a recipe small enough to read."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import get_args

from sentdist.corpora import SECTIONS
from sentdist.corpora.kind import CorpusStage, Section
from sentdist.recipe.recipe import Recipe, load_recipe, recipe_from_values
from sentdist.recipe.resolver import OwnPin, Pin
from sentdist.recipe.specs import OwnFileSection, OwnRows
from sentdist.recipe.stage import Json
from sentdist.recipe.unroll import Plan, unroll

RECIPES = Path(__file__).parents[2] / "rayjobs" / "recipes"


def section_of(corpus: type[CorpusStage]) -> type[Section]:
    """The section of a recipe that becomes a kind of corpus: it stands in the same file."""
    (section,) = [section for section in SECTIONS if section.__module__ == corpus.__module__]
    return section


def recipe_kind(section: type[Section]) -> str:
    """What a recipe calls the kind of a section."""
    (kind,) = get_args(section.model_fields["kind"].annotation)
    return str(kind)


class FixedResolver:
    """Pins every name to one revision, so that keys depend on recipes alone; counts what it was asked."""

    def __init__(self, num_rows: int = 10_000) -> None:
        self.num_rows = num_rows
        self.asked: list[str] = []
        self.notes: list[str] = []

    def source(self, name: str, *, split: str | None, revision: str | None, columns: tuple[str, ...], where: str) -> Pin:
        self.asked.append(name)
        return Pin(name=name, revision=revision or "sha256:0000000000000000", num_rows=self.num_rows)

    def is_retrieval(self, name: str) -> bool:
        return name.startswith(("faqs/", "my/bank"))

    def own(self, file: OwnFileSection, *, where: str) -> OwnPin:
        rows = OwnRows(
            shape="graded" if "score" in (file.columns or {}) else "triplets" if "negative" in (file.columns or {}) else "pairs",
            columns=("question", "answer"),
            dev=0.1,
            test=0.1,
            seed=0,
            most=1000,
            near=0.8,
            num_linking=2,
            sides="0" * 16,
        )
        return OwnPin(name=file.file, revision="sha256:0000000000000000", rows=rows, num_rows=self.num_rows, num_apart=self.num_rows)

    def tagger(self, name: str, *, where: str) -> str:
        return "sha256:3333333333333333"

    def encoder(self, checkpoint: str, *, revision: str | None, where: str) -> Pin:
        return Pin(name=checkpoint, revision=revision or "sha256:1111111111111111")

    def declared_pooling(self, checkpoint: str, *, revision: str | None) -> str | None:
        return None

    def wordnet(self, *, where: str) -> str:
        return "sha256:2222222222222222"


def small_values(**changes: Json) -> dict[str, Json]:
    """The values of a recipe with a base row, an entropy method and a rcl method; `changes` replace top-level fields."""
    values: dict[str, Json] = {
        "name": "small",
        "corpus": {"source": "nli/triplets"},
        "training": {"batch_size": 64},
        "selection": {"task": "stsb-dev"},
        "evaluation": {"tasks": ["stsb"]},
        "methods": {
            "base": {},
            "fine_tuned": {"objective": {"name": "info_nce", "temperature": 1.0}},
            "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "select": False, "reported": False},
            "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02]},
        },
    }
    return copy.deepcopy(values) | changes


def with_method(**methods: Json) -> dict[str, Json]:
    """The values of the small recipe with methods added or replaced."""
    values = small_values()
    known = values["methods"]
    assert isinstance(known, dict)
    known.update(methods)
    return values


def small_recipe(**changes: Json) -> Recipe:
    return recipe_from_values(small_values(**changes), where="small.yaml")


def plan_of(recipe: Recipe, *, num_rows: int = 10_000) -> Plan:
    return unroll(recipe, FixedResolver(num_rows))


def shipped_plan(path: Path, *overrides: str) -> Plan:
    return plan_of(load_recipe(path, overrides), num_rows=300_000)
