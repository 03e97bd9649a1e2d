"""Where one process computes and in which precision; a worker's memory against measured peaks; a full GPU."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import ResourceError
from sentdist.objectives.info_nce import InfoNCE
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderSpec, Training
from sentdist.recipe.stages import Bank, Train
from sentdist.stages.context import Context
from sentdist.stages.fit import (
    CUDA_BYTES,
    NCCL_BYTES,
    PLAIN,
    EncoderSize,
    check_precisions,
    device_of,
    encoder_size,
    explain_full_gpu,
    gpu_bytes,
    on_this_machine,
    worker_bytes,
)
from sentdist.stages.resolve import encoder_configuration
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES, shipped_plan


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:512")  # chosen, so that these processes leave it


@pytest.mark.parametrize(
    ("asked", "num_gpus", "device", "said"),
    [
        ({}, 8, "cuda", "on Model T; idle: 7 other GPUs (one process uses one; a Ray cluster uses all)"),
        ({"device": "cpu"}, 2, "cpu", "on the CPU, as runtime.device or runtime.gpus_per_worker asks"),
        ({"gpus_per_worker": 4}, 1, "cuda", "on Model T"),
        ({"gpus_per_worker": 1}, 0, "cpu", "on the CPU: torch can use no GPU here"),
    ],
)
def test_a_process_takes_a_gpu_where_there_is_one(
    asked: dict[str, Any], num_gpus: int, device: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: "Model T")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    runtime, line = on_this_machine(Runtime.model_validate(asked))
    assert device_of(runtime).type == device and line.startswith(said)
    if num_gpus == 0:
        with pytest.raises(ResourceError, match=r"runtime\.device=cuda: found no GPU"):
            on_this_machine(Runtime(device="cuda"))
    assert runtime.gpus_per_worker == (device == "cuda"), "all of it: an error for a full one would name a part that nothing bounds"


def test_a_precision_is_refused_where_nothing_computes_in_it() -> None:
    plain = shipped_plan(RECIPES / "demo.yaml").stages
    for precision, gpus, old_gpu, said in (
        ("tf32", 0.0, None, "on CPUs"), ("tf32", 1.0, "T4", "T4"), ("bf16", 1.0, "T4", "T4"), ("bf16", 0.0, "T4", None), ("tf32", 1.0, None, None),
    ):  # fmt: skip
        stages = shipped_plan(RECIPES / "demo.yaml", f"training.precision={precision}").stages
        with pytest.raises(ResourceError, match=f"(?s)precision={precision}.*{said}") if said else nullcontext():
            check_precisions(stages, Runtime().with_gpus(gpus), old_gpu=old_gpu)
        check_precisions(plain, Runtime().with_gpus(gpus), old_gpu=old_gpu)


GIB = 2**30
BERT_BASE = encoder_size({})
MINILM = encoder_size(encoder_configuration(EncoderSpec(checkpoint="minilm-l6", revision="1"), {}))


def _stage(*, rows: int = 64, **training: Any) -> Train:
    corpus = RowsCorpus(source="nli/triplets", source_revision="r", columns=("sent0", "sent1", "hard_neg"))
    encoder, found = EncoderSpec(checkpoint="e", revision="1"), Training.model_validate({"batch_size": rows, "max_length": 128} | training)
    return Train.model_validate({"encoder": encoder, "corpus": corpus, "objective": InfoNCE(), "training": found, "seed": 0})


def test_the_size_of_an_encoder_is_read_from_its_configuration(tiny_encoder_dir: Path) -> None:
    assert MINILM.num_parameters == pytest.approx(22.7e6, rel=0.01)
    assert BERT_BASE.num_parameters == pytest.approx(109e6, rel=0.01)
    folder = EncoderSpec(checkpoint="tiny", revision="sha256:1")
    assert encoder_size(encoder_configuration(folder, {"sha256:1": str(tiny_encoder_dir)})).width == 32
    assert encoder_size(encoder_configuration(EncoderSpec(checkpoint="owner/name", revision="c"), {})) == BERT_BASE


def test_estimates_exceed_what_was_measured_by_less_than_a_factor_of_two() -> None:
    for rows, precision, gib in ((64, "fp32", 2.59), (64, "bf16", 2.38), (512, "fp32", 6.42)):  # infra/benchmarks/memory.md
        assert 0.8 * gib < worker_bytes(_stage(rows=rows, precision=precision), MINILM, PLAIN) / GIB < 2 * gib, (rows, precision)
    for rows, precision, gib in ((512, "bf16", 3.30), (4096, "tf32", 37.73)):  # infra/benchmarks/gpu.md, of an H100
        assert gib < gpu_bytes(_stage(rows=rows, precision=precision), MINILM, Runtime(gpus_per_worker=1)) / GIB < 1.7 * gib


def test_smaller_batches_recomputed_layers_and_frozen_encoders_take_less() -> None:
    stage, whole = _stage(rows=512), Runtime(gpus_per_worker=1)
    few, recomputed = (whole.model_copy(update=change) for change in ({"micro_batch": 192}, {"recompute_layers": True}))
    for found in (gpu_bytes(stage, MINILM, one) for one in (few, recomputed)):
        assert GIB < found < gpu_bytes(stage, MINILM, whole) / 2
    saved = worker_bytes(_stage(), MINILM, PLAIN) - worker_bytes(_stage(freeze_encoder=True), MINILM, PLAIN)
    assert saved > 12 * MINILM.num_parameters
    longer = gpu_bytes(_stage(max_length=512), replace(MINILM, adds_distances=True), whole, tokens=300)
    assert longer > gpu_bytes(_stage(max_length=512), MINILM, whole, tokens=300), "attention's weights stay in memory"


@pytest.mark.parametrize(
    ("runtime", "of_each"),  # bytes a parameter
    [({}, 16), ({"zero_stage": 1}, 24), ({"zero_stage": 1, "workers": 2}, 16.3), ({"zero_stage": 3, "workers": 4}, 7.5)],
)
def test_the_state_of_each_zero_stage_is_counted(runtime: dict[str, Any], of_each: float) -> None:
    """BERT-large, one sentence at a time, so that activations are small; in bf16 a copy to compute with adds two bytes."""
    large = EncoderSize(num_parameters=335_000_000, num_layers=24, width=1024, num_heads=16)
    given = Runtime.model_validate({"micro_batch": 1, "gpus_per_worker": 1} | runtime)
    group = NCCL_BYTES if given.most_workers > 1 else 0.0
    for precision, copy in (("fp32", 0), ("bf16", 2)):
        found = gpu_bytes(_stage(precision=precision), large, given) - CUDA_BYTES - group
        assert found / large.num_parameters == pytest.approx(of_each + copy, rel=0.03)


@pytest.mark.parametrize(
    ("rows", "runtime", "said"),
    [
        (4096, {}, ["8.0 GiB, 1.0 GiB free, full with 12,288 sentences", "runtime.micro_batch=6144 or runtime.recompute_layers=true"]),
        (4096, {"gpus_per_worker": 0.25}, ["0.25 of a GPU's 8.0 GiB full"]),
        (4096, {"micro_batch": 64, "recompute_layers": True}, ["full with 64 sentences", "Set runtime.micro_batch=32 or"]),
        (4096, {"micro_batch": 1, "recompute_layers": True}, ["full with 1 sentence at", "lower training.max_length"]),
    ],
)
def test_a_full_gpu_is_explained_with_the_field_to_change(
    rows: int, runtime: dict[str, Any], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB, 8 * GIB))
    context = Context(store=ArtifactStore("/nowhere"), runtime=Runtime.model_validate({"gpus_per_worker": 1} | runtime))
    bank = Bank(encoder=_stage(), corpus=_stage().corpus)
    for stage, sentences in ((_stage(rows=rows), said), (bank, ["Set runtime.tokens_per_batch=16384"])):
        with pytest.raises(ResourceError) as raised, explain_full_gpu(stage, context):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        assert all(one in str(raised.value) for one in sentences), raised.value
