"""A training as a stage: interrupted and resumed, or shared by two ranks, it ends with the same parameters."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import sentdist.stages.dev_scorer
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.engine import TorchEngine
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from sentdist.stages.train_here import file_bank
from tests.parity.processes import run_in_processes
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

pytestmark = pytest.mark.parity

# float32 sums in another order; twelve steps of AdamW at 1e-3 keep the difference near the last digits
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


def _final_rcl(plan: Plan) -> Train:
    return next(stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "rcl")


def _with_inputs(values: dict[str, Json], data: Path, store: Path) -> tuple[Train, Context]:
    plan, context = tiny_plan(values, data=data, store=store)
    final = _final_rcl(plan)
    for stage in plan.stages:
        if stage.key in {
            needed.key for bank in final.inputs for needed in (bank, *bank.inputs, *[i for n in bank.inputs for i in n.inputs])
        }:
            build_here(stage, context)
    return final, context


def _session(stage: Train, context: Context) -> TrainSession:
    return TrainSession(stage, context, make_engine=TorchEngine, bank=file_bank(stage, context))


def _states_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], **tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name in one:
        if name.endswith("attention.self.key.bias") and tolerance["rtol"] > 0:
            continue  # softmax ignores it: its true gradient is 0, and AdamW scales the rounding error up to whole steps
        torch.testing.assert_close(one[name], other[name], msg=lambda text, name=name: f"{name}: {text}", **tolerance)


@pytest.mark.parametrize("killed_after", [4, pytest.param(7, marks=pytest.mark.nightly)])
def test_killed_and_resumed_ends_like_uninterrupted(tmp_path: Path, tiny_encoder_dir: Path, killed_after: int) -> None:
    """Dropout on, two epochs, dev selection, the kill in mid-epoch, behind a dev score, at an epoch's first step: bit for bit the same."""
    values = tiny_values(tiny_encoder_dir, training={"batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "max_length": 20})
    methods = values["methods"]
    assert isinstance(methods, dict)
    methods["rcl"] = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02], "stopping": {"patience": 50}}
    stage, context = _with_inputs(values, write_data(tmp_path / "data"), tmp_path / "store")
    whole = _session(stage, context)
    num_events = len(list(whole.events()))

    first = _session(stage, context)
    for number, _ in enumerate(first.events(), start=1):
        if number == killed_after:
            first.save(tmp_path / "checkpoint")
            break
    second = _session(stage, context)
    second.load(tmp_path / "checkpoint")
    rest = len(list(second.events()))

    assert num_events == killed_after + rest
    assert second.progress == whole.progress
    _states_equal(whole.engine.weights(), second.engine.weights(), rtol=0, atol=0)
    assert whole.finish(tmp_path / "one")["best_dev_score"] == second.finish(tmp_path / "two")["best_dev_score"]
    assert [point["step"] for point in whole.history] == [point["step"] for point in second.history]


def _plain(encoder: Path, data: Path, store: Path) -> tuple[Train, Context]:
    """One method without a bank, its corpus built."""
    values = tiny_values(encoder, methods={"m": {"objective": {"name": "info_nce"}}}, baseline=None)
    plan, context = tiny_plan(values, data=data, store=store)
    stage = plan.trials[0].scores.encoder
    assert isinstance(stage, Train)
    build_here(stage.corpus, context)
    return stage, context


def test_best_weights_from_before_an_interruption_are_kept(tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dev scores that fall: the first ones are the best, and the checkpoint has their weights beside its own."""
    stage, context = _plain(tiny_encoder_dir, write_data(tmp_path / "data"), tmp_path / "store")
    falling = itertools.count(50, -1)
    monkeypatch.setattr(sentdist.stages.dev_scorer, "mean_of_parts", lambda parts: float(next(falling)))
    whole = _session(stage, context)
    events = whole.events()
    best = next({n: t.clone() for n, t in whole.engine.weights().items()} for event in events if isinstance(event, DevScore))
    next(events)
    whole.save(tmp_path / "checkpoint")
    resumed = _session(stage, context)
    resumed.load(tmp_path / "checkpoint")
    list(resumed.events())
    assert resumed.progress.best_step is not None and resumed.progress.best_step < resumed.progress.step
    resumed.finish(tmp_path / "encoder")
    kept = load_file(tmp_path / "encoder/model.safetensors")
    assert len(kept) > 10
    for name, tensor in kept.items():
        if f"encoder.model.{name}" in best:  # the pooler is the checkpoint's
            assert torch.equal(tensor, best[f"encoder.model.{name}"]), name


def _train_on_rank(rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path) -> dict[str, Any]:
    plan, context = tiny_plan(values, data=data, store=store)
    session = _session(_final_rcl(plan), context)
    losses = [event.loss for event in session.events() if hasattr(event, "loss")]
    return {"losses": losses, "weights": session.engine.weights(), "dev": [found.score for found in session.progress.history]}


def _score_on_rank(rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path) -> tuple[int | None, list[float]]:
    """Rank 0's dev scores rise, rank 1's fall."""
    plan, context = tiny_plan(values, data=data, store=store)
    session = _session(_final_rcl(plan), context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentdist.stages.dev_scorer, "mean_of_parts", lambda parts: session.progress.step * (1.0 - 2.0 * rank))
        list(session.events())
    return session.progress.best_step, [found.score for found in session.progress.history]


def test_ranks_whose_dev_scores_differ_keep_the_same_weights(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """As on unlike processors, in the last digits: under ZeRO stage 3 a rank that keeps its weights waits for the others."""
    data = write_data(tmp_path / "data")
    values = tiny_values(tiny_encoder_dir)
    _with_inputs(values, data, tmp_path / "store")
    (best, scores), other = run_in_processes(_score_on_rank, 2, values, data, tmp_path / "store")
    assert (best, scores) == other and len(scores) > 1
    assert best == max(scores)


def test_two_ranks_end_like_one(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Dropout off: losses, dev scores and parameters do not depend on how many ranks share a batch."""
    data = write_data(tmp_path / "data")
    values = tiny_values(tiny_encoder_dir)
    stage, context = _with_inputs(values, data, tmp_path / "store")
    alone = _session(stage, context)
    losses = [event.loss for event in alone.events() if hasattr(event, "loss")]
    first, second = run_in_processes(_train_on_rank, 2, values, data, tmp_path / "store")
    assert first["losses"] == pytest.approx(losses, rel=1e-5)
    assert first["dev"] == second["dev"] == pytest.approx([found.score for found in alone.progress.history], abs=0.5)
    _states_equal(alone.engine.weights(), first["weights"], **TOLERANCE)


def test_a_whole_sweep_in_one_process(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Every stage gives its artifact; a second run builds nothing; options that matter change keys and numbers."""
    data = write_data(tmp_path / "data")
    values = tiny_values(tiny_encoder_dir)
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    artifacts = run_local(plan, context)
    scores = {artifact.record.label: artifact.record.results["stsb"] for artifact in artifacts if artifact.record.kind == "scores"}
    assert len(scores) == 3 and all(isinstance(score, float) for score in scores.values())
    reported: list[object] = []
    run_local(plan, context, listen=lambda stage, session, event: reported.append(event))
    assert reported == []
    final = next(artifact for artifact in artifacts if artifact.record.kind == "train" and artifact.record.label.startswith("rcl"))
    assert final.record.results["num_steps"] == 6
    assert {"history.jsonl", "model.safetensors", "README.md"} <= set(final.record.files)
