"""An option that would have no effect is refused, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import sentdist
from sentdist.cli import app
from sentdist.cli import recipes as building
from sentdist.errors import RecipeError
from sentdist.plan.unroll import Plan
from tests.support.planning import RECIPES


@pytest.mark.parametrize(
    ("command", "option", "needs"),
    [
        ("search ENCODER dog --corpus FILE --gpus-per-worker 1", "--gpus-per-worker", "--workers"),
        ("search ENCODER dog --corpus FILE --query-column text", "--query-column", "--queries"),
        ("evaluate ENCODER --gpus-per-worker 1", "--gpus-per-worker", "--workers"),
        ("search ENCODER dog --corpus FILE --gpus-per-worker 0", "--gpus-per-worker", "--workers"),
        ("search ENCODER dog --corpus FILE --gpu-type A100", "--gpu-type", "--workers"),
        ("evaluate ENCODER --gpu-type A100", "--gpu-type", "--workers"),
        ("similarity ENCODER dog cat --directions one", "--directions", "--relation"),
        ("similarity ENCODER dog cat --overwrite", "--overwrite", "--out"),
        ("compare ENCODER minilm-l6 --rope 1", "--rope", "--bayes"),
        ("compare ENCODER minilm-l6 --rope 0", "--rope", "--bayes"),
    ],
)
def test_what_it_needs_is_named(command: str, option: str, needs: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a dog runs\n")
    words = [{"ENCODER": str(tmp_path / "nowhere"), "FILE": str(file)}.get(word, word) for word in command.split()]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and f"{option}: found no {needs}; expected {needs} beside it" in " ".join(done.output.split()), done.output


@pytest.mark.parametrize("command", ["search ENCODER dog --corpus FILE", "evaluate ENCODER"])
def test_a_kind_of_gpu_for_workers_without_one_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a dog runs\n")
    words = [{"ENCODER": "minilm-l6", "FILE": str(tmp_path / "texts.txt")}.get(word, word) for word in command.split()]
    done = CliRunner().invoke(app, [*words, "--workers", "2", "--gpus-per-worker", "0", "--gpu-type", "A100", "--store", str(tmp_path)])
    assert done.exit_code == 2 and "--gpu-type: found A100 with --gpus-per-worker 0" in " ".join(done.output.split()), done.output


@pytest.mark.parametrize("command", ["plan", "leaks"])
@pytest.mark.parametrize(
    ("recipe", "override", "reported"),
    [
        ("demo.yaml", "methods.rcl.phis=[0.03]", "found a field that sweep.methods.rcl.phis varies: [[0.01], [0.01, 0.02]]"),
        ("demo.yaml", "methods.rcl.phis.0=0.03", "Say --set sweep.methods.rcl.phis=…, or leave the grid out by `sentdist run`."),
        ("search.yaml", "training.learning_rate=1e-4", "found a field that search.space.training.learning_rate varies: {'log': ["),
    ],
)
def test_a_value_that_the_grid_or_search_replaces_is_refused(
    command: str, recipe: str, override: str, reported: str, tmp_path: Path
) -> None:
    """The sweep ran its own values, under the name that was asked for another one."""
    done = CliRunner().invoke(app, [command, str(RECIPES / recipe), "--set", override, "--store", str(tmp_path)])
    assert done.exit_code == 2 and f"--set {override}: " in done.output and reported in " ".join(done.output.split()), done.output


def test_without_its_grid_a_recipe_takes_such_a_value(tmp_path: Path) -> None:
    planned, _ = building._planned(RECIPES / "demo.yaml", ["methods.rcl.phis=[0.03]", "sweep={}"], str(tmp_path), None)
    assert isinstance(planned, Plan) and planned.recipe.methods["rcl"].phis == (0.03,)
    with pytest.raises(RecipeError, match="varies"):
        sentdist.plan(RECIPES / "demo.yaml", overrides=["methods.rcl.phis=[0.03]"], store=tmp_path)


@pytest.mark.parametrize("encoder", ["FOLDER", "minilm-l6"])
def test_a_revision_of_what_has_only_one_is_refused(encoder: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    name = str(tiny_encoder_dir) if encoder == "FOLDER" else encoder
    done = CliRunner().invoke(app, ["evaluate", name, "--revision", "main", "--store", str(tmp_path / "store")])
    assert done.exit_code == 2 and "found revision 'main'; expected no revision for a folder" in " ".join(done.output.split()), done.output
