"""A GPU whose memory is full is reported in one sentence, with the field to change and a number."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sentdist.errors import DataError, ResourceError
from sentdist.execution.training import rank
from sentdist.execution.training import worker_group as member
from sentdist.plan.sections import Runtime
from sentdist.plan.stage import Json
from sentdist.plan.stages import Bank, Tokens
from sentdist.stages import gpu_memory
from sentdist.stages.context import Context
from sentdist.stages.gpu_memory import explain_full_gpu
from sentdist.stages.planning.worker_memory import EncoderSize
from sentdist.store.store import ArtifactStore
from sentdist.tracking.tracker import NullRun
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
    ("runtime", "sentences"),
    [
        (
            {"gpus_per_worker": 1},
            [
                "a GPU of 8.0 GiB, 1.0 GiB free, full with 12,288 sentences at a time",
                "Set runtime.micro_batch=319, ",
                "training.batch_size=106",
            ],
        ),
        ({"gpus_per_worker": 0.25}, ["0.25 of a GPU's 8.0 GiB full"]),
        ({"gpus_per_worker": 1, "micro_batch": 64}, ["full with 64 sentences", "runtime.micro_batch=32,"]),  # the estimate had it fit
        ({"gpus_per_worker": 1, "micro_batch": 1}, ["full with 1 sentence at", "Set runtime.recompute_layers=true", "lower training.max"]),
        ({"gpus_per_worker": 1, "micro_batch": 1, "recompute_layers": True}, ["full with 1 sentence at", "Lower training.max_length"]),
    ],
)
def test_of_a_training_what_makes_it_fit_is_named(runtime: dict[str, Any], sentences: list[str]) -> None:
    found = shown(_stage(rows=4096), context(**runtime))
    assert all(sentence in found for sentence in sentences), found


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
def test_a_bank_that_lies_there_leaves_less_for_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "bytes_of_banks", lambda: 2 * GIB)
    found = shown(_stage(rows=4096), context(gpus_per_worker=1))
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB, 6 * GIB))
    assert found.partition("Set ")[2] == shown(_stage(rows=4096), context(gpus_per_worker=1)).partition("Set ")[2] != ""


@pytest.mark.usefixtures("gpu_of_8_gib")
def test_sentences_are_as_long_as_the_tables_of_tokens_say(tmp_path: Path) -> None:
    """Of its own corpus, and of the tokenizer that cut least; a store that cannot be read is no other error than the full GPU."""
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
def test_layers_are_computed_again_rather_than_small_parts_where_that_is_enough() -> None:
    """On an H100 it took a third longer, micro-batches four times as long."""
    found = shown(_stage(rows=512), context(gpus_per_worker=1))
    assert "Set runtime.recompute_layers=true, or runtime.micro_batch=319, which is slower: neither changes a result." in found
    assert "recompute_layers" not in shown(_stage(rows=4096), context(gpus_per_worker=1)), "not enough"
    assert "Set runtime.micro_batch=768, " in shown(_stage(rows=512), context(gpus_per_worker=1, recompute_layers=True)), "more fits then"


@pytest.mark.usefixtures("gpu_of_8_gib")
@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        torch.distributed.DistBackendError(
            "NCCL error in: NCCLUtils.cpp:93, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
        ),
    ],
)
def test_memory_that_is_taken_without_torchs_allocator_is_reported_alike(error: RuntimeError) -> None:
    """The first product of a training asks for a handle of cuBLAS, the first step for the buffers of NCCL."""
    with (
        pytest.raises(ResourceError, match=r"Set runtime\..*runtime\.micro_batch="),
        explain_full_gpu(_stage(), context(gpus_per_worker=1)),
    ):
        raise error


@pytest.mark.usefixtures("gpu_of_8_gib")
@pytest.mark.parametrize(
    "said", ["CUDA error: an illegal memory access was encountered", "NCCL error in: NCCLUtils.cpp:93, unhandled cuda error"]
)
def test_what_else_a_gpu_says_stays_as_it_is(said: str) -> None:
    with pytest.raises(RuntimeError, match=said), explain_full_gpu(_stage(), context(gpus_per_worker=1)):
        raise RuntimeError(said)


@pytest.mark.usefixtures("gpu_of_8_gib")
def test_of_an_embedding_the_tokens_of_a_batch_are_named() -> None:
    embed = Bank(encoder=_stage(), corpus=_stage().corpus)
    assert "Set runtime.tokens_per_batch=16384" in shown(embed, context(gpus_per_worker=1))
    assert "Lower max_length" in shown(embed, context(gpus_per_worker=1, tokens_per_batch=512))


@pytest.mark.usefixtures("gpu_of_8_gib")
def test_a_rank_whose_gpu_is_full_raises_and_so_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passed over, as an error that all ranks raise is, it would leave the others waiting in a collective."""
    error: list[Exception] = []

    def train(*_: object) -> None:
        raise error[0]

    monkeypatch.setattr(member, "train_rank", train)
    monkeypatch.setattr(rank, "train_rank", train)
    order: Any = SimpleNamespace(stage=_stage(), submission=SimpleNamespace(context=context(gpus_per_worker=1)))
    sink: Any = SimpleNamespace(order=None)
    error[:] = [torch.OutOfMemoryError()]
    with pytest.raises(ResourceError, match=r"runtime\.micro_batch"):
        member._follow(order, sink)
    with pytest.raises(ResourceError, match=r"runtime\.micro_batch"):
        rank.train_as_first_rank(order.stage, order.submission, sink, NullRun())
    error[:] = [DataError(where="corpus", found="a row too few", expected="all", remedy="Build it again.")]
    member._follow(order, sink)
