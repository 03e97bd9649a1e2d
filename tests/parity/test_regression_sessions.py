"""Regression as stages: two stages end to end, interrupted and resumed, and shared by two ranks, head and row labels included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from sentdist.data.corpus import OpenedCorpus
from sentdist.errors import DataError, EncoderError
from sentdist.learning.engine import TorchEngine
from sentdist.learning.objective import HEADS_FILE
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.context import Context, folder_of
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from sentdist.store.store import RECORD, Artifact
from sentdist.store.sweep import save_sweep, sweep_record
from tests.parity.processes import run_in_processes
from tests.support.building import run_local
from tests.support.graded_data import regression_values, write_graded
from tests.support.tiny_data import tiny_plan

pytestmark = pytest.mark.parity

# float32 sums in another order; seven steps of AdamW at 1e-3 keep the difference near the last digits
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


def train_of(plan: Plan, method: str) -> Train:
    (found,) = (trial.scores.encoder for trial in plan.trials if trial.method == method)
    assert isinstance(found, Train)
    return found


def session_of(stage: Train, context: Context) -> TrainSession:
    return TrainSession(stage, context, make_engine=TorchEngine, bank=None)


def with_inputs(values: dict[str, Json], method: str, data: Path, store: Path) -> tuple[Train, Context]:
    """The training of a method, all that it needs built."""
    plan, context = tiny_plan(values, data=data, store=store)
    stage = train_of(plan, method)
    for needed in plan.stages:
        if needed.key in {one.key for start in (stage, stage.start) if start is not None for one in start.inputs}:
            build_here(needed, context)
    return stage, context


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> tuple[Plan, Context, dict[str, Artifact]]:
    """Every method of the tiny regression recipe, built in this process; artifacts by key."""
    folder = tmp_path_factory.mktemp("regression")
    values = regression_values(tiny_encoder_dir)
    plan, context = tiny_plan(values, data=write_graded(folder / "data"), store=folder / "store")
    return plan, context, {artifact.record.key: artifact for artifact in run_local(plan, context)}


def test_every_loss_and_stage_gives_scores(built: tuple[Plan, Context, dict[str, Artifact]]) -> None:
    plan, _, artifacts = built
    scores = {trial.method: artifacts[trial.key].record.results["stsb"] for trial in plan.trials}
    assert len(scores) == 7 and all(isinstance(score, float) for score in scores.values())
    assert len(set(scores.values())) > 4  # methods differ; the two second stages may meet
    losses = {
        trial.method: artifacts[trial.scores.encoder.key].record.results["final_loss"] for trial in plan.trials if trial.method != "base"
    }
    assert all(isinstance(loss, float) and np.isfinite(loss) for loss in losses.values())


def test_the_filter_takes_the_test_pairs_away_and_says_so(built: tuple[Plan, Context, dict[str, Artifact]]) -> None:
    plan, context, artifacts = built
    filtered, unfiltered = (train_of(plan, method).corpus for method in ("filtered", "unfiltered"))
    results = artifacts[filtered.key].record.results
    assert results["removed"] == {"stsb": 16} and results["num_rows"] == 112
    parts = results["parts"]
    assert isinstance(parts, dict)
    assert {name: part["in_test_sets"] for name, part in parts.items() if isinstance(part, dict)} == {
        "sts/scores:train": 16,
        "sts/sick:train": 0,
    }
    corpora = [OpenedCorpus.open(folder_of(corpus, context)) for corpus in (filtered, unfiltered)]
    assert [corpus.num_rows for corpus in corpora] == [112, 128]
    assert all(corpus.labels is not None and set(corpus.labels.tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0, 5.0} for corpus in corpora)


def test_the_saved_encoder_has_its_head_beside_it(built: tuple[Plan, Context, dict[str, Artifact]]) -> None:
    plan, context, _ = built
    shapes = {
        method: {name: tuple(tensor.shape) for name, tensor in load_file(folder_of(train_of(plan, method), context) / HEADS_FILE).items()}
        for method in ("stage_1", "cross_entropy", "filtered")
    }
    assert shapes["stage_1"] == shapes["filtered"] == {"head.linear.weight": (1, 96), "head.linear.bias": (1,)}
    assert shapes["cross_entropy"] == {"head.linear.weight": (3, 96), "head.linear.bias": (3,)}


def test_stage_2_starts_from_the_first_encoder_with_a_new_head_or_the_old_one(built: tuple[Plan, Context, dict[str, Artifact]]) -> None:
    plan, context, _ = built
    first = folder_of(train_of(plan, "stage_1"), context)
    head, model = load_file(first / HEADS_FILE), load_file(first / "model.safetensors")
    for method, keeps in (("filtered", False), ("longer", True)):
        session = session_of(train_of(plan, method), context)
        weights = session.engine.weights()
        name = next(name for name in model if name.endswith("embeddings.word_embeddings.weight"))
        (found,) = (tensor for other, tensor in weights.items() if other.endswith(name))
        assert torch.equal(found, model[name])
        assert torch.equal(weights["heads.head.linear.weight"], head["head.linear.weight"]) is keeps


def test_a_head_that_is_gone_is_named(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """An artifact written by hand, or by an older version."""
    data = write_graded(tmp_path / "data")
    stage, context = with_inputs(regression_values(tiny_encoder_dir), "longer", data, tmp_path / "store")
    assert stage.start is not None
    folder = folder_of(stage.start, context)
    (folder / HEADS_FILE).unlink()
    record = json.loads((folder / RECORD).read_text())
    del record["files"][HEADS_FILE], record["digests"], record["sha256"]
    (folder / RECORD).write_text(json.dumps(record))
    with pytest.raises(EncoderError, match="keep_head: found a checkpoint without heads"):
        session_of(stage, context)


def test_killed_and_resumed_ends_like_uninterrupted(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Dropout on: the encoder, the head, the order of labels and the random states come back bit for bit."""
    methods = regression_values(tiny_encoder_dir)["methods"]
    assert isinstance(methods, dict) and isinstance(methods["stage_1"], dict)
    values = regression_values(tiny_encoder_dir, methods={"stage_1": {"objective": methods["stage_1"]["objective"]}}, baseline=None)
    stage, context = with_inputs(values, "stage_1", write_graded(tmp_path / "data"), tmp_path / "store")
    whole = session_of(stage, context)
    num_events = len(list(whole.events()))
    first = session_of(stage, context)
    for number, _ in enumerate(first.events(), start=1):
        if number == 4:
            first.save(tmp_path / "checkpoint")
            break
    second = session_of(stage, context)
    second.load(tmp_path / "checkpoint")
    assert len(list(second.events())) == num_events - 4
    assert second.progress == whole.progress
    ours, theirs = whole.engine.weights(), second.engine.weights()
    assert any(name.startswith("heads.") for name in ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def train_on_rank(rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path) -> dict[str, Any]:
    plan, context = tiny_plan(values, data=data, store=store)
    session = session_of(train_of(plan, "filtered"), context)
    losses = [event.loss for event in session.events() if hasattr(event, "loss")]
    return {"losses": losses, "weights": session.engine.weights()}


def test_two_ranks_end_like_one(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Dropout off: each rank reads the labels of its own rows, and layer-wise rates and head move alike."""
    data, values = write_graded(tmp_path / "data"), regression_values(tiny_encoder_dir)
    stage, context = with_inputs(values, "filtered", data, tmp_path / "store")
    alone = session_of(stage, context)
    losses = [event.loss for event in alone.events() if hasattr(event, "loss")]
    first, _ = run_in_processes(train_on_rank, 2, values, data, tmp_path / "store")
    assert first["losses"] == pytest.approx(losses, rel=1e-5)
    weights = alone.engine.weights()
    for name, found in first["weights"].items():
        if not name.endswith("attention.self.key.bias"):  # softmax ignores it: its true gradient is 0, AdamW scales the rounding error up
            torch.testing.assert_close(found, weights[name], msg=lambda text, name=name: f"{name}: {text}", **TOLERANCE)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("label", "perhaps", 'nli/small:train: found label "perhaps" in row 6; expected one of contradiction'),
        ("premise", "", "an empty sentence in row 6"),
    ],
)
def test_a_broken_row_is_named_when_the_corpus_is_built(
    tmp_path: Path, tiny_encoder_dir: Path, column: str, value: str, message: str
) -> None:
    data = write_graded(tmp_path / "data")
    rows = pq.read_table(data / "nli/small.parquet").to_pylist()
    rows[5][column] = value
    pq.write_table(type(pq.read_table(data / "nli/small.parquet")).from_pylist(rows), data / "nli/small.parquet")
    plan, context = tiny_plan(regression_values(tiny_encoder_dir), data=data, store=tmp_path / "store")
    with pytest.raises(DataError, match=message):
        build_here(train_of(plan, "stage_1").corpus, context)


def test_a_threshold_sweep_builds_its_first_stage_once_and_is_reported(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    whole = regression_values(tiny_encoder_dir)["methods"]
    assert isinstance(whole, dict)
    values = regression_values(
        tiny_encoder_dir,
        methods={name: whole[name] for name in ("base", "l1", "stage_1", "filtered")},
        paper="sts_regression",
        headline="filtered",
        sweep={"methods.filtered.objective.slope": [2.0, 4.0], "methods.filtered.objective.threshold": [0.2, 0.3]},
    )
    plan, context = tiny_plan(values, data=write_graded(tmp_path / "data"), store=tmp_path / "store")
    save_sweep(context.store, sweep_record(plan))
    built: list[str] = []
    run_local(plan, context, listen=lambda stage, session, event: built.append(stage.key) if isinstance(event, Artifact) else None)
    trainings = [stage for stage in plan.stages if isinstance(stage, Train)]
    assert len(trainings) == 2 + 4 and len(built) == len(set(built))
    assert plan.mentions[train_of(plan, "stage_1").key] == 5
    report = report_sweep(context.store, "tiny-regression")
    rows = str(report.files["thresholds-filtered.csv"]).splitlines()
    assert len(rows) == 1 + 4 and rows[1].startswith("smooth_k2,one_sided,2,0.2,")
    assert "points" in report.markdown.splitlines()[2] and report.markdown.splitlines()[2].find("filtered") >= 0
    assert "losses.csv" in report.files  # L1 and five Smooth K2s
    assert "arXiv 2406.05326" in report.markdown
    assert "Beside the paper's Table 2" in report.markdown and "| BERT L1 Loss | paper |" in report.markdown
