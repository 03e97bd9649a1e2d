"""What the shell completes, and that it does not wait for anything heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def completed(words: str, folder: Path = ROOT) -> list[str]:
    """What bash would be offered for the last of some words."""
    parts = words.split(" ")
    environment = os.environ | {
        "_SENTDIST_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(parts) - 1),
        "PYTHONPATH": str(ROOT),
    }
    program = "import sys; from sentdist.cli import app; sys.argv[0] = 'sentdist'\ntry:\n    app(prog_name='sentdist')\nfinally:\n    heavy = [m for m in ('torch', 'ray', 'mlflow', 'transformers', 'pyarrow', 'numpy') if m in sys.modules]\n    assert not heavy, heavy"
    found = subprocess.run([sys.executable, "-c", program], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert "AssertionError" not in found.stderr, found.stderr
    return found.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sentdist plan rayjobs/recipes/ow", {"rayjobs/recipes/own.yaml"}),
        ("sentdist report --paper s", {"simcse", "sts_regression", "supmpn"}),
        ("sentdist run rayjobs/recipes/own.yaml --set methods.contrastive.training.bat", {"methods.contrastive.training.batch_size="}),
        ("sentdist evaluate minilm-l6 --tasks sts,stsb,scenes-f", {"sts,stsb,scenes-faq"}),
    ],
)
def test_words_are_completed(words: str, offered: set[str]) -> None:
    assert offered <= set(completed(words))


def test_sweeps_and_keys_are_those_of_the_store(tmp_path: Path) -> None:
    (tmp_path / ".sentdist/store/sweeps").mkdir(parents=True)
    (tmp_path / ".sentdist/store/sweeps/mine.json").write_text("{}")
    (tmp_path / ".sentdist/store/train/info_nce-minilm-l6-b32-s0-8cf8d2fc23261cce").mkdir(parents=True)
    (tmp_path / "named/sweeps").mkdir(parents=True)
    (tmp_path / "named/sweeps/theirs.json").write_text("{}")
    assert completed("sentdist report m", tmp_path) == ["mine"]
    assert completed("sentdist report --store named ", tmp_path) == ["theirs"]
    assert completed("sentdist push 8c", tmp_path) == ["8cf8d2fc23261cce"]
