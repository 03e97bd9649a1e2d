"""Check precisions against the GPU, and explain a full GPU: which field to change, and to what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from sentdist.corpora.kind import CorpusStage
from sentdist.errors import ResourceError, StoreError, counted
from sentdist.files import memory_size
from sentdist.learning.device_bank import bytes_of_banks
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Bank, Encoded, Rung, Scores, Targets, Tokens, Train
from sentdist.stages.context import Context
from sentdist.stages.planning.worker_memory import (
    TOKENS_PER_SENTENCE,
    EncoderSize,
    best_zero_stage,
    fitting_micro_batch,
    gpu_bytes,
    sentences_at_a_time,
    size_of,
    state_bytes,
)


def check_precisions(stages: Iterable[Stage], runtime: Runtime, *, old_gpu: str | None = None) -> None:
    """Check that the chosen devices support the precision of every stage.

    Args:
        old_gpu: Kind of a GPU older than Ampere that may be used; None: there is none.

    Raises:
        ResourceError: TensorFloat-32 without a GPU; or TensorFloat-32 or bfloat16 with a GPU that lacks it.
    """
    for stage in stages:
        precision = stage.precision_used
        where = f"{stage.kind} {stage.label}: precision={precision}"
        if precision == "tf32" and not runtime.gpus_per_worker:
            raise ResourceError(
                where=where, found="a computation on CPUs", expected="an NVIDIA GPU with TensorFloat-32 (Ampere or later)",
                remedy="Use fp32, which all devices have, or bf16.",
            )  # fmt: skip
        if precision in ("tf32", "bf16") and runtime.gpus_per_worker and old_gpu:
            raise ResourceError(
                where=where, found=f"a GPU ({old_gpu}) without this precision", expected="NVIDIA GPUs that have it (Ampere or later)",
                remedy="Use fp32, which all devices have, or on a cluster leave these GPUs out: runtime.gpu_type names the kind to use.",
            )  # fmt: skip


FEW_WORKERS = 4  # on which ZeRO saves memory, of all but small encoders
WORTH_IT = 0.9  # of the bytes; what saves less is not named
LEAST_TOKENS = 512  # that `runtime.tokens_per_batch` may be
# Errors of CUDA, cuBLAS, NCCL and Triton for memory that torch does not manage: none of them raises torch's OutOfMemoryError.
FULL = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "Cuda failure 2 'out of memory'",
    "Failed to CUDA calloc",
    "Triton Error [CUDA]: out of memory",
)


@contextmanager
def explain_full_gpu(stage: Stage, context: Context) -> Iterator[None]:
    """Turn errors of a full GPU into a ResourceError with the field to change and a number for it."""
    with explained_if_full(lambda free, total: _full_gpu(stage, context, free, total)):
        yield


@contextmanager
def explained_if_full(explain: Callable[[int, int], ResourceError]) -> Iterator[None]:
    """Turn errors of a full GPU into `explain(free, total)`, both in bytes."""
    try:
        yield
    except RuntimeError as error:
        import torch  # stages that compute nothing with it get by without

        if not isinstance(error, torch.OutOfMemoryError) and not any(said in str(error) for said in FULL):
            raise
        try:
            free, total = torch.cuda.mem_get_info()
        except RuntimeError:  # other processes left no room for CUDA's context, which the query needs
            free, total = 0, torch.cuda.get_device_properties().total_memory
        raise explain(free, total) from error


def _full_gpu(stage: Stage, context: Context, free: int, total: int) -> ResourceError:
    share = context.runtime.gpus_per_worker if 0 < context.runtime.gpus_per_worker < 1 else 1.0
    match stage:
        case Train() | Rung():
            tried, remedy = _training(stage.whole, context, total * share)
        case Bank() | Scores() | Encoded():
            tried, remedy = _encoding(context.runtime)
        case CorpusStage() | Targets():
            tried = "a tagger" if isinstance(stage, Targets) else "a model that writes sentences"
            remedy = "Set runtime.gpus_per_worker=1, or runtime.device=cpu."
        case _:
            raise TypeError(f"GPU work of the stage {stage.kind} is not implemented")
    mine = f"{share:g} of a GPU's {memory_size(total)}" if share < 1 else whole_gpu(free, total)
    return ResourceError(where=f"{stage.kind} {stage.label}", found=f"{mine} full with {tried}", expected="work that fits", remedy=remedy)


def whole_gpu(free: int, total: int) -> str:
    """Return the description of a full GPU for an error; sizes in bytes."""
    return f"a GPU of {memory_size(total)}, {memory_size(free)} free,"


def _training(stage: Train, context: Context, num_bytes: float) -> tuple[str, str]:
    size, at_a_time = size_of(stage.encoder, context), sentences_at_a_time(stage, context.runtime)
    tried = f"{counted(at_a_time, 'sentence')} at a time (runtime.micro_batch)"
    if at_a_time == 1:
        if not context.runtime.recompute_layers:
            return tried, "Set runtime.recompute_layers=true, which changes no result, or lower training.max_length."
        return tried, f"Lower training.max_length, or take a smaller encoder{_zero_hint(size, context.runtime)}."
    num_bytes -= bytes_of_banks()
    # By estimate, but at most half: the estimate does not know other users of the GPU.
    tokens = _mean_tokens(stage, context)
    fewer = min(at_a_time // 2, fitting_micro_batch(stage, size, context.runtime, num_bytes=num_bytes, tokens=tokens))
    rows = max(1, fewer * context.runtime.fewest_workers // stage.num_columns)
    remedy = f"Set runtime.micro_batch={fewer}, which changes no result, or training.batch_size={rows}, which does."
    recomputed = context.runtime.model_copy(update={"recompute_layers": True})
    # Recomputing is a third slower, small parts are slower by more.
    if not context.runtime.recompute_layers and gpu_bytes(stage, size, recomputed, tokens=tokens) < num_bytes:
        slower = f"runtime.micro_batch={fewer}, which is slower"
        remedy = f"Set runtime.recompute_layers=true, or {slower}: neither changes a result. training.batch_size={rows} does."
    return tried, f"{remedy} What is finished is kept."


def _mean_tokens(stage: Train, context: Context) -> float:
    """Tokens per sentence, by the stored token table of its corpus that truncates least; else as planning assumes."""
    with suppress(StoreError, OSError):  # the error to report is the full GPU
        records = [one.record for one in context.store.artifacts(Tokens.kind) if stage.corpus.key in one.record.inputs]
        counts = [(record.number("num_tokens"), record.number("num_sentences")) for record in records]
        return max((tokens / sentences for tokens, sentences in counts if tokens and sentences), default=TOKENS_PER_SENTENCE)
    return TOKENS_PER_SENTENCE


def _zero_hint(size: EncoderSize, runtime: Runtime) -> str:
    """Settings by which several workers share the optimizer's state; "" if that saves too little."""
    num, largest = size.num_parameters, size.largest
    shared = runtime.model_copy(update={"engine": "deepspeed", "workers": max(FEW_WORKERS, runtime.fewest_workers)})
    shared = shared.model_copy(update={"zero_stage": best_zero_stage(num, shared, largest=largest)})
    if state_bytes(num, shared, largest=largest) > WORTH_IT * state_bytes(num, runtime, largest=largest):
        return ""
    engine = "runtime.engine=deepspeed, " if runtime.engine == "torch" else ""
    return f", or set {engine}runtime.zero_stage={shared.zero_stage} on {shared.fewest_workers} workers"


def _encoding(runtime: Runtime) -> tuple[str, str]:
    from sentdist.learning.encoder.encode import TOKENS_ON_GPU

    tokens = runtime.tokens_per_batch or TOKENS_ON_GPU
    tried = f"batches of {tokens} tokens (runtime.tokens_per_batch)"
    if tokens <= LEAST_TOKENS:
        return tried, "Lower max_length, or give it more of a GPU: runtime.gpus_per_worker=1."
    return tried, f"Set runtime.tokens_per_batch={max(LEAST_TOKENS, tokens // 2)}, which changes no result."
