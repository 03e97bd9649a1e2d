"""The keys of the shipped recipes: an intended change edits recipe_keys.json in the same commit and says why.

python -m tests.golden.test_recipe_keys     writes the file anew

A recipe that is not in the file has a line `#   keys        DIGEST` in its header instead, the digest of its trials and their keys:
so a new one is a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from tests.support.planning import RECIPES, shipped_plan

GOLDEN = Path(__file__).parent / "recipe_keys.json"
NAMES = sorted(path.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.yaml"))
IN_HEADER = re.compile(r"^#   keys +([0-9a-f]{16})$", re.MULTILINE)


def keys_of(name: str) -> dict[str, str]:
    """Trial -> key of its scores. A scores key changes if any stage behind it does."""
    return {trial.name: trial.key for trial in shipped_plan(RECIPES / name).trials}


def header_keys(name: str) -> str | None:
    """The digest in a recipe's header; None where it has none."""
    found = IN_HEADER.search((RECIPES / name).read_text())
    return None if found is None else found.group(1)


def digest(keys: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_a_shipped_recipe_are_the_golden_ones(name: str) -> None:
    golden, found = json.loads(GOLDEN.read_text()), keys_of(name)
    in_header = header_keys(name)
    assert name in golden or in_header is not None, (
        f"{name} has no digest. If it is new, write in its header: `#   keys        {digest(found)}`"
    )
    assert name not in golden or in_header is None, f"{name}: its keys stand in its header and in {GOLDEN.name}; expected one place"
    assert (found == golden[name]) if name in golden else (digest(found) == in_header), (
        f"{name} now names other stages ({digest(found)}): finished work would be built again. If that is meant, run"
        " `python -m tests.golden.test_recipe_keys`, or edit its header, and say why in infra/CHANGELOG.md under Changed results."
    )


def test_the_golden_file_names_no_recipe_that_is_gone() -> None:
    assert set(json.loads(GOLDEN.read_text())) <= set(NAMES)


if __name__ == "__main__":
    of_file = {name: keys_of(name) for name in NAMES if header_keys(name) is None}
    GOLDEN.write_text(json.dumps(of_file, indent=1, ensure_ascii=False) + "\n")
