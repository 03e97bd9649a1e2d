"""A training as a stage: interrupted and resumed, or shared by two ranks, it ends with the same parameters."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

import sentdist.stages.train_setup
from sentdist.errors import StoreError
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.plan.unroll import Plan
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.rungs import file_bank
from sentdist.stages.train import TrainSession
from sentdist.store.sweep import save_sweep, sweep_record
from tests.parity.processes import run_in_processes
from tests.support.building import run_local
from tests.support.relations_data import CAPTION, ITSELF, write_relations_data
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


@pytest.mark.in_turns
@pytest.mark.parametrize("killed_after", [pytest.param(1, marks=pytest.mark.nightly), 4, 5, pytest.param(7, marks=pytest.mark.nightly)])
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


def test_an_epoch_that_is_longer_than_the_first_is_resumed_within_its_own_length(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Where no sentence may stand twice in a batch, epochs have other numbers of batches: here 8, then 9. Behind the eighth of the second
    dev is scored, behind that of the first too, for the epoch ends there."""
    corpus: Json = {"kind": "relations", "relations": [CAPTION, ITSELF], "held_out": 4}
    values = tiny_values(
        tiny_encoder_dir, corpus=corpus, methods={"m": {"objective": {"name": "info_nce"}}}, baseline=None,
        training={"batch_size": 6, "epochs": 2, "learning_rate": 1e-3, "max_length": 20},
        selection={"task": "stsb-dev", "every_fraction": 0.2},
    )  # fmt: skip
    plan, context = tiny_plan(values, data=write_data(write_relations_data(tmp_path / "data")), store=tmp_path / "store")
    (stage,) = (stage for stage in plan.stages if isinstance(stage, Train))
    build_here(stage.corpus, context)
    whole = [type(event) for event in _session(stage, context).events()]
    first, second = _session(stage, context), _session(stage, context)
    assert [len(first._batches.epoch(number)) for number in (0, 1)] == [8, 9]
    steps_before = [place for place, kind in enumerate(whole) if kind is StepReport][: 8 + 8]
    left_at = steps_before[-1] + 1
    assert whole[left_at:] == [DevScore, StepReport, DevScore]
    for _ in itertools.islice(first.events(), left_at):
        pass
    first.save(tmp_path / "checkpoint")
    second.load(tmp_path / "checkpoint")
    assert [type(event) for event in second.events()] == whole[left_at:]


def test_resumed_in_an_epoch_that_is_shorter_than_its_rows_it_scores_dev_where_it_would_have(
    tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    """A sentence in a third of 48 rows leaves 4 batches of 8, not 6: step 3 is too near to their end for a dev score."""
    data = write_data(tmp_path / "data")
    table = pq.read_table(data / "nli/triplets.parquet").to_pylist()
    rows = [row | {"sent0": "the same sentence"} if number % 3 == 0 else row for number, row in enumerate(table)]
    pq.write_table(pa.Table.from_pylist(rows), data / "nli/triplets.parquet")
    stage, context = _with_inputs(tiny_values(tiny_encoder_dir), data, tmp_path / "store")
    whole = _session(stage, context)
    for event in whole.events():
        if isinstance(event, StepReport) and event.step == 2:
            whole.save(tmp_path / "checkpoint")
    resumed = _session(stage, context)
    resumed.load(tmp_path / "checkpoint")
    list(resumed.events())
    assert whole.progress.step == 4
    assert resumed.progress == whole.progress


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
    monkeypatch.setattr(sentdist.stages.train_setup, "mean_of_parts", lambda parts: float(next(falling)))
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


def _drawn_on_rank(rank: int, world_size: int, encoder: Path, data: Path, store: Path) -> list[float]:
    """What dropout would begin with."""
    _session(*_plain(encoder, data, store))
    return torch.rand(4).tolist()


def test_each_rank_drops_other_values_and_the_same_ones_again(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    given = tiny_encoder_dir, write_data(tmp_path / "data"), tmp_path / "store"
    _plain(*given)
    first, second = run_in_processes(_drawn_on_rank, 2, *given)
    assert first != second
    assert [first, second] == run_in_processes(_drawn_on_rank, 2, *given)


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
        patch.setattr(sentdist.stages.train_setup, "mean_of_parts", lambda parts: session.progress.step * (1.0 - 2.0 * rank))
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


def test_a_sweep_is_reported_from_its_records(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """The report needs neither data nor training: systems, stars' baseline, what was shared, the paper's table,
    figures with their numbers."""
    data = write_data(tmp_path / "data", num_rows=16)
    phis: Json = [[0.01], [0.01, 0.02]]
    values = tiny_values(tiny_encoder_dir, seeds=[0, 1], paper="rcl", sweep={"methods.rcl.phis": phis})
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    save_sweep(context.store, sweep_record(plan))
    with pytest.raises(StoreError, match="no finished trial"):
        report_sweep(context.store, "tiny")
    run_local(plan, context)
    report = report_sweep(context.store, "tiny")
    page = report.write(tmp_path / "report")
    assert "SRoBERTa-base" not in report.markdown, "without phis .01 to .04 there is no row of the paper's to stand beside"
    assert {"table1.csv", "table1-comparisons.csv", "regulators.svg", "differences.csv", "learning.png", "citations.bib"} <= set(
        report.files
    )
    lines = {line.split(",")[0] for line in str(report.files["table1.csv"]).splitlines()}
    assert {"base", "fine_tuned"} <= lines and sum("rcl" in line for line in lines) >= 1
    assert page.read_text().startswith("<!doctype html>") and "arXiv 2209.13241" in page.read_text()
