"""The command that the guide prints for data of one's own, typed as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "rayjobs/recipes/README.md").read_text(encoding="utf-8")


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The words of the command, for a folder and a store of this test."""
    section = GUIDE.partition("\n## Your own data\n")[2].partition("\n## ")[0]
    block = re.search(r"```bash\n(.+?)\n```", section, re.DOTALL)
    assert block is not None
    words = shlex.split(block[1].replace("~/data", str(tmp_path / "data")))
    assert words[:2] == ["sentdist", "run"] and "--local" in words
    return [*(word for word in words[2:] if word != "--local"), "--store", str(tmp_path / "store")]


def _planned(command: list[str], tmp_path: Path, content: str, *, name: str = "pairs.csv") -> tuple[int, str]:
    (tmp_path / "data/my").mkdir(parents=True)
    (tmp_path / "data/my" / name).write_text(content)
    done = CliRunner().invoke(app, ["plan", *command], env={"COLUMNS": "160"})
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


def test_two_columns_without_a_split_are_trained_on_whole(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    rows = "".join(f"How do I reset device {number}?,Hold the button of device {number}.\n" for number in range(1000))
    code, said = _planned(command, tmp_path, f"question,answer\n{rows}")
    assert code == 0, said
    assert re.search(r"train +12 +10 +– +10 +19,200\b", said), said  # ten trainings on 15 batches of 64 rows of two columns: no row limit


def test_a_misspelt_column_is_what_is_told(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, said = _planned(command, tmp_path, "questions,answer\na,b\n")
    assert code != 0
    assert 'Did you mean "questions"?' in said, said
