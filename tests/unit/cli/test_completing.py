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
        ("sentdist plan rayjobs/recipes/own.yaml --set corpus.he", {"corpus.header=", "corpus.held_out."}),
        ("sentdist run rayjobs/recipes/own.yaml --set methods.con", {"methods.contrastive."}),
        ("sentdist report --paper s", {"simcse", "sts_regression", "supmpn"}),
        ("sentdist run rayjobs/recipes/own.yaml --set methods.contrastive.obj", {"methods.contrastive.objective."}),
        ("sentdist run rayjobs/recipes/own.yaml --set methods.contrastive.training.bat", {"methods.contrastive.training.batch_size="}),
        ("sentdist evaluate minilm-l6 --tasks sts,scenes-f", {"sts,scenes-faq"}),
        ("sentdist evaluate minilm-l6 --tasks sts,stsb,scenes-f", {"sts,stsb,scenes-faq"}),
    ],
)
def test_words_are_completed(words: str, offered: set[str]) -> None:
    assert offered <= set(completed(words))


def test_sweeps_and_keys_are_those_of_the_store(tmp_path: Path) -> None:
    (tmp_path / ".sentdist/store/sweeps").mkdir(parents=True)
    (tmp_path / ".sentdist/store/sweeps/mine.json").write_text("{}")
    (tmp_path / ".sentdist/store/train/info_nce-minilm-l6-b32-s0-8cf8d2fc23261cce").mkdir(parents=True)
    assert completed("sentdist report m", tmp_path) == ["mine"]
    assert completed("sentdist push 8c", tmp_path) == ["8cf8d2fc23261cce"]


def test_recipes_of_both_endings_and_folders_are_offered_as_the_path_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("one.yaml", "two.yml", "three.txt", ".hidden.yaml"):
        (tmp_path / "mine" / name).write_text("name: x\n")
    assert completed("sentdist plan m", tmp_path) == ["mine/"]
    assert completed("sentdist plan mine/", tmp_path) == ["mine/one.yaml", "mine/two.yml"]


def test_a_store_that_is_named_goes_before_that_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for store, sweep in (("named", "mine"), ("shells", "theirs")):
        (tmp_path / store / "sweeps").mkdir(parents=True)
        (tmp_path / store / "sweeps" / f"{sweep}.json").write_text("{}")
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "shells"))
    assert completed("sentdist report ", tmp_path) == ["theirs"]
    assert completed("sentdist report --store named ", tmp_path) == ["mine"]


def test_methods_are_those_of_the_recipe_on_the_line_unless_it_is_too_large_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "r.yml").write_text("name: x\nmethods:\n  mine:\n    bank: entropy\nruntime:\n  workers: 1\n")
    assert completed("sentdist run r.yml --set methods.", tmp_path) == ["methods.mine."]
    with (tmp_path / "r.yml").open("a") as file:
        file.write("#" * (1 << 20))
    assert completed("sentdist run r.yml --set methods.", tmp_path) == []
