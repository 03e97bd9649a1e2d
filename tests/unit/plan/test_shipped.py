"""A recipe that is not where somebody looked for it is named by what its name is like."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from tests.support.planning import RECIPES


def test_the_very_name_comes_before_names_beside_that_are_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rcl_grids.yaml").write_text("name: mine\n")
    assert f'"{RECIPES / "sweeps" / "rcl_grid.yaml"}"' in CliRunner().invoke(app, ["plan", "rcl_grid.yml"]).output
    assert '"rcl_grids.yaml"' in CliRunner().invoke(app, ["plan", "rcl_grdis"]).output
    assert "`sentdist recipes` lists" in CliRunner().invoke(app, ["plan", "zzzzzz"]).output
