"""A sweep in one process, some of whose trials fail, and what a disk has room for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import sentdist
from sentdist.cli.application import app
from sentdist.errors import StoreError, TrainingDiverged
from sentdist.machine import end_on_sigterm
from sentdist.run.local import build_locally
from sentdist.store.store import ArtifactStore
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def test_a_run_without_any_score_is_a_failure_also_beside_mlflow(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No report can be made of it: asking for one ended it with exit code 2, as if something was typed wrongly."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    brought: list[dict[str, str]] = []
    monkeypatch.setattr("sentdist.tracking.tracker.rebuild", lambda *_, failures: brought.append(failures))
    values = tiny_values(tiny_encoder_dir, baseline=None)
    methods, training = values["methods"], values["training"]
    assert isinstance(methods, dict) and isinstance(training, dict)
    values |= {"methods": {"fine_tuned": methods["fine_tuned"]}, "training": training | {"learning_rate": 1e30}}
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(values))
    places = ["--data", str(write_data(tmp_path / "data")), "--store", str(tmp_path / "store")]
    answer = CliRunner().invoke(app, ["sweep", str(recipe), "--no-grid", "--local", *places])
    assert answer.exit_code == 1 and "FAILED  fine_tuned" in answer.output, answer.output
    ((reason, *others),) = [list(failures.values()) for failures in brought]
    assert "diverged" in reason.lower() and len(others) == answer.output.count("FAILED  ") - 1, "MLflow gets the reason"


def test_being_stopped_ends_the_driver_in_order() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        end_on_sigterm()
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_disk_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="1 EB"):
        ArtifactStore(tmp_path).check_writable(needed_bytes=10**18)
    assert (ArtifactStore(tmp_path / "not" / "yet").free_bytes() or 0) > 0


def test_a_trial_that_fails_stops_only_what_needs_it_and_python_gets_its_error(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """The first cell of the entropy encoders' rate diverges, and with it the method that needs them."""
    values = tiny_values(tiny_encoder_dir, sweep={"methods.entropy.training.learning_rate": [1e30, 1e-3]})
    methods = values["methods"]
    assert isinstance(methods, dict)
    values |= {"methods": {name: methods[name] for name in ("fine_tuned", "entropy", "rcl")}}
    recipe, data, store = tmp_path / "tiny.yaml", write_data(tmp_path / "data"), tmp_path / "store"
    recipe.write_text(yaml.safe_dump(values))
    lines: list[str] = []
    with pytest.raises(TrainingDiverged, match="step"):
        sentdist.sweep(recipe, data=data, store=store, print_line=lines.append)
    assert sum("FAILED: TrainingDiverged" in line for line in lines) == 2, "of two entropy encoders, at once"
    (reported,) = [line for line in lines if line.startswith("FAILED")]
    assert reported.startswith("FAILED  rcl (learning_rate=1e+30) · seed 0: TrainingDiverged: step")
    plan, context = tiny_plan(values, data=data, store=store)
    summary = build_locally(plan, context, print_line=lines.append)
    ((key, error),) = [(failure.key, type(failure.error)) for failure in summary.failures]
    assert error is TrainingDiverged and all(context.store.has(trial.scores) == (trial.key != key) for trial in plan.trials)
    answer = CliRunner().invoke(app, ["sweep", str(recipe), "--local", "--data", str(data), "--store", str(store)])
    assert answer.exit_code == 1 and "Best on dev: " in answer.output, answer.output
