"""The keys of the shipped recipes: an intended change edits recipe_keys.json in the same commit and says why.

python -m tests.golden.test_recipe_keys     writes the file anew
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.planning import RECIPES, shipped_plan

GOLDEN = Path(__file__).parent / "recipe_keys.json"
NAMES = sorted(path.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.yaml"))


def keys_of(name: str) -> dict[str, str]:
    """Trial -> key of its scores. A scores key changes if any stage behind it does."""
    return {trial.name: trial.key for trial in shipped_plan(RECIPES / name).trials}


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_a_shipped_recipe_are_the_golden_ones(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert keys_of(name) == golden.get(name), (
        f"{name} now names other stages: finished work would be built again. If that is meant, run"
        " `python -m tests.golden.test_recipe_keys` and say why in infra/CHANGELOG.md under Changed results."
    )


def test_the_golden_file_names_no_recipe_that_is_gone() -> None:
    assert sorted(json.loads(GOLDEN.read_text())) == NAMES


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: keys_of(name) for name in NAMES}, indent=1, ensure_ascii=False) + "\n")
