"""The estimate of a worker's memory against peaks that were measured, and what a full GPU is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import ResourceError
from sentdist.objectives.info_nce import InfoNCE
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderSpec, Training
from sentdist.recipe.stages import Bank, Train
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import explain_full_gpu
from sentdist.stages.planning.resolve import encoder_configuration
from sentdist.stages.planning.worker_memory import (
    ATTENTION_BYTES,
    BERT_BASE,
    CUDA_BYTES,
    DIFFERENTIATED_BYTES,
    NCCL_BYTES,
    PLAIN,
    SPREAD,
    EncoderSize,
    embedding_widths,
    encoder_size,
    fitting_micro_batch,
    gpu_bytes,
    mean_square,
    planned_bank_bytes,
    worker_bytes,
)
from sentdist.store.store import ArtifactStore
from tests.support.tiny_encoders import WIDTH, released_t5

GIB = 2**30
MINILM = encoder_size(encoder_configuration(EncoderSpec(checkpoint="minilm-l6", revision="1"), {}))


def _stage(*, rows: int = 64, precision: str = "fp32", max_length: int = 128) -> Train:
    corpus = RowsCorpus(source="nli/triplets", source_revision="r", columns=("sent0", "sent1", "hard_neg"))
    training = Training.model_validate({"batch_size": rows, "precision": precision, "max_length": max_length})
    encoder = EncoderSpec(checkpoint="e", revision="1")
    return Train.model_validate({"encoder": encoder, "corpus": corpus, "objective": InfoNCE(), "training": training, "seed": 0})


@pytest.mark.parametrize(("pooling", "width"), [("mean", WIDTH), ("mean_dense", 3 * WIDTH)])
def test_a_bank_is_as_wide_as_what_its_encoder_gives(pooling: str, width: int, tmp_path: Path) -> None:
    """Behind the pooling of a Sentence-T5 a dense layer has a width of its own."""
    folder = released_t5(tmp_path / "t5", dense_width=3 * WIDTH)
    encoder = EncoderSpec(checkpoint="t5", revision="r", pooling=pooling)
    train = _stage().model_copy(update={"encoder": encoder})
    bank = Bank(encoder=train, corpus=train.corpus, dtype="float32")
    training = Mock(banks=(bank,))
    found = planned_bank_bytes(training, {train.corpus.key: 10}, embedding_widths([training], Mock(folders={"r": str(folder)})))
    assert found == 10 * 3 * width * 4


def test_a_frozen_encoder_has_weights_and_one_layer_at_a_time() -> None:
    stage = _stage(precision="bf16")
    frozen = stage.model_copy(update={"training": stage.training.model_copy(update={"freeze_encoder": True})})
    for precision, rows, gib in (("bf16", 512, 3.30), ("tf32", 4096, 37.73)):  # infra/benchmarks/gpu.md, of an H100
        assert gib < gpu_bytes(_stage(precision=precision, rows=rows), MINILM, Runtime()) / GIB < 1.7 * gib
    whole, less = (
        gpu_bytes(one, MINILM, PLAIN) - gpu_bytes(one, MINILM, PLAIN.model_copy(update={"micro_batch": 1})) for one in (stage, frozen)
    )
    assert whole == pytest.approx(6 * less), "MiniLM has six layers"
    saved = worker_bytes(stage, MINILM, PLAIN) - worker_bytes(frozen, MINILM, PLAIN)
    assert saved > 12 * MINILM.num_parameters


def test_the_size_of_an_encoder_is_read_from_its_configuration(tiny_encoder_dir: Path) -> None:
    assert MINILM.num_parameters == pytest.approx(22.7e6, rel=0.01)
    assert BERT_BASE.num_parameters == pytest.approx(109e6, rel=0.01)
    assert encoder_size({"hidden_size": 384}).inner_width == 4 * 384, "as every BERT has it"
    folder = EncoderSpec(checkpoint="tiny", revision="sha256:1")
    assert encoder_size(encoder_configuration(folder, {"sha256:1": str(tiny_encoder_dir)})).width == 32
    assert encoder_size(encoder_configuration(EncoderSpec(checkpoint="owner/name", revision="c"), {})) == BERT_BASE


def test_on_a_gpu_the_same_formula_says_what_lies_there_and_how_much_fits() -> None:
    stage, whole = _stage(rows=512), Runtime(gpus_per_worker=1)
    few = whole.model_copy(update={"micro_batch": 192})
    assert GIB < gpu_bytes(stage, MINILM, few) < gpu_bytes(stage, MINILM, whole)
    assert gpu_bytes(stage, MINILM, Runtime(workers=8)) == gpu_bytes(stage, MINILM, few) + NCCL_BYTES
    assert fitting_micro_batch(stage, MINILM, whole, num_bytes=gpu_bytes(stage, MINILM, few)) == 192
    assert fitting_micro_batch(stage, MINILM, whole, num_bytes=0) == 1
    recomputed = whole.model_copy(update={"recompute_layers": True})
    assert GIB < gpu_bytes(stage, MINILM, recomputed) < gpu_bytes(stage, MINILM, whole) / 2
    most = gpu_bytes(stage, MINILM, whole)
    assert fitting_micro_batch(stage, MINILM, recomputed, num_bytes=most) > 3 * fitting_micro_batch(stage, MINILM, whole, num_bytes=most)


# Of BERT-large, 335 million parameters, on 80 GiB: bytes a parameter by hand, from what engine_memory.py says was counted.
@pytest.mark.parametrize(
    ("runtime", "of_each"),
    [
        ({}, 16),
        ({"zero_stage": 1}, 24),
        ({"zero_stage": 1, "workers": 2}, 16.6),
        ({"zero_stage": 2, "workers": 64}, 6.0),
        ({"zero_stage": 3, "workers": 4}, 7.25),
    ],
)
def test_what_an_engine_keeps_beside_plain_torch_is_counted(runtime: dict[str, Any], of_each: float) -> None:
    """One sentence at a time, so that activations are nothing beside it; in bf16 two bytes more, the copy that is computed with."""
    large = EncoderSize(num_tokens=30522, num_positions=512, num_layers=24, width=1024, inner_width=4096, num_heads=16)
    given = Runtime.model_validate({"micro_batch": 1, "gpus_per_worker": 1} | runtime)
    group = NCCL_BYTES if given.most_workers > 1 else 0.0
    for precision, copy in (("fp32", 0), ("bf16", 2)):
        found = gpu_bytes(_stage(precision=precision), large, given) - CUDA_BYTES - group
        assert found / large.num_parameters == pytest.approx(of_each + copy, rel=0.01)


HUNDRED = Runtime(engine="torch", micro_batch=100, gpus_per_worker=1.0)


@pytest.mark.parametrize(("mean", "longest", "shortest"), [(200.0, 512, 128), (200.0, 128, 0)])
def test_the_mean_of_squares_is_that_of_lengths_so_distributed(mean: float, longest: int, shortest: int) -> None:
    drawn = np.random.default_rng(0).lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, 200_000)
    cut = np.minimum(drawn, longest)
    found = mean_square(mean, longest=longest, shortest=shortest)
    assert found == pytest.approx(np.mean(np.where(cut > shortest, cut, 0.0) ** 2), rel=0.02)
    assert mean_square(mean, longest=64, shortest=64) == 0.0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_weights_count_where_distances_are_added_beyond_the_largest_tile(precision: str) -> None:
    size = encoder_size({"model_type": "t5"})
    assert size.adds_distances and not encoder_size({"model_type": "bert"}).adds_distances

    def of_weights(tokens: float, longest: int) -> float:
        stage = _stage(precision=precision, max_length=longest)
        stage_bytes = [gpu_bytes(stage, one, HUNDRED, tokens=tokens) for one in (size, replace(size, adds_distances=False))]
        derivative = ATTENTION_BYTES[precision] * size.num_heads * -(-longest // 64)  # what the kernel takes that the others have
        return (stage_bytes[0] - stage_bytes[1]) / 100 + derivative

    tile = {"fp32": 64, "bf16": 128}[precision]
    number = {"fp32": 4, "bf16": 2}[precision]
    of_each = 2 * number * size.num_layers + DIFFERENTIATED_BYTES[precision]
    assert of_weights(300.0, 512) == pytest.approx(size.num_heads * of_each * mean_square(300.0, longest=512, shortest=tile))
    assert of_weights(300.0, tile) == pytest.approx(0.0, abs=1.0)


@pytest.fixture
def gpu_of_8_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB, 8 * GIB))


def context(**runtime: Any) -> Context:
    return Context(store=ArtifactStore("/nowhere"), runtime=Runtime.model_validate(runtime))


def shown(stage: Any, where: Context) -> str:
    with pytest.raises(ResourceError) as raised, explain_full_gpu(stage, where):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return str(raised.value)


@pytest.mark.usefixtures("gpu_of_8_gib")
@pytest.mark.parametrize(
    ("rows", "runtime", "said"),
    [
        (4096, {}, ["8.0 GiB, 1.0 GiB free, full with 12,288 sentences", "Set runtime.micro_batch=319, ", "training.batch_size=106"]),
        (4096, {"gpus_per_worker": 0.25}, ["0.25 of a GPU's 8.0 GiB full"]),
        (4096, {"micro_batch": 64}, ["full with 64 sentences", "runtime.micro_batch=32,"]),  # the estimate had it fit
        (4096, {"micro_batch": 1, "recompute_layers": True}, ["full with 1 sentence at", "Lower training.max_length"]),
        (512, {}, ["Set runtime.recompute_layers=true, or runtime.micro_batch=319, which is slower"]),
        (512, {"recompute_layers": True}, ["Set runtime.micro_batch=768, "]),  # more fits then
    ],
)
def test_what_makes_a_training_fit_is_named(rows: int, runtime: dict[str, Any], said: list[str]) -> None:
    found = shown(_stage(rows=rows), context(**{"gpus_per_worker": 1} | runtime))
    assert all(one in found for one in said), found
    embed = Bank(encoder=_stage(), corpus=_stage().corpus)
    assert "Set runtime.tokens_per_batch=16384" in shown(embed, context(gpus_per_worker=1))
