"""What is asked of stages is known of every kind, or refused: no kind is taken for another."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.execution.plan_facts import bytes_beside_weights
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Stage
from sentdist.plan.stages import STAGES, Bank, Rung, Train
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import explain_full_gpu
from sentdist.stages.planning.device_forecast import operations_of
from sentdist.stages.planning.worker_memory import EncoderSize, encoder_size
from sentdist.stages.sharded import Sharded
from sentdist.store.store import ArtifactStore
from sentdist.tracking.run_values import data_sets, stage_parameters
from tests.support.every_stage import one_of_each, plan_of_all_kinds

NOT_PLANNED = {"rung", "encoded", "overlap", "tokens"}
PLANNED = sorted(set(STAGES) - NOT_PLANNED)
UNKNOWN = "nobody said"


def _context() -> Context:
    return Context(store=ArtifactStore("/nowhere"), runtime=Runtime(gpus_per_worker=1))


def _written(stage: Stage) -> int:
    sizes: dict[Any, EncoderSize] = {stage.encoder.encoder: encoder_size({})} if isinstance(stage, Bank) else {}
    return bytes_beside_weights(stage, plan_of_all_kinds(), sizes)


def test_there_is_a_stage_of_every_kind() -> None:
    assert set(one_of_each()) == set(STAGES)


@pytest.mark.parametrize("kind", PLANNED)
def test_forecasts_know_every_kind_that_a_plan_has(kind: str) -> None:
    stage, plan = one_of_each()[kind], plan_of_all_kinds()
    computes = kind in ("train", "bank", "scores")
    assert (operations_of(stage, plan, lambda encoder: 1e6) > 0) == computes
    assert (stage.num_sentences(plan.rows) > 0) == (kind == "targets" or computes)
    assert _written(stage) > 0


@pytest.mark.parametrize("kind", PLANNED)
def test_runs_show_every_kind_that_a_plan_has(kind: str) -> None:
    stage = one_of_each()[kind]
    assert stage_parameters(stage).keys() > {"kind", "corpus", "corpus.revision"} and data_sets(stage)


@pytest.mark.parametrize("kind", sorted(NOT_PLANNED))
def test_runs_refuse_what_no_plan_has(kind: str) -> None:
    for read in (stage_parameters, data_sets):
        with pytest.raises(TypeError, match=UNKNOWN):
            read(one_of_each()[kind])


@pytest.mark.parametrize("kind", sorted(NOT_PLANNED))
def test_forecasts_refuse_what_no_plan_has(kind: str) -> None:
    stage = one_of_each()[kind]
    with pytest.raises(TypeError, match=UNKNOWN):
        operations_of(stage, plan_of_all_kinds(), lambda encoder: 1e6)
    with pytest.raises(TypeError, match=UNKNOWN):
        _written(stage)
    with pytest.raises(TypeError, match=UNKNOWN):
        stage.num_sentences(plan_of_all_kinds().rows)


def test_precision_is_that_of_every_kind_that_has_one() -> None:
    of_kind = {kind: stage.precision_used for kind, stage in one_of_each().items()}
    assert {kind for kind, precision in of_kind.items() if precision} == {"train", "rung", "bank", "scores", "encoded"}


def test_the_training_of_a_rung_is_what_it_is_a_part_of() -> None:
    train, rung = one_of_each()["train"], one_of_each()["rung"]
    assert isinstance(train, Train) and isinstance(rung, Rung)
    assert rung.whole is rung.of is train.whole is train


def test_who_builds_a_kind_together_has_a_body_for_it() -> None:
    assert {kind for kind in STAGES.values() if kind.built_by == "pool"} == set(get_args(Sharded))
    assert {kind for kind in STAGES.values() if kind.built_by == "group"} == {Train, Rung}


def test_a_full_gpu_is_reported_with_what_was_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**33))
    found: dict[str, str] = {}
    for kind, stage in one_of_each().items():
        with pytest.raises((ResourceError, TypeError)) as raised, explain_full_gpu(stage, _context()):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        found[kind] = str(raised.value)
    assert {kind for kind, words in found.items() if UNKNOWN in words} == {"overlap", "tokens"}
    assert "sentences" in found["corpus"] and "tagger" in found["targets"] and "tokens_per_batch" in found["encoded"]
    assert "micro_batch" in found["train"] and "micro_batch" in found["rung"]
