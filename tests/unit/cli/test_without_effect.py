"""An option that would have no effect is refused, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app


@pytest.mark.parametrize(
    ("command", "option", "needs"),
    [
        ("search ENCODER dog --corpus FILE --gpus-per-worker 1", "--gpus-per-worker", "--workers"),
        ("search ENCODER dog --corpus FILE --query-column text", "--query-column", "--queries"),
        ("similarity ENCODER dog cat --directions one", "--directions", "--relation"),
        ("similarity ENCODER dog cat --overwrite", "--overwrite", "--out"),
        ("compare ENCODER minilm-l6 --rope 1", "--rope", "--bayes"),
    ],
)
def test_what_it_needs_is_named(command: str, option: str, needs: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a dog runs\n")
    words = [{"ENCODER": str(tmp_path / "nowhere"), "FILE": str(file)}.get(word, word) for word in command.split()]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and f"{option}: found no {needs}; expected {needs} beside it" in " ".join(done.output.split()), done.output
