"""Evaluating over workers: the scores of one process, what is kept afterwards, what a worker raises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sentdist.errors import EncoderError, ResourceError
from sentdist.plan.sections import Runtime
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.tasks_data import stage_of, write_table

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
RUNTIME = Runtime(engine="torch", workers=2, cpus_per_worker=0.5)
WORDS = ["a man", "a woman", "the dog", "runs", "sings", "in the house", "near the street", "today"]
TASKS = ("sts=my/pairs", "pairs=my/paraphrases")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More different sentences than two parts hold, of one to six words, as graded pairs and as paraphrases or not."""
    root, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    sentences = list(dict.fromkeys(" ".join(draw.choice(WORDS, size=1 + number % 6)) for number in range(2200)))
    halves = list(zip(sentences[::2], sentences[1::2], strict=False))
    pairs = [{"sentence1": one, "sentence2": other, "score": float(number % 6)} for number, (one, other) in enumerate(halves)]
    paraphrases = [{"sentence1": one, "sentence2": other, "label": number % 2} for number, (one, other) in enumerate(halves[:300])]
    write_table(root, "my/pairs", pairs)
    write_table(root, "my/paraphrases", paraphrases)
    return root


def _context(store: Path, data: Path, folders: dict[str, str], *, runtime: Runtime) -> Context:
    return Context(store=ArtifactStore(str(store)), data_root=str(data), runtime=runtime, folders=folders, keeps_embeddings=True)


def _kept(store: Path) -> np.ndarray:
    (file,) = (store / "encoded").rglob("embeddings.npy")
    return np.load(file)


def test_workers_give_the_scores_of_one_process_and_keep_what_they_embed(
    cluster: Any, tiny_encoder_dir: Path, data: Path, tmp_path: Path
) -> None:
    from sentdist.execution.parallel.embed import embed_over_workers
    from sentdist.stages.scores.build import build_scores

    stage, resolver = stage_of(tiny_encoder_dir, TASKS, data)
    here = build_scores(stage, _context(tmp_path / "here", data, resolver.folders, runtime=Runtime(engine="torch")))
    there = build_scores(stage, _context(tmp_path / "there", data, resolver.folders, runtime=RUNTIME), make_embed=embed_over_workers)
    assert len(_kept(tmp_path / "there")) > 2 * 512, "three parts for two workers"
    # Batches are cut at other places, so sums are taken in another order: some float32 roundings (6e-8) of numbers around 1.
    np.testing.assert_allclose(_kept(tmp_path / "there"), _kept(tmp_path / "here"), atol=2e-6)
    assert _scores(there) == pytest.approx(_scores(here), abs=0.05), "near ties may change places"
    again, _ = stage_of(tiny_encoder_dir, TASKS[:1], data)
    build_scores(again, _context(tmp_path / "there", data, resolver.folders, runtime=RUNTIME))
    assert len(list((tmp_path / "there/encoded").rglob("embeddings.npy"))) == 1, "nothing was embedded again"


@pytest.mark.nightly
def test_the_command_line_evaluates_over_workers(cluster: Any, tiny_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    here, there = (
        _call(tiny_encoder_dir, "--tasks", TASKS[0], "--data", data, "--store", tmp_path / name, *workers)
        for name, workers in (("here", ()), ("there", ("--workers", "2")))
    )
    assert here.exit_code == there.exit_code == 0, there.output
    assert [line for line in there.output.splitlines() if "spearman" in line] == [
        line for line in here.output.splitlines() if "spearman" in line
    ]


def test_a_file_is_encoded_over_workers_as_in_one_process(cluster: Any, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentdist.cli import app

    lines = [" ".join(WORDS[: 1 + number % 8]) for number in range(1_100)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    for name, workers in (("here", ()), ("there", ("--workers", "2"))):
        command = ["encode", str(tiny_encoder_dir), str(tmp_path / "lines.txt"), "--out", str(tmp_path / f"{name}.npy"), *workers]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert "Encoding over 2 workers, on CPUs." in done.output
    here, there = (np.load(tmp_path / f"{name}.npy") for name in ("here", "there"))
    np.testing.assert_allclose(there, here, atol=2e-6)  # as above


@pytest.mark.nightly
def test_many_sentences_go_over_all_gpus_of_a_machine_without_a_cluster(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.own_workers", str(tmp_path), str(tiny_encoder_dir)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["said"] == ["Encoding on the CPU.", "Encoding over 2 workers, on CPUs."], "which stand in for GPUs"
    assert found["rows"] == 1_100 and found["apart"] < 2e-6  # as above


@pytest.mark.in_turns(2)
def test_what_a_worker_raises_arrives_as_it_was(cluster: Any, tiny_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    from sentdist.execution.parallel.embed import embed_over_workers

    stage, _ = stage_of(tiny_encoder_dir, TASKS[:1], data)
    moved = _context(tmp_path / "store", data, {stage.encoder.revision: str(tmp_path / "gone")}, runtime=RUNTIME)  # type: ignore[union-attr]
    with pytest.raises(EncoderError, match="gone"):
        embed_over_workers(stage, moved)(["a man sings"])


def test_more_workers_than_the_cluster_holds_are_refused(cluster: Any, tiny_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    answer = _call(tiny_encoder_dir, "--tasks", TASKS[0], "--data", data, "--store", tmp_path, "--workers", "9")
    assert answer.exit_code == 2 and "on 1 node" in answer.stderr
    from sentdist.execution.parallel.embed import embed_over_workers

    stage, resolver = stage_of(tiny_encoder_dir, TASKS[:1], data)
    with pytest.raises(ResourceError, match="Set runtime"):
        embed_over_workers(stage, _context(tmp_path, data, resolver.folders, runtime=Runtime(engine="torch", workers=9)))


def _call(encoder: Path, *arguments: str | Path) -> Result:
    from sentdist.cli import app

    return CliRunner().invoke(app, ["evaluate", str(encoder), *map(str, arguments)], env={"COLUMNS": "160"})


def _scores(artifact: Artifact) -> dict[str, object]:
    return {name: value for name, value in artifact.record.results.items() if isinstance(value, float)}
