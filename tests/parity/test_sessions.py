"""A training as a stage: interrupted and resumed, read now and then, or shared by two ranks, it ends with the same parameters."""

from __future__ import annotations

import itertools
import math
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import sentdist.stages.train_setup
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.engine import TorchEngine
from sentdist.learning.optimization import Learner, Optimization, parameter_groups
from sentdist.objectives.symmetric_info_nce import LOWEST
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Rung, Tokens, Train, to_share
from sentdist.recipe.unroll import Plan
from sentdist.run.deepspeed_engine import DeepSpeedEngine
from sentdist.run.rank import _make_tokens
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.rung_records import rung_score
from sentdist.stages.rungs import events_until, file_bank, from_rung, publish_training
from sentdist.stages.train import TrainSession
from sentdist.stages.train_setup import load_start_tokenizer, ranks_here, tokens_of
from tests.parity.processes import run_in_processes
from tests.parity.ranks import made, toy_batch, toy_embeddings
from tests.parity.toy import ToyEncoder
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


LEARNED: Json = {"name": "symmetric_info_nce", "temperature": 0.1, "learn_temperature": True, "temperature_learning_rate": 0.05}


def test_it_has_a_group_of_its_own_and_stays_at_its_lowest() -> None:
    objective = made(LEARNED)
    assert isinstance(objective, torch.nn.Module)
    groups = parameter_groups(Learner(ToyEncoder(), objective), Optimization(num_steps=1, lr=1e-3, weight_decay=0.01))
    (own,) = (group for group in groups if group["lr"] == 0.05)
    assert own["params"] == list(objective.parameters()) and own["weight_decay"] == 0.0
    with torch.no_grad():
        own["params"][0].fill_(math.log(LOWEST / 2))
    embeddings, batch = toy_embeddings(3).flatten(0, 1), toy_batch(3)
    lowest = made({"name": "symmetric_info_nce", "temperature": LOWEST})(embeddings, batch)
    torch.testing.assert_close(objective(embeddings, batch), lowest)


def _training(values: dict[str, Json], data: Path, store: Path) -> tuple[Train, Context]:
    plan, context = tiny_plan(values, data=data, store=store)
    return next(stage for stage in plan.stages if isinstance(stage, Train) and stage.selection is not None and not stage.banks), context


def _points(session: TrainSession) -> list[dict[str, Json]]:
    return [{name: value for name, value in point.items() if name not in ("at", "sentences_per_s")} for point in session.history]


def _ahead(encoder: nn.Module, optimization: Optimization) -> TorchEngine:
    engine = TorchEngine(encoder, optimization)
    engine.runs_ahead = True  # as on a GPU
    return engine


@pytest.mark.usefixtures("one_thread")
def test_a_training_that_is_read_now_and_then_is_the_same_training(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Dropout on, two epochs, dev scores between: weights, curve and scores to the last bit; a checkpoint is of what was read."""
    values = tiny_values(
        tiny_encoder_dir,
        training={"batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "max_length": 20},
        runtime={"engine": "torch", "log_every": 2},
    )
    stage, context = _training(values, write_data(tmp_path / "data"), tmp_path / "store")
    build_here(stage.corpus, context)
    found: list[Any] = []
    for make_engine in (TorchEngine, _ahead):
        session = TrainSession(stage, context, make_engine=make_engine, bank=None)
        kinds = [type(event).__name__ for event in session.events()]
        found.append((kinds, _points(session), session.progress, session.engine.weights()))
    assert found[0][:3] == found[1][:3] and found[0][0].count("DevScore") >= 2
    assert all(torch.equal(weight, found[1][3][name]) for name, weight in found[0][3].items())

    stopped = TrainSession(stage, context, make_engine=_ahead, bank=None)
    events = stopped.events()
    while stopped.progress.step < 4:
        next(events)
    with pytest.raises(RuntimeError, match="another one has begun"):
        stopped.save(tmp_path / "checkpoint")  # the fourth has a point of the curve, which is read a step late
    stopped.hold()
    next(events)
    assert stopped.progress.step == 5
    stopped.save(tmp_path / "checkpoint")
    events.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "batches"]
    resumed = TrainSession(stage, context, make_engine=_ahead, bank=None)
    resumed.load(tmp_path / "checkpoint")
    list(resumed.events())
    assert all(torch.equal(weight, resumed.engine.weights()[name]) for name, weight in found[0][3].items())
    assert _points(resumed) == found[0][1], "one point is of a step before the checkpoint and one behind it"


def _made_on_rank(rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path) -> int:
    stage, context = _training(values, data, store)
    _make_tokens(stage, context, ranks_here())
    _make_tokens(stage, context, ranks_here())  # there is nothing more to do
    return len(list(context.store.artifacts(Tokens.kind)))


def test_ranks_make_the_tokens_of_a_corpus_together(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Each makes its shards of seven sentences; what lies in the store is what one process makes."""
    data = write_data(tmp_path / "data")
    values = tiny_values(tiny_encoder_dir, runtime={"engine": "torch", "workers": 2, "rows_per_shard": 7})
    tables = []
    for name in ("together", "alone"):
        stage, context = _training(values, data, tmp_path / name)
        build_here(stage.corpus, context)
        if name == "together":
            assert run_in_processes(_made_on_rank, 2, values, data, tmp_path / name) == [1, 1]
        tables.append(tokens_of(stage, context, load_start_tokenizer(stage, context)))
        assert len(list(context.store.artifacts(Tokens.kind))) == 1
    assert all((getattr(tables[0], name) == getattr(tables[1], name)).all() for name in ("ids", "bounds"))


SHARES = (0.2, 0.5)


def values_of(encoder: Path) -> dict[str, Json]:
    """Two epochs of 6 steps, a dev score every 2, dropout as in the checkpoint, one entropy encoder."""
    values = tiny_values(encoder, training={"batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "max_length": 20})
    values["selection"] = {"task": "stsb-dev", "every_fraction": 0.33}
    methods = values["methods"]
    assert isinstance(methods, dict)
    methods["rcl"] = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01]}
    return values


def prepared(values: dict[str, Json], data: Path, store: Path) -> tuple[Train, Context]:
    plan, context = tiny_plan(values, data=data, store=store)
    train = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "rcl")
    for stage in plan.stages:
        if stage.kind != "scores" and stage is not train and stage.key != train.key:
            build_here(stage, context)
    return train, context


def test_a_training_through_rungs_is_the_training(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_data(tmp_path / "data")
    train, context = prepared(values_of(tiny_encoder_dir), data, tmp_path / "store")
    whole = build_here(train, context)
    other, elsewhere = prepared(values_of(tiny_encoder_dir), data, tmp_path / "other")
    elsewhere = replace(elsewhere, shares=SHARES)
    assert other.key == train.key
    reported: list[int] = []
    total = 0.0
    for share in SHARES:
        rung = build_here(
            to_share(other, share), elsewhere, listen=lambda stage, session, event: reported.append(getattr(event, "step", -1))
        )
        assert rung.record.kind == "rung"
        assert (rung.record.results["step"], rung.record.results["num_steps_planned"]) == ({0.2: 4, 0.5: 6}[share], 12)
        results: Any = rung.record.results
        assert rung.record.seconds == pytest.approx(results["seconds_total"] - total, abs=1e-2), "what lies below it is not its own"
        total = results["seconds_total"]
        best = max(score for _, score in results["dev_history"])
        assert [results["best_step"], results["best_dev_score"]] == next(point for point in results["dev_history"] if point[1] == best)
    again = build_here(other, elsewhere)

    assert sorted(set(reported)) == [-1, *range(7)], "each step once, none of it again"
    one, two = (load_file(Path(artifact.uri) / "model.safetensors") for artifact in (whole, again))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    for field in ("num_steps", "best_step", "best_dev_score", "final_loss"):
        assert whole.record.results[field] == again.record.results[field]
    assert again.record.results["sentences_before"] == 6 * 8 * 3
    assert again.record.seconds > float(str(again.record.results["seconds_before"])) > 0
    # What is known of a share is the same wherever it is read.
    assert all(
        replace(known, seconds=0) == replace(here, seconds=0)
        for share in SHARES
        if (known := rung_score(train, share, context)) and (here := rung_score(other, share, elsewhere))
    )
    first = rung_score(other, 0.2, elsewhere)
    assert first is not None and first.step == 4
    assert rung_score(train, 1.0, context) == replace(rung_score(other, 1.0, elsewhere) or first, seconds=whole.record.seconds)


def test_a_rung_of_no_use_is_not_gone_on_from(tmp_path: Path, tiny_encoder_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = values_of(tiny_encoder_dir)
    train, context = prepared(values, write_data(tmp_path / "data"), tmp_path / "store")
    context = replace(context, shares=SHARES)
    rung = build_here(Rung(of=train, share=0.2), context)
    (Path(rung.uri) / "checkpoint" / "engine.pt").write_bytes(b"damaged")
    half = build_here(Rung(of=train, share=0.5), context)
    assert "is of no use" in caplog.text
    assert half.record.results["step"] == 6 and "seconds_before" not in half.record.results


def _on_rank(
    rank: int, world_size: int, values: dict[str, Json], data: Path, store: Path, out: Path, shares: tuple[float, ...]
) -> list[dict[str, Any]]:
    """What a training comes to, and what its rungs noted, through those at `shares`."""
    plan, context = tiny_plan(values, data=data, store=store)
    context = replace(context, shares=shares)
    train = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "rcl")
    engine = partial(DeepSpeedEngine, zero_stage=context.runtime.zero_stage)
    make = partial(TrainSession, train, context, make_engine=engine, bank=file_bank(train, context))
    noted = []
    for share in (*shares, 1.0):
        stage, folder = to_share(train, share), out / f"{len(shares)}-{share}-rank-{rank}"
        resumed = from_rung(make(), stage, context, make=make, ranks=ranks_here())
        noted.append({"begins": resumed.step, "note": resumed.note})
        list(events_until(stage, resumed.session))
        noted[-1] |= {"ends": resumed.session.progress.step, "history": resumed.session.progress.history}
        if isinstance(stage, Rung):
            publish_training(resumed, stage, context, ranks_here(), started=time.perf_counter())
            ranks_here().exchange(None)  # it is in the store
        else:
            folder.mkdir()
            noted[-1] |= {"last": resumed.session.engine.weights(), "results": resumed.session.finish(folder)}
    return noted


def test_a_training_through_rungs_of_zero_3_is_the_training(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = values_of(tiny_encoder_dir) | {"runtime": {"engine": "deepspeed", "zero_stage": 3, "workers": 2}}
    data = write_data(tmp_path / "data")
    prepared(values, data, tmp_path / "store")
    run = partial(run_in_processes, _on_rank, 2, values, data, tmp_path / "store", tmp_path)
    (whole,), through = run(())[0], run(SHARES)[0]
    assert [(one["begins"], one["ends"], one["note"]) for one in through] == [(0, 4, None), (4, 6, None), (6, 12, None)]
    assert whole["history"] == through[-1]["history"] and len(whole["history"]) == 6
    assert whole["last"].keys() == through[-1]["last"].keys()
    assert all(torch.equal(whole["last"][name], through[-1]["last"][name]) for name in whole["last"])
    one, two = (load_file(tmp_path / f"{number}-1.0-rank-0" / "model.safetensors") for number in (0, len(SHARES)))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert whole["results"]["best_step"] == through[-1]["results"]["best_step"]
