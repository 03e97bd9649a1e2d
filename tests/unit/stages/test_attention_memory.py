"""The estimate of what weights of attention take, against what autograd keeps of them and against lengths that were drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.runtime import Runtime
from sentdist.plan.specs import EncoderSpec, Regularizers
from sentdist.plan.stages import Train
from sentdist.stages.planning.attention_memory import DIFFERENTIATED_BYTES, SPREAD, mean_square
from sentdist.stages.planning.worker_memory import ATTENTION_BYTES, encoder_size, gpu_bytes, worker_bytes

ONE, HUNDRED = Runtime(engine="torch", micro_batch=1), Runtime(engine="torch", micro_batch=100, gpus_per_worker=1.0)


@pytest.mark.parametrize(("mean", "longest", "shortest"), [(200.0, 512, 128), (200.0, 128, 0)])
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


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_weights_count_where_distances_are_added_beyond_the_largest_tile(precision: str) -> None:
    size = encoder_size({"model_type": "t5"})
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
