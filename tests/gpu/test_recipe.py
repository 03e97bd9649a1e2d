"""A whole recipe on a GPU: banks, trainings that read them, dev scores and tests, in one process; and a training that is killed there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from sentdist.learning.checkpoint import DevScore
from sentdist.learning.device_bank import DeviceBank, bank_stays
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.fit import device_of, on_this_machine
from sentdist.stages.rungs import file_bank
from sentdist.stages.train import TrainSession
from sentdist.stages.train_setup import placed
from tests.gpu.waiting import refuse_waiting
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.trained import assert_same_results

pytestmark = pytest.mark.gpu


def planned(encoder: Path, place: Path, device: str) -> tuple[Plan, Context]:
    values = tiny_values(encoder, runtime={"engine": "torch", "device": device})
    plan, context = tiny_plan(values, data=write_data(place / "data"), store=place / "store")
    return plan, replace(context, runtime=on_this_machine(context.runtime)[0])


def test_it_learns_and_scores_what_it_does_on_a_cpu(folder: Path, tmp_path: Path) -> None:
    plan, here = planned(folder, tmp_path / "cpu", "cpu")
    _, there = planned(folder, tmp_path / "cuda", "cuda")
    run_local(plan, here)
    run_local(plan, there)
    # No softmax depends on what is added to all its keys: that gradient is rounding alone, of which AdamW makes steps. Between the CPU's
    # kernels and plain torch these biases come to differ by 1.7e-4, all other weights by 2e-7.
    assert_same_results(plan, here, there, but_for="key.bias")
    for stage in plan.stages:
        if isinstance(stage, Train) and stage.selection is not None:
            (expected, found) = (context.store.get(stage) for context in (here, there))
            assert expected is not None and found is not None
            assert found.record.results["best_step"] == expected.record.results["best_step"]
            assert found.record.results["best_dev_score"] == pytest.approx(expected.record.results["best_dev_score"], abs=0.5)


def test_a_training_that_is_killed_and_goes_on_ends_as_one_left_alone(folder: Path, tmp_path: Path) -> None:
    """With dropout, which draws on the GPU, and a bank; killed in the middle of an epoch."""
    plan, context = planned(folder, tmp_path, "cuda")
    run_local(plan, context)
    still = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks)
    stage = still.model_copy(update={"regularizers": type(still.regularizers)(attention_dropout=0.1, hidden_dropout=0.1)})
    make_engine = partial(TorchEngine, device=device_of(context.runtime))

    def session() -> TrainSession:
        return TrainSession(stage, context, make_engine=make_engine, bank=file_bank(stage, context))

    def losses(events: Iterable[StepReport | DevScore]) -> list[float]:
        return [event.loss if isinstance(event, StepReport) else event.score / 100 for event in events]

    whole, first, second = session(), session(), session()
    torch.manual_seed(1)
    expected = losses(whole.events())
    torch.manual_seed(1)
    before = losses(islice(first.events(), 3))
    first.save(tmp_path / "checkpoint")
    second.load(tmp_path / "checkpoint")
    after = losses(second.events())
    # Some sums on a GPU are added up in no fixed order; another dropout mask would be off by tenths.
    assert before + after == pytest.approx(expected, rel=1e-2)
    assert second.progress.step == whole.progress.step


def test_a_bank_on_the_gpu_gives_the_rows_that_came_from_the_host(folder: Path, tmp_path: Path) -> None:
    """To the last bit, and so the same training; it is copied once for both of those that read it, and nothing waits for its rows."""
    plan, context = planned(folder, tmp_path, "cuda")
    run_local(plan, context)
    stage = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks)
    device = device_of(context.runtime)
    on_host = file_bank(stage, context)
    assert on_host is not None
    with bank_stays():
        banks = [placed(file_bank(stage, context), stage, context, device) for _ in range(2)]
        assert isinstance(banks[0], DeviceBank) and banks[0] is banks[1]
        ids = np.arange(on_host.num_sentences)[::-1].reshape(1, -1)
        there = banks[0].ids(ids).to(device)
        refuse_waiting("error")
        try:
            rows, by_ids = banks[0].gathered(there), banks[0].rows(ids)
        finally:
            refuse_waiting("default")
        assert torch.equal(rows.squeeze(1).cpu(), on_host.rows(ids)) and torch.equal(by_ids, rows.squeeze(1))
        losses = []
        for bank in (on_host, banks[0]):
            session = TrainSession(stage, context, make_engine=partial(TorchEngine, device=device), bank=bank)
            torch.manual_seed(1)
            losses.append([event.loss for event in session.events() if isinstance(event, StepReport)])
    # Some sums on a GPU are added up in no fixed order.
    assert losses[1] == pytest.approx(losses[0], rel=1e-2) and losses[1][0] == pytest.approx(losses[0][0], rel=1e-6)
