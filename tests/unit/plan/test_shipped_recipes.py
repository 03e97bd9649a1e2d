"""The recipes that ship: what each promises, that every option is turned by one, and what the paper's grid comes to."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml

from sentdist.frozen import Frozen
from sentdist.objectives.entropy import Entropy
from sentdist.plan.corpora.graded import GradedSection
from sentdist.plan.corpora.groups import AugmentationSection, GroupsSection
from sentdist.plan.corpora.relations import LinksSection, RelationsSection
from sentdist.plan.corpora.rows import RowsSection
from sentdist.plan.objectives import OBJECTIVES, Term
from sentdist.plan.recipe import load_recipe
from sentdist.plan.sections import EncoderSection, Method, TargetsSection
from sentdist.plan.specs import Probes, Regularizers, RelationalScoring, Stopping, Training
from sentdist.plan.stages import Train
from tests.support.planning import RECIPES, shipped_plan

SHIPPED = sorted(RECIPES.rglob("*.yaml"))
NAMES = [path.relative_to(RECIPES).as_posix() for path in SHIPPED]


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_a_recipe_opens_with_what_it_is_and_the_command(path: Path) -> None:
    opening = path.read_text().partition("\nname:")[0]
    assert all(line.startswith("#") for line in opening.splitlines())
    assert re.search(r"^#   (reproduces|shows|asks) ", opening, re.MULTILINE)
    for word in ("takes", "score", "command"):
        assert re.search(rf"^#   {word} ", opening, re.MULTILINE), word
    assert f"rayjobs/recipes/{path.relative_to(RECIPES).as_posix()}" in opening


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_a_recipe_unrolls(path: Path) -> None:
    plan = shipped_plan(path)
    assert plan.trials
    names = [trial.name for trial in plan.trials]
    assert len(names) == len(set(names)), "two trials cannot be distinguished"


def test_shipped_recipes_have_different_names() -> None:
    """Those of files, by which they are taken, and those of their sweeps, which would write into one experiment."""
    for names in ([path.stem for path in SHIPPED], [load_recipe(path).name for path in SHIPPED]):
        assert len(names) == len(set(names))


def test_the_grid_mentions_thirty_entropy_encoders_a_seed_and_builds_ten() -> None:
    plan = shipped_plan(RECIPES / "sweeps/rcl_grid.yaml", "seeds=[0]")
    entropy = [stage for stage in plan.stages if isinstance(stage, Train) and isinstance(stage.objective, Entropy)]
    assert (len(entropy), sum(plan.mentions[stage.key] for stage in entropy)) == (10, 30)
    assert Counter(trial.method for trial in plan.trials) == {"base": 1, "fine_tuned": 2, "rcl": 10}


def test_the_regulators_curve_is_part_of_the_grid() -> None:
    grid, curve = (shipped_plan(RECIPES / "sweeps" / name) for name in ("rcl_grid.yaml", "rcl_regulators.yaml"))
    assert {stage.key for stage in curve.stages} < {stage.key for stage in grid.stages}


def test_the_faq_protocol_ends_from_the_pretrained_encoder() -> None:
    plan = shipped_plan(RECIPES / "rcl_faq.yaml")
    finals = [stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "rcl"]
    assert len(finals) == 5
    assert all(final.start is None and len(final.banks) == 4 for final in finals)
    assert all(bank.encoder.start is not None for final in finals for bank in final.banks)


@cache
def _written() -> set[tuple[str, str]]:
    """(section, field) of everything that a shipped recipe writes out, sweeps and methods included."""
    found: set[tuple[str, str]] = set()

    def walk(section: str, value: object) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                found.add((section, name))
                walk(name, inner)
        elif isinstance(value, list):
            for inner in value:
                walk(section, inner)

    for path in SHIPPED:
        values = yaml.safe_load(path.read_text())
        walk("", {name: inner for name, inner in values.items() if name not in ("methods", "sweep", "corpora")})
        for corpus in values.get("corpora", {}).values():
            walk("corpus", corpus)
        for method in values["methods"].values():
            walk("method", method)
        for dotted in values.get("sweep", {}):
            parts = dotted.split(".")
            found.add((parts[-2], parts[-1]))
    return found


KNOBS: list[tuple[str, type[Frozen], set[str]]] = [
    ("training", Training, set()),
    *(("objective", objective, set()) for objective in OBJECTIVES.values()),
    ("terms", Term, set()),
    ("targets", TargetsSection, set()),
    ("probes", Probes, set()),
    ("regularizers", Regularizers, set()),
    ("stopping", Stopping, set()),
    ("corpus", RowsSection, {"revision", "kind"}),  # of hub data sets: the user's own
    ("corpus", GradedSection, set()),
    ("corpus", RelationsSection, set()),
    ("corpus", GroupsSection, {"augmentation"}),  # turned by corpora beside it
    ("augmentation", AugmentationSection, {"revision"}),
    ("relations", RelationalScoring, set()),
    ("links", LinksSection, set()),
    ("encoder", EncoderSection, {"revision"}),
    ("method", Method, set()),
]


@pytest.mark.parametrize(("section", "model", "not_turned"), KNOBS, ids=[model.__name__ for _, model, _ in KNOBS])
def test_a_knob_exists_only_with_a_recipe_that_turns_it(section: str, model: type[Frozen], not_turned: set[str]) -> None:
    turned = {name for given, name in _written() if given == section}
    assert set(model.model_fields) - not_turned <= turned
