"""A sweep in one process, some of whose trials fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import sentdist
from sentdist.cli.application import app
from sentdist.errors import TrainingDiverged
from sentdist.execution.build_recipe import build_locally
from sentdist.plan.stage import Json
from sentdist.store.local_storage import LocalStorage
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def diverging(encoder: Path) -> dict[str, Json]:
    """The first cell of the entropy encoders' rate diverges, and with it the method that needs them."""
    values = tiny_values(encoder, sweep={"methods.entropy.training.learning_rate": [1e30, 1e-3]})
    methods = values["methods"]
    assert isinstance(methods, dict)
    return values | {"methods": {name: methods[name] for name in ("fine_tuned", "entropy", "rcl")}}


def test_a_trial_that_fails_stops_only_what_needs_it(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_data(tmp_path / "data")
    plan, context = tiny_plan(diverging(tiny_encoder_dir), data=data, store=tmp_path / "store")
    lines: list[str] = []
    summary = build_locally(plan, context, print_line=lines.append)

    assert [(failure.name, type(failure.error)) for failure in summary.failures] == [
        ("rcl (learning_rate=1e+30) · seed 0", TrainingDiverged)
    ]
    assert all(context.store.has(trial.scores) for trial in plan.trials if trial.key != summary.failures[0].key)
    assert sum("FAILED: TrainingDiverged" in line for line in lines) == 2, "of two entropy encoders, at once"
    (reported,) = [line for line in lines if line.startswith("FAILED")]
    assert reported.startswith("FAILED  rcl (learning_rate=1e+30) · seed 0: TrainingDiverged: step")


def test_a_sweep_with_a_failed_trial_ends_with_its_table_and_exit_code_1(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(diverging(tiny_encoder_dir)))
    places = ["--data", str(write_data(tmp_path / "data")), "--store", str(tmp_path / "store")]
    answer = CliRunner().invoke(app, ["sweep", str(recipe), "--local", *places])
    assert answer.exit_code == 1, answer.output
    assert "FAILED  rcl (learning_rate=1e+30)" in answer.output
    assert "Best on dev: " in answer.output


def test_python_gets_the_error_once_the_other_trials_are_built(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(diverging(tiny_encoder_dir)))
    data, store, lines = write_data(tmp_path / "data"), tmp_path / "store", list[str]()
    with pytest.raises(TrainingDiverged, match="step"):
        sentdist.sweep(recipe, data=data, store=store, print_line=lines.append)
    assert "2 of 3 trials with scores" in "".join(lines)


def test_a_run_without_any_score_is_a_failure_also_beside_mlflow(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No report can be made of it: asking for one ended it with exit code 2, as if something was typed wrongly."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    brought: list[dict[str, str]] = []
    monkeypatch.setattr("sentdist.tracking.search_runs.rebuild", lambda *_, failures: brought.append(failures))
    values = tiny_values(tiny_encoder_dir, baseline=None)
    methods, training = values["methods"], values["training"]
    assert isinstance(methods, dict) and isinstance(training, dict)
    values |= {"methods": {"fine_tuned": methods["fine_tuned"]}, "training": training | {"learning_rate": 1e30}}
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(values))
    places = ["--data", str(write_data(tmp_path / "data")), "--store", str(tmp_path / "store")]
    answer = CliRunner().invoke(app, ["run", str(recipe), "--local", *places])
    assert answer.exit_code == 1 and "FAILED  fine_tuned" in answer.output, answer.output
    ((reason, *others),) = [list(failures.values()) for failures in brought]
    assert "diverged" in reason.lower() and len(others) == answer.output.count("FAILED  ") - 1, "MLflow gets the reason"


def test_a_complete_store_on_a_read_only_file_system_is_run_and_reported(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = tiny_values(tiny_encoder_dir, baseline=None)
    methods = values["methods"]
    assert isinstance(methods, dict)
    values |= {"methods": {"fine_tuned": methods["fine_tuned"]}}
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(values))
    store = ["--store", str(tmp_path / "store")]
    run = ["run", str(recipe), "--local", "--data", str(write_data(tmp_path / "data")), *store]
    assert CliRunner().invoke(app, run).exit_code == 0

    def refuse(self: LocalStorage, path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(LocalStorage, "make_folder", refuse)  # before whatever is written
    for command in (run, ["report", str(values["name"]), "--out", str(tmp_path / "report"), *store]):
        answer = CliRunner().invoke(app, command)
        assert answer.exit_code == 0, answer.output
    answer = CliRunner().invoke(app, [*run, "--set", "seeds=[1]"])
    assert answer.exit_code == 1 and "a read-only file system" in answer.output, answer.output
