"""Training steps: what a report says, and what stops a run before the optimizer is touched."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from sentdist.errors import DataError, RecipeError, ResourceError, TrainingDiverged
from sentdist.execution.searching.budgets import StoreBefore, spent_on
from sentdist.learning.checkpoint import Progress
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.gather import local_rows
from sentdist.learning.loop import StepReport, train_steps
from sentdist.learning.objective import Objective
from sentdist.learning.optimization import SCHEDULES, Optimization, adamw
from sentdist.plan.specs import Training
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages import train_setup as dev_scorer
from sentdist.stages.learning_curve import Curve
from sentdist.stages.planning.worker_memory import sentences_at_a_time
from sentdist.stages.rung_records import rung_score
from sentdist.stages.train import TrainSession
from tests.parity.toy import ToyBank, ToyEncoder, toy_batches
from tests.support import make
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

OPTIMIZATION = Optimization(num_steps=10, lr=1e-2, warmup_fraction=0.2)


class PoisonedAfter(Objective):
    """An objective whose loss is `factor` times Eq. 1 from the given step on."""

    def __init__(self, step: int, factor: float) -> None:
        self.step, self.factor = step, factor

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        loss = make.info_nce()(embeddings, batch)
        self.step -= 1
        return loss if self.step >= 0 else loss * self.factor


class InfiniteGradient(Objective):
    """An objective with a finite value and a gradient that is not."""

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        return (embeddings * 0).sum().sqrt()


def frozen_state(engine: TorchEngine) -> list[Tensor]:
    parameters = list(engine.learner.parameters())
    return [tensor.clone() for parameter in parameters for tensor in (parameter, *engine._optimizer.state.get(parameter, {}).values())]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_reports_say_what_happened() -> None:
    engine = TorchEngine(ToyEncoder(), OPTIMIZATION)
    reports = list(train_steps(engine, make.info_nce(temperature=0.05), toy_batches(10), start=0))
    assert [report.step for report in reports] == list(range(10))
    # Warm-up over 2 steps from 0, then linearly to 0 after the tenth.
    assert [report.lr for report in reports] == pytest.approx([0, 5e-3, *(1e-2 * (8 - k) / 8 for k in range(8))])
    assert all(report.num_sentences == 24 and report.grad_norm > 0 for report in reports)
    assert reports[-1].loss < reports[0].loss


def busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_seconds_of_a_step_leave_out_what_the_caller_does_meanwhile() -> None:
    def slow_batches() -> Iterator[Batch]:
        for batch in toy_batches(3):
            busy(0.02)
            yield batch

    engine = TorchEngine(ToyEncoder(), OPTIMIZATION)
    began = time.perf_counter()
    reports = []
    for report in train_steps(engine, make.info_nce(), slow_batches()):
        reports.append(report)
        busy(0.1)
    elapsed = time.perf_counter() - began
    assert all(report.seconds.data >= 0.02 for report in reports)
    assert sum(report.seconds.total for report in reports) <= elapsed - 3 * 0.1
    parts = [getattr(report.seconds, part) for report in reports for part in ("forward", "loss", "backward", "optimizer")]
    assert min(parts) > 0
    assert all(report.seconds.waiting == 0 for report in reports), "nobody to wait for"


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_before_the_optimizer(factor: float, tmp_path: Path) -> None:
    engine = TorchEngine(ToyEncoder(), OPTIMIZATION)
    steps = train_steps(engine, PoisonedAfter(3, factor), toy_batches(10))
    list(itertools.islice(steps, 3))
    engine.save(tmp_path / "step-3", progress=Progress(step=3))
    before = frozen_state(engine)
    with pytest.raises(TrainingDiverged, match=r"step 3, rows 0 to 7 of the batch.*all embeddings here finite") as caught:
        next(steps)
    assert_equal(frozen_state(engine), before)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    # The last good checkpoint is the way out.
    resumed = TorchEngine(ToyEncoder(seed=9), OPTIMIZATION)
    assert resumed.load(tmp_path / "step-3").step == 3
    assert_equal(frozen_state(resumed), before)


def test_a_gradient_that_is_not_finite_stops_before_the_optimizer() -> None:
    engine = TorchEngine(ToyEncoder(), OPTIMIZATION)
    before = [parameter.clone() for parameter in engine.learner.parameters()]
    with pytest.raises(TrainingDiverged, match="step 5, gradient: found norm nan"):
        next(train_steps(engine, InfiniteGradient(), toy_batches(1), start=5))
    assert_equal(list(engine.learner.parameters()), before)


def test_sentences_whose_embeddings_are_not_finite_are_named() -> None:
    encoder = ToyEncoder()
    (batch,) = toy_batches(1)
    with torch.no_grad():
        encoder.tokens.weight[batch.tokens.token_ids[0]] = float("nan")
    with pytest.raises(TrainingDiverged, match=rf"embeddings not finite, sentences \[{batch.sentence_ids[0, 0]}"):
        next(train_steps(TorchEngine(encoder, OPTIMIZATION), make.info_nce(), [batch]))


class Sum(Objective):
    """Asks nothing of the other ranks."""

    def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
        return embeddings.sum()


def test_they_are_named_by_column_and_row_of_this_rank() -> None:
    encoder = ToyEncoder()
    (batch,) = toy_batches(1, rank=1, world_size=2)
    bad = [5, 10]  # columns 1 and 2, rows 1 and 2 of this rank's four
    lone = [next(iter(set(batch.tokens.take([place]).token_ids.tolist()))) for place in bad]
    with torch.no_grad():
        encoder.tokens.weight[lone] = float("nan")
    named = [
        int(sentence)
        for place, sentence in enumerate(batch.own_sentence_ids)
        if set(lone) & set(batch.tokens.take([place]).token_ids.tolist())
    ]
    with pytest.raises(TrainingDiverged, match=rf"rows 4 to 7 of the batch.*{len(named)} embeddings not finite, sentences") as caught:
        next(train_steps(TorchEngine(encoder, OPTIMIZATION), Sum(), [batch]))
    assert str(named[:8]) in str(caught.value) and len(named) < 12


@pytest.mark.parametrize(("num_rows", "world_size"), [(2, 4), (0, 2)])
def test_a_batch_with_fewer_rows_than_workers_is_refused(num_rows: int, world_size: int) -> None:
    with pytest.raises(ResourceError, match=rf"{num_rows} rows for {world_size} workers.*at least a row for each"):
        local_rows(num_rows, rank=0, world_size=world_size)


@pytest.mark.parametrize(("num_rows", "shares"), [(6, [2, 2, 2]), (8, [3, 3, 2]), (7, [3, 2, 2]), (3, [1, 1, 1])])
def test_shares_of_a_batch_cover_it_in_rank_order(num_rows: int, shares: list[int]) -> None:
    rows = [local_rows(num_rows, rank=rank, world_size=3) for rank in range(3)]
    assert [len(own) for own in rows] == shares
    assert [row for own in rows for row in own] == list(range(num_rows))


def test_a_batch_that_is_not_a_global_one_is_refused() -> None:
    (batch,) = toy_batches(1)
    short = replace(batch, sentence_ids=batch.sentence_ids[:, :4])
    with pytest.raises(DataError, match=r"8 rows gathered.*the 4 rows of the global batch"):
        make.info_nce()(ToyEncoder()(short.tokens), short)


def test_embeddings_that_do_not_fill_their_columns_are_refused() -> None:
    (batch,) = toy_batches(1)
    with pytest.raises(DataError, match="anchor and a positive"):
        make.info_nce()(ToyEncoder()(batch.tokens), replace(batch, num_columns=1))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_temperatures_that_make_no_sense_are_refused(value: float) -> None:
    for refused in (
        lambda: make.info_nce(temperature=value),
        lambda: make.entropy(phi=0.1, temperature=value),
        lambda: make.rcl(bank=ToyBank(1), temperature=value),
        lambda: make.rcl(bank=ToyBank(1), regulator_temperature=value),
    ):
        with pytest.raises(ValidationError, match="temperature"):
            refused()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_phi_and_weight_must_be_finite(value: float) -> None:
    with pytest.raises(ValidationError, match="phi"):
        make.entropy(phi=value)
    with pytest.raises(ValidationError, match="regulator_weight"):
        make.rcl(bank=ToyBank(1), regulator_weight=value)


def test_every_option_of_rcl_is_seen() -> None:
    (batch,) = toy_batches(1)
    embeddings = ToyEncoder()(batch.tokens).detach()
    options = [{}, {"temperature": 0.05}, {"regulator_temperature": 0.3}, {"regulator_weight": 0.5}]
    losses = {float(make.rcl(bank=ToyBank(2), **option)(embeddings, batch)) for option in options}
    assert len(losses) == len(options)
    same = [make.rcl(bank=ToyBank(2), temperature=0.3, regulator_temperature=value)(embeddings, batch) for value in (None, 0.3)]
    assert torch.equal(*same), "left out, the regulators have the main term's temperature"


def test_hard_negatives_enter_the_first_term_of_eq_3_only() -> None:
    (batch,) = toy_batches(1)
    embeddings = ToyEncoder()(batch.tokens)
    without = Batch(tokens=batch.tokens.take(range(16)), num_columns=2, first_row=0, sentence_ids=batch.sentence_ids[:2])
    bank = ToyBank(2)
    regulators = [
        make.rcl(bank=bank)(rows, of) - make.info_nce()(rows, of) for rows, of in ((embeddings, batch), (embeddings[:16], without))
    ]
    torch.testing.assert_close(*regulators)


def test_vectors_do_not_decay() -> None:
    encoder = ToyEncoder()
    decays = {id(parameter): group["weight_decay"] for group in adamw(encoder, OPTIMIZATION).param_groups for parameter in group["params"]}
    found = {name: decays[id(parameter)] for name, parameter in encoder.named_parameters()}
    assert found == {"tokens.weight": 0.01, "dense.weight": 0.01, "norm.weight": 0, "norm.bias": 0, "dense.bias": 0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_steps", 0),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("warmup_fraction", 1.5),
        ("schedule", "cosine"),
        ("schedule_stretch", 0.5),
        ("weight_decay", -0.1),
        ("clip_norm", 0.0),
        ("precision", "fp16"),
    ],
)
def test_training_options_out_of_range_are_refused(field: str, value: object) -> None:
    with pytest.raises(RecipeError, match=rf"train\.{field}: found {value!r}"):
        Optimization(**{"num_steps": 10, field: value})


def test_the_schedules_of_a_recipe_are_those_of_an_engine() -> None:
    assert set(get_args(Training.model_fields["schedule"].annotation)) == set(SCHEDULES)


def test_a_stretched_schedule_ends_before_its_end() -> None:
    """The regression paper's code: 14,720 steps on a schedule for 58,879, warm-up over 80 % of the run, at the end 94 % of the peak."""
    released = Optimization(num_steps=14_720, warmup_fraction=0.2, schedule_stretch=4.0)
    assert released.num_warmup_steps / released.num_steps == pytest.approx(0.8)
    stretched = replace(OPTIMIZATION, num_steps=15, warmup_fraction=0.2, schedule_stretch=4.0)
    reports = list(train_steps(TorchEngine(ToyEncoder(), stretched), make.info_nce(), toy_batches(15)))
    # 12 of 60 steps of warm-up, then from the peak down to 0 at step 60, of which 3 are gone when training ends.
    assert [report.lr for report in reports] == pytest.approx([1e-2 * k / 12 for k in range(12)] + [1e-2 * (48 - k) / 48 for k in range(3)])


def test_constant_schedule_and_no_clipping() -> None:
    batches = toy_batches(4)
    constant = replace(OPTIMIZATION, schedule="constant", warmup_fraction=0.0)
    reports = list(train_steps(TorchEngine(ToyEncoder(), constant), make.info_nce(), batches))
    assert [report.lr for report in reports] == [1e-2] * 4
    weights = []
    for clip_norm in (None, 1e6, 1e-3):
        engine = TorchEngine(ToyEncoder(), replace(constant, clip_norm=clip_norm))
        list(train_steps(engine, make.info_nce(), batches))
        weights.append(engine.weights()["dense.weight"])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_bf16_computes_in_bf16_over_float32_weights() -> None:
    batches = toy_batches(3)
    losses = {}
    for precision in ("fp32", "bf16"):
        engine = TorchEngine(ToyEncoder(), replace(OPTIMIZATION, precision=precision, warmup_fraction=0.0))
        assert engine.encode(batches[0].tokens).dtype == torch.float32
        losses[precision] = [report.loss for report in train_steps(engine, make.info_nce(temperature=0.05), batches)]
        assert {tensor.dtype for tensor in engine.weights().values()} == {torch.float32}
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)  # bfloat16 knows cosines to 0.4 %, divided by a temperature of 0.05


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("full"),
        torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"),
        torch.distributed.DistBackendError("NCCL error in: NCCLUtils.cpp:93, remote process exited or there was a network error"),
    ],
)
def test_a_gpu_that_fails_while_a_checkpoint_is_loaded_says_nothing_of_the_checkpoint(
    error: RuntimeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was moved aside as damaged, and the training started over."""

    def load(session: TrainSession, folder: Path) -> None:
        raise error

    monkeypatch.setattr(TrainSession, "_load", load)
    with pytest.raises(type(error)):
        TrainSession.load(TrainSession.__new__(TrainSession), tmp_path)


@pytest.mark.usefixtures("one_thread")
def test_dev_scores_that_are_not_defined_are_none_in_the_record(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_scorer, "mean_of_parts", lambda parts: None)
    values = tiny_values(tiny_encoder_dir, methods={"m": {"objective": {"name": "info_nce"}}}, baseline=None)
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    run_local(plan, context)
    encoder = context.store.get(plan.trials[0].scores.inputs[0])
    assert encoder is not None and encoder.record.results["best_dev_score"] is None
    assert "Infinity" not in (context.store.folder(encoder) / "record.json").read_text(), "JSON knows none"


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("limit", "scores", "kept"),
    [
        (48, {}, 3),  # of six steps the third and the last are scored, both alike
        (16, {}, 2),  # the first of two steps is the first of the warm-up: its encoder is still the untouched one
        (16, {1: 60.0}, 1),  # which may be the better one
    ],
)
def test_of_checkpoints_with_equal_dev_scores_the_first_that_has_moved_is_kept(
    limit: int, scores: dict[int, float], kept: int, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = iter([scores.get(1, 50.0)])
    monkeypatch.setattr(dev_scorer, "mean_of_parts", lambda parts: next(reported, 50.0))
    changes: dict[str, Json] = {"methods": {"m": {"objective": {"name": "info_nce"}}}, "baseline": None}
    values = tiny_values(tiny_encoder_dir, **changes) | {"corpus": {"source": "nli/triplets", "limit": limit}}
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    run_local(plan, context)
    encoder = plan.trials[0].scores.encoder
    assert isinstance(encoder, Train)
    artifact = context.store.get(encoder)
    assert artifact is not None
    assert artifact.record.results["num_steps"] == limit // 8 and artifact.record.results["best_step"] == kept
    weights = (load_file(folder / "model.safetensors") for folder in (tiny_encoder_dir, context.store.folder(artifact)))
    assert _have_moved(*weights) is (kept > 1)


def _have_moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> bool:
    return any(not torch.equal(before[name], after[name]) for name in before.keys() & after.keys())


@pytest.mark.parametrize("hard_negatives", [True, False])
def test_a_training_is_forecast_by_the_sentences_that_its_steps_take(
    hard_negatives: bool, tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[StepReport] = []
    monkeypatch.setattr(Curve, "add", lambda self, report, add=Curve.add: (reports.append(report), add(self, report)))
    method: dict[str, object] = {"objective": {"name": "info_nce", "hard_negatives": hard_negatives}}
    values = tiny_values(tiny_encoder_dir, methods={"eq1": method}, baseline="eq1", selection={"task": "stsb-dev"})
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    (train,) = (stage for stage in plan.stages if isinstance(stage, Train))
    run_local(plan, context)
    taken = [report.num_sentences for report in reports]
    assert set(taken) == {8 * (3 if hard_negatives else 2)} == {train.sentences_per_step} == {sentences_at_a_time(train, context.runtime)}
    assert sum(taken) == train.num_sentences(plan.rows)
    score = rung_score(train, 1.0, context)
    assert score is not None and score.sentences == sum(taken)
    assert spent_on(train, context.store, earlier=StoreBefore(places=frozenset(), since=None), known=set()).sentences == sum(taken)
