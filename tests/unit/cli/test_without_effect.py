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
        ("evaluate ENCODER --gpus-per-worker 1", "--gpus-per-worker", "--workers"),
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


@pytest.mark.parametrize("encoder", ["FOLDER", "minilm-l6"])
def test_a_revision_of_what_has_only_one_is_refused(encoder: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    name = str(tiny_encoder_dir) if encoder == "FOLDER" else encoder
    done = CliRunner().invoke(app, ["evaluate", name, "--revision", "main", "--store", str(tmp_path / "store")])
    assert done.exit_code == 2 and "found revision 'main'; expected no revision for a folder" in " ".join(done.output.split()), done.output
