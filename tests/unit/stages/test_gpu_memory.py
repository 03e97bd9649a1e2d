"""A GPU whose memory is full is reported in one sentence, with the field to change and a number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.plan.runtime import Runtime
from sentdist.plan.stage import Json
from sentdist.plan.stages import Bank, Tokens
from sentdist.stages import gpu_memory
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import explain_full_gpu
from sentdist.stages.planning.worker_memory import EncoderSize
from sentdist.store.store import ArtifactStore
from tests.unit.stages.test_worker_memory import MINILM, _stage

GIB = 2**30


@pytest.fixture
def gpu_of_8_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB, 8 * GIB))


def context(store: ArtifactStore | None = None, **runtime: Any) -> Context:
    return Context(store=store or ArtifactStore("/nowhere"), runtime=Runtime.model_validate(runtime))


def shown(stage: Any, where: Context) -> str:
    with pytest.raises(ResourceError) as raised, explain_full_gpu(stage, where):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return str(raised.value)


@pytest.mark.usefixtures("gpu_of_8_gib")
@pytest.mark.parametrize(
    ("rows", "runtime", "said"),
    [
        (
            4096,
            {},
            ["a GPU of 8.0 GiB, 1.0 GiB free, full with 12,288 sentences", "Set runtime.micro_batch=319, ", "training.batch_size=106"],
        ),
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


@pytest.mark.parametrize(
    ("runtime", "said"),
    [
        ({}, "runtime.zero_stage=3 on 4 workers"),
        ({"engine": "torch", "workers": 8}, "runtime.engine=deepspeed, runtime.zero_stage=3 on 8 workers"),
        ({"zero_stage": 3, "workers": 4}, None),
    ],
)
def test_a_large_encoder_is_shared_out_where_that_keeps_less(runtime: dict[str, Any], said: str | None) -> None:
    large = EncoderSize(num_tokens=30522, num_positions=512, num_layers=24, width=1024, inner_width=4096, num_heads=16)
    given = Runtime.model_validate(runtime)
    assert gpu_memory._zero_hint(large, given) == ("" if said is None else f", or set {said}")
    assert gpu_memory._zero_hint(MINILM, Runtime()) == "", "half of it are the embeddings of words, which travel whole"


@pytest.mark.usefixtures("gpu_of_8_gib")
def test_sentences_are_as_long_as_the_tables_of_tokens_say(tmp_path: Path) -> None:
    stage, store = _stage(rows=4096), ArtifactStore(tmp_path)
    other = stage.corpus.model_copy(update={"source": "nli/snli"})

    def asked() -> str:
        return shown(stage, context(store, gpus_per_worker=1))

    def keep_table(corpus: Any, longest: int, tokens: int) -> None:
        with store.staged() as folder:
            results: dict[str, Json] = {"num_tokens": 10 * tokens, "num_sentences": 10}
            table = Tokens(corpus=corpus, tokenizer="d", max_length=longest)
            store.commit(table, folder, seconds=1.0, runtime={}, environment={}, results=results)

    assumed = asked()
    keep_table(other, 512, 500)
    assert asked() == assumed
    keep_table(stage.corpus, 32, 24)
    assert asked() == assumed, "as many as are assumed"
    keep_table(stage.corpus, 128, 96)
    fewer = [int(re.findall(r"runtime.micro_batch=(\d+)", one)[0]) for one in (assumed, asked())]
    assert 0.2 < fewer[1] / fewer[0] < 0.4


@pytest.mark.usefixtures("gpu_of_8_gib")
def test_memory_that_is_taken_without_torchs_allocator_is_reported_alike() -> None:
    for error, expected in (
        (torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), ResourceError),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), ResourceError),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), RuntimeError),
    ):
        with pytest.raises(expected) as raised, explain_full_gpu(_stage(), context(gpus_per_worker=1)):
            raise error
        assert (raised.value is error) == (expected is RuntimeError)
