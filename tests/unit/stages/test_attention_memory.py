"""The estimate of what weights of attention take, against what autograd keeps of them and against lengths that were drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from sentdist.families import FAMILIES
from sentdist.learning.encoder.grouped_attention import grouped_attention, length_groups
from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import EncoderSpec, Regularizers
from sentdist.plan.stages import Train
from sentdist.stages.planning.worker_memory import (
    ATTENTION_BYTES,
    DIFFERENTIATED_BYTES,
    SPREAD,
    WeightedLayers,
    encoder_size,
    gpu_bytes,
    mean_square,
    worker_bytes,
)

ONE, HUNDRED = Runtime(engine="torch", micro_batch=1), Runtime(engine="torch", micro_batch=100, gpus_per_worker=1.0)
NUM_HEADS, LENGTH = 4, 96
FAMILIES_WITH_DISTANCES = [name for name, one in FAMILIES.items() if one.adds_distances]


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16")])
@pytest.mark.parametrize("p", [0.0, 0.1])
def test_grouped_attention_keeps_of_each_weight_what_is_counted(dtype: torch.dtype, precision: str, p: float) -> None:
    """And never makes more of them at a time: what is as large as all weights is counted while the derivative is computed."""
    query = torch.randn(2 * LENGTH, NUM_HEADS, 8, dtype=dtype, requires_grad=True)
    grouped, num_weights = length_groups([LENGTH] * 2, query.device, num_heads=NUM_HEADS), 2 * NUM_HEADS * LENGTH**2
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() == num_weights:
            kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        out = grouped_attention(query, query, query, grouped, scale=1.0, p=p, band=None)
    layers = WeightedLayers(num_heads=NUM_HEADS, num_kept=1, has_dropout=p > 0.0, precision=precision)
    none = WeightedLayers(num_heads=NUM_HEADS, num_kept=0, has_dropout=p > 0.0, precision=precision)
    counted = [one.sentence_bytes(1e6, longest=LENGTH) * 2 for one in (layers, none)]  # all are cut
    assert sum(kept.values()) == pytest.approx(counted[0] - counted[1])
    with torch.profiler.profile(profile_memory=True) as profiled:
        out.sum().backward()
    assert counted[1] == pytest.approx(DIFFERENTIATED_BYTES[precision] * num_weights)
    assert 0.8 * counted[1] < _peak(profiled) < counted[1] + 17 * query.nbytes, "beside it tensors of the size of a query, some in float32"


def _peak(profiled: Any) -> float:
    """The most bytes that lived at a time, of what was allocated while it was looked at."""
    live = most = 0
    for event in sorted(profiled.profiler.kineto_results.events(), key=lambda one: one.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
    return most


@pytest.mark.parametrize(("mean", "longest", "shortest"), [(24.0, 512, 0), (200.0, 512, 128), (200.0, 128, 0), (600.0, 512, 64)])
def test_the_mean_of_squares_is_that_of_lengths_so_distributed(mean: float, longest: int, shortest: int) -> None:
    drawn = np.random.default_rng(0).lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, 200_000)
    cut = np.minimum(drawn, longest)
    found = mean_square(mean, longest=longest, shortest=shortest)
    assert found == pytest.approx(np.mean(np.where(cut > shortest, cut, 0.0) ** 2), rel=0.02)
    assert mean_square(mean, longest=64, shortest=64) == 0.0


def _train(*, longest: int = 512, **training: object) -> Train:
    corpus = RowsCorpus(source="nli/triplets", source_revision="r")
    values = {"batch_size": 64, "max_length": longest} | training
    encoder = EncoderSpec(checkpoint="e", revision="1")
    return Train.model_validate({"encoder": encoder, "corpus": corpus, "objective": InfoNCE(), "training": values, "seed": 0})


@pytest.mark.parametrize("family", FAMILIES_WITH_DISTANCES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_weights_count_where_distances_are_added_beyond_the_largest_tile(family: str, precision: str) -> None:
    size = encoder_size({"model_type": family})
    assert size.adds_distances and not encoder_size({"model_type": "bert"}).adds_distances

    def of_weights(tokens: float, longest: int) -> float:
        stage = _train(precision=precision, longest=longest)
        stage_bytes = [gpu_bytes(stage, one, HUNDRED, tokens=tokens) for one in (size, replace(size, adds_distances=False))]
        derivative = ATTENTION_BYTES[precision] * size.num_heads * -(-longest // 64)  # what the kernel takes that the others have
        return (stage_bytes[0] - stage_bytes[1]) / 100 + derivative

    tile = {"fp32": 64, "bf16": 128}[precision]
    number = {"fp32": 4, "bf16": 2}[precision]
    of_each = 2 * number * size.num_layers + DIFFERENTIATED_BYTES[precision]
    assert of_weights(300.0, 512) == pytest.approx(size.num_heads * of_each * mean_square(300.0, longest=512, shortest=tile))
    assert of_weights(300.0, tile) == pytest.approx(0.0, abs=1.0)


def test_on_cpus_weights_are_taken_to_be_held_for_a_plan_knows_of_no_compiler() -> None:
    size = encoder_size({"model_type": "bert"})
    kept = {
        name: worker_bytes(one, size, runtime, tokens=400.0) - worker_bytes(one, size, runtime, tokens=200.0)
        for name, one, runtime in [
            ("all", _train(), ONE),
            ("again", _train(), ONE.model_copy(update={"recompute_layers": True})),
            ("undropped", _train().model_copy(update={"regularizers": Regularizers(attention_dropout=0.0)}), ONE),
        ]
    }
    squares = mean_square(400.0, longest=512) - mean_square(200.0, longest=512)
    heap = 1.5  # of micro-batches
    assert kept["all"] - kept["undropped"] == pytest.approx(heap * 12 * 12 * 4 * squares)
    linear = heap * 90 * 768 * 200 * 12
    assert kept["all"] == pytest.approx(linear + heap * 12 * squares * (12 + 12 * 8))
    assert kept["again"] < kept["all"] / 5
