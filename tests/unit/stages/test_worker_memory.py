"""The estimate of a worker's memory against peaks that were measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoConfig

from sentdist.execution.capacity import capacity
from sentdist.execution.cluster.nodes import Node
from sentdist.families import DECODERS, FLAT_FAMILIES, READ_WITHOUT_DECODER
from sentdist.learning import precision as precision_module
from sentdist.learning.bank_shape import BUCKET_BYTES, MOST_LIVE
from sentdist.learning.encoder.pretrained import auto_class
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import collate
from sentdist.learning.precision import autocast
from sentdist.objectives.info_nce import InfoNCE
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import EncoderSpec, Training
from sentdist.plan.stages import Bank, Train
from sentdist.stages.planning.resolve import encoder_configuration
from sentdist.stages.planning.worker_memory import (
    BERT_BASE,
    BYTES_PER_UNIT_ON_GPU,
    CUDA_BYTES,
    GATED_SHARE,
    NCCL_BYTES,
    PLAIN,
    EncoderSize,
    bank_lies_on_gpu,
    embedding_widths,
    encoder_size,
    fitting_micro_batch,
    gpu_bytes,
    planned_bank_bytes,
    state_bytes,
    step_bytes,
    worker_bytes,
)
from tests.support.pretend_gpu import pretended_gpu
from tests.support.tiny_encoders import WIDTH, released_t5, tiny_encoder

GIB = 2.0**30
MINILM = encoder_size(encoder_configuration(EncoderSpec(checkpoint="minilm-l6", revision="1"), {}))


def _bytes(*, size: object = MINILM, rows: int = 64, precision: str = "fp32", max_length: int = 128, **runtime: object) -> float:
    stage = _stage(rows=rows, precision=precision, max_length=max_length)
    return worker_bytes(stage, size, Runtime.model_validate(runtime))  # type: ignore[arg-type]


def _stage(*, rows: int = 64, precision: str = "fp32", max_length: int = 128) -> Train:
    corpus = RowsCorpus(source="nli/triplets", source_revision="r", columns=("sent0", "sent1", "hard_neg"))
    training = Training.model_validate({"batch_size": rows, "precision": precision, "max_length": max_length})
    encoder = EncoderSpec(checkpoint="e", revision="1")
    return Train.model_validate({"encoder": encoder, "corpus": corpus, "objective": InfoNCE(), "training": training, "seed": 0})


@pytest.mark.parametrize(
    ("asked", "measured_gib"),  # infra/benchmarks/memory.md and speed.md; the peak of micro-batches as of the multiples of 64 tokens
    [
        ({}, 2.59),
        ({"precision": "bf16"}, 2.38),
        ({"rows": 512}, 6.42),
        ({"rows": 512, "micro_batch": 192}, 2.4),
    ],
)
def test_the_estimate_holds_what_was_measured_and_not_half_as_much_again(asked: dict[str, object], measured_gib: float) -> None:
    assert measured_gib <= _bytes(**asked) / GIB < 1.5 * measured_gib  # type: ignore[arg-type]


def _kept(folder: Path, *, layers: int, sentences: int, precision: str, dropout: float, family: str = "bert") -> int:
    """Bytes that autograd keeps of an encoder of MiniLM's shape on a GPU that is pretended, for sentences of 20 tokens."""
    shape = {"hidden_size": MINILM.width, "intermediate_size": MINILM.inner_width, "num_attention_heads": MINILM.num_heads}
    shape |= {"d_kv": MINILM.width // MINILM.num_heads} if family in READ_WITHOUT_DECODER else {}
    shape |= {"num_key_value_heads": MINILM.num_heads, "head_dim": MINILM.width // MINILM.num_heads} if family in DECODERS else {}
    made = tiny_encoder(folder / f"{layers}-{sentences}", family, num_hidden_layers=layers, **shape)
    encoder = SentenceEncoder.load(
        made, attention_dropout=0.0, hidden_dropout=dropout if family in ("bert", *READ_WITHOUT_DECODER) else None
    ).train()
    tokens = collate([np.full(20, 5)] * sentences)
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = getattr(tensor, "host", tensor).untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with_bfloat16 = patch.object(precision_module, "has_bfloat16", lambda: True)  # torch casts for a GPU only where it has one
    with pretended_gpu() as device, with_bfloat16:
        encoder.to(device)
        with saved_tensors_hooks(keep, lambda tensor: tensor), autocast(precision, torch.device("cpu")):
            out = encoder(tokens.to(device))
    assert out.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.in_turns
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_what_a_gpu_keeps_of_a_layer_is_what_was_counted(precision: str, dropout: float, tmp_path: Path) -> None:
    """A third more at most: workers that are thought larger than they are share no GPU, and get smaller micro-batches than they could."""
    kept = partial(_kept, tmp_path, precision=precision, dropout=dropout)
    of_a_layer = [kept(layers=2, sentences=sentences) - kept(layers=1, sentences=sentences) for sentences in (2, 12)]
    counted = (of_a_layer[1] - of_a_layer[0]) / (10 * 20) / MINILM.width  # without what a layer's weights take
    assert counted < BYTES_PER_UNIT_ON_GPU[precision] < 1.34 * counted


@pytest.mark.in_turns
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["modernbert", "nomic_bert", "gte", "eurobert", "qwen3", "phi3"])
def test_what_a_gpu_keeps_of_a_gated_layer_is_no_more_than_was_thought(family: str, precision: str, tmp_path: Path) -> None:
    kept = partial(_kept, tmp_path, precision=precision, dropout=0.0, family=family)
    of_a_layer = [kept(layers=2, sentences=sentences) - kept(layers=1, sentences=sentences) for sentences in (2, 12)]
    counted = (of_a_layer[1] - of_a_layer[0]) / (10 * 20) / MINILM.width
    assert 0.6 * BYTES_PER_UNIT_ON_GPU[precision] * GATED_SHARE < counted < BYTES_PER_UNIT_ON_GPU[precision] * GATED_SHARE


@pytest.mark.in_turns
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", READ_WITHOUT_DECODER)
def test_what_a_gpu_keeps_of_a_layer_that_drops_within_is_what_was_thought(family: str, precision: str, tmp_path: Path) -> None:
    kept = partial(_kept, tmp_path, precision=precision, dropout=0.1, family=family)
    of_a_layer = [kept(layers=2, sentences=sentences) - kept(layers=1, sentences=sentences) for sentences in (2, 12)]
    counted = (of_a_layer[1] - of_a_layer[0]) / (10 * 20) / MINILM.width
    thought = BYTES_PER_UNIT_ON_GPU[precision] * encoder_size({"model_type": family}).kept_share
    assert counted < thought < 1.34 * counted


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        *((family, {"head_dim": 128} if family == "ministral" else {}) for family in sorted({*FLAT_FAMILIES} - {"albert", "electra"})),
        *((family, {}) for family in READ_WITHOUT_DECODER),
        ("t5", {"feed_forward_proj": "gated-gelu", "num_heads": 6, "d_ff": 1024}),
        ("t5", {"d_model": 1024, "d_kv": 128, "num_heads": 32, "d_ff": 16384, "num_layers": 24}),
    ],
)
def test_the_parameters_of_every_flat_family_are_counted(family: str, settings: dict[str, object]) -> None:
    """Of its usual size, and of encoders of which the decoder is not read. ALBERT shares layers, and it and ELECTRA have narrow word
    embeddings: they are taken for larger."""
    config = AutoConfig.for_model(family, **settings)
    with torch.device("meta"):
        model = auto_class(config).from_config(config)
    counted = sum(weight.numel() for name, weight in model.named_parameters() if not name.startswith("pooler."))
    assert encoder_size(config.to_dict()).num_parameters == pytest.approx(counted, rel=0.005)


@pytest.mark.parametrize(
    ("precision", "rows", "gib"), [("bf16", 512, 3.30), ("bf16", 4096, 23.37), ("tf32", 512, 4.93), ("tf32", 4096, 37.73)]
)
def test_what_an_h100_needed_is_less_than_what_was_thought_and_not_much(precision: str, rows: int, gib: float) -> None:
    """infra/benchmarks/gpu.md (tf32 at 4,096: by torch's attention), peak in tensors; sentences of 18.8 tokens, taken for 24."""
    stage = _stage(precision=precision, rows=rows)
    assert gib < gpu_bytes(stage, MINILM, Runtime()) / 2**30 < 1.7 * gib


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


def test_what_is_kept_of_sentences_grows_as_they_do_until_they_are_cut() -> None:
    def of_sentences(tokens: float, **training: int) -> list[float]:
        stage = _stage(**training)
        return [
            asked(stage, MINILM, PLAIN, tokens=tokens) - asked(stage, MINILM, PLAIN.model_copy(update={"micro_batch": 1}), tokens=tokens)
            for asked in (gpu_bytes, worker_bytes)
        ]

    short, long, longest = (of_sentences(tokens) for tokens in (24.0, 96.0, 1e6))
    assert 4 < long[1] / short[1] < 5, "of a CPU weights of attention grow with the square"
    assert 3 < long[0] / short[0] < 4, "of a GPU what attention takes is that of the longest"
    assert longest == pytest.approx(of_sentences(1e4)), "of max_length"
    assert of_sentences(384.0, max_length=512)[1] > 16 * short[1]


def test_attention_in_float32_takes_more_the_longer_a_sentence_may_be() -> None:
    """Of a GPU: 16 KiB for each sentence, head and 64 tokens while a layer is differentiated, which at 512 tokens is half of it all."""
    short, long = (gpu_bytes(_stage(max_length=length), MINILM, Runtime()) for length in (128, 512))
    assert long - short == 192 * 12 * 6 * 16 * 1024
    assert gpu_bytes(_stage(precision="bf16", max_length=512), MINILM, Runtime()) < long


def test_a_frozen_encoder_has_weights_and_one_layer_at_a_time() -> None:
    stage = _stage(precision="bf16")
    frozen = stage.model_copy(update={"training": stage.training.model_copy(update={"freeze_encoder": True})})
    whole, less = (
        gpu_bytes(one, MINILM, PLAIN) - gpu_bytes(one, MINILM, PLAIN.model_copy(update={"micro_batch": 1})) for one in (stage, frozen)
    )
    assert whole == pytest.approx(6 * less), "MiniLM has six layers"
    saved = worker_bytes(stage, MINILM, PLAIN) - worker_bytes(frozen, MINILM, PLAIN)
    assert saved > 12 * MINILM.num_parameters


def test_layers_that_are_computed_again_leave_what_goes_into_each_and_one_whole() -> None:
    stage = _stage(precision="bf16")
    whole, less = (
        gpu_bytes(stage, MINILM, PLAIN.model_copy(update={"recompute_layers": again}))
        - gpu_bytes(stage, MINILM, PLAIN.model_copy(update={"recompute_layers": again, "micro_batch": 1}))
        for again in (False, True)
    )
    assert less == pytest.approx(whole * (50 + 6 * 4) / (6 * 50)), "50 bytes a unit of each of six layers, or of one beside six float32"


def test_the_size_of_an_encoder_is_read_from_its_configuration(tiny_encoder_dir: Path) -> None:
    assert MINILM.num_parameters == pytest.approx(22.7e6, rel=0.01)
    assert BERT_BASE.num_parameters == pytest.approx(109e6, rel=0.01)
    assert encoder_size({"hidden_size": 384}).inner_width == 4 * 384, "as every BERT has it"
    folder = EncoderSpec(checkpoint="tiny", revision="sha256:1")
    assert encoder_size(encoder_configuration(folder, {"sha256:1": str(tiny_encoder_dir)})).width == 32
    assert encoder_size(encoder_configuration(EncoderSpec(checkpoint="owner/name", revision="c"), {})) == BERT_BASE


def test_more_work_takes_more_and_is_shared_by_workers() -> None:
    assert _bytes(size=BERT_BASE) > 2 * _bytes()
    assert _bytes(rows=512, workers=8) == _bytes(rows=64)
    assert _bytes(rows=512, max_length=8) < _bytes(rows=512)
    assert _bytes(rows=512, gpus_per_worker=1) == _bytes(rows=64, gpus_per_worker=1)  # activations are on the GPU


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
        ({"engine": "torch"}, 16),
        ({"zero_stage": 1}, 24),
        ({"zero_stage": 2}, 24),
        ({"zero_stage": 1, "workers": 2}, 16.6),
        ({"zero_stage": 2, "workers": 4}, 10.3),
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


def test_pieces_in_which_things_travel_have_an_end() -> None:
    """Of 7 billion parameters on 8 workers ZeRO 3 holds some 50 million at a time beside its own eighth, or the largest matrix."""
    shared, largest = Runtime(zero_stage=3, workers=8), 5e8
    assert state_bytes(7e9, shared, largest=1e6) == pytest.approx(6 * 4 * 7e9 / 8 + BUCKET_BYTES)
    assert state_bytes(1e9, shared, largest=largest) == pytest.approx(5 * 4e9 / 8 + 2 * 4 * (MOST_LIVE + largest) + 2 * BUCKET_BYTES)
    several = Runtime(zero_stage=2, workers=8)
    assert state_bytes(7e9, several, largest=1e6) == pytest.approx(7e9 * (4 + 20 / 8) + 3.5 * BUCKET_BYTES * 7 / 8)
    assert state_bytes(7e9, several, largest=largest) == pytest.approx(7e9 * (4 + 20 / 8) + 3.5 * (4 * largest + BUCKET_BYTES) * 7 / 8)
    several = Runtime(workers=8)
    assert step_bytes(7e9, several, largest=1e6) == BUCKET_BYTES and step_bytes(1e6, several, largest=6e5) == 4e6
    assert step_bytes(7e9, several, largest=5e8) == pytest.approx(0.5 * 4 * 5e8)  # half of the words' embeddings
    assert step_bytes(7e9, Runtime(), largest=5e8) == 0.0


def test_a_worker_on_cpus_keeps_the_same_and_one_with_a_gpu_keeps_it_there() -> None:
    stage = _stage()
    plain, shared, on_gpu = (
        worker_bytes(stage, BERT_BASE, Runtime.model_validate(one))
        for one in ({}, {"zero_stage": 1}, {"zero_stage": 1, "gpus_per_worker": 1})
    )
    assert shared - plain == pytest.approx(8 * BERT_BASE.num_parameters + BUCKET_BYTES) and on_gpu < plain


@pytest.mark.parametrize(
    ("bank_gib", "gpu_gib", "gpus", "is_there"),
    [
        (9.9, 80, 1.0, True),  # an eighth of 80
        (10.1, 80, 1.0, False),
        (9.9, 80, 4.0, True),  # a worker computes on one of its GPUs
        (4.9, 80, 0.5, True),  # the other half is another worker's
        (5.1, 80, 0.5, False),
        (0.1, 2, 1.0, True),  # 1.87 beside it
        (0.2, 2, 1.0, False),  # less than an eighth, and too much beside the rest
        (0.0, 80, 1.0, False),
        (1.0, float("inf"), 1.0, True),  # of a kind that nobody knows
        (1.0, float("inf"), 0.0, False),
    ],
)
def test_a_bank_lies_on_the_gpu_where_a_share_of_it_is_enough_and_the_rest_fits(
    bank_gib: float, gpu_gib: float, gpus: float, is_there: bool
) -> None:
    """What is counted and what is done is one rule; and a worker is never thought larger than its share for the sake of a bank."""
    stage, runtime = _stage(precision="bf16"), Runtime(gpus_per_worker=gpus)
    beside, given = gpu_bytes(stage, MINILM, runtime), {"bank_bytes": bank_gib * GIB, "gpu_memory": gpu_gib * GIB}
    assert bank_lies_on_gpu(stage, MINILM, runtime, **given) == is_there
    counted = gpu_bytes(stage, MINILM, runtime, **given)
    assert counted == beside + (bank_gib * GIB if is_there else 0.0)
    assert not is_there or counted <= gpu_gib * min(1.0, gpus) * GIB


def test_the_demo_runs_on_a_small_machine() -> None:
    """Ray offers 70 % or so of 4 GiB."""
    asked = _bytes(max_length=32)
    assert asked < 2.8 * GIB
    assert capacity(Runtime(), (Node(cpus=2, memory_bytes=2.8 * GIB),), worker_bytes=asked).trainings_at_once == 1
