"""Fit stages to devices: choose GPU or CPU, check precisions, estimate a worker's memory, explain a full GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentdist.errors import ResourceError, counted
from sentdist.families import configured, family_of, is_gated
from sentdist.files import memory_size
from sentdist.learning.bank_shape import BUCKET_NUMBERS, MOST_LIVE
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderSpec
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Rung, Train
from sentdist.stages.context import Context
from sentdist.stages.resolve import encoder_configuration

if TYPE_CHECKING:  # seconds to import: drivers do without
    import torch


def device_of(runtime: Runtime) -> torch.device:
    """Return the device of a process with this runtime, whose number of GPUs is decided."""
    import torch

    return torch.device("cuda" if runtime.gpus_per_worker and torch.cuda.is_available() else "cpu")


def old_gpu_here(runtime: Runtime) -> str | None:
    """Return the name of this process's GPU if it is older than Ampere, else None."""
    import torch

    from sentdist.learning.precision import old_gpu

    return old_gpu(torch.device("cuda")) if runtime.gpus_per_worker else None


def why_unusable() -> str | None:
    """Return why torch can use no GPU here, with the versions of torch and CUDA; None if it can use the current one."""
    import torch

    built = f"torch {torch.__version__}, " + (f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA")
    if not torch.cuda.is_available():
        return built
    oldest = min((int(name[3:].rstrip("af")) for name in torch.cuda.get_arch_list() if name.startswith("sm_")), default=0)
    major, minor = torch.cuda.get_device_capability()
    if 10 * major + minor < oldest:
        needed = f"{oldest // 10}.{oldest % 10}"
        return f"{built} and GPUs of compute capability {needed} or newer; {torch.cuda.get_device_name()} has {major}.{minor}"
    return None


def usable_gpus() -> int:
    """Return the number of GPUs that torch can use here."""
    import torch

    return 0 if why_unusable() else torch.cuda.device_count()


def left_out_here(runtime: Runtime) -> str:
    """Return a note on settings of a recipe for a Ray cluster that a single process ignores; "" if there are none."""
    ignored = [f"runtime.workers={runtime.most_workers}"] if runtime.most_workers > 1 else []
    ignored += [f"runtime.zero_stage={runtime.zero_stage}"] if runtime.zero_stage else []
    ignored += [f"runtime.gpu_type={runtime.gpu_type}"] if runtime.gpu_type else []
    return f"; for a Ray cluster only: {', '.join(ignored)}" if ignored else ""


def on_this_machine(runtime: Runtime) -> tuple[Runtime, str]:
    """Return the runtime with its device decided for this process, and a note: the device used, or why no GPU.

    A fraction of a GPU counts as a whole one: one process does not share it or limit its memory.

    Raises:
        ResourceError: `device` asks for a GPU, and torch can use none.
    """
    import torch

    from sentdist.learning.freed_memory import keep_gpu_memory_whole

    asked = runtime.gpus_asked
    if asked != 0:
        keep_gpu_memory_whole()  # before torch first uses the GPU
    why = why_unusable()
    if why and runtime.device == "cuda":
        raise ResourceError(
            where="runtime.device=cuda", found=f"no GPU that torch can use ({why})", expected="at least one",
            remedy="`sentdist doctor` says what is missing; or set runtime.device=auto.",
        )  # fmt: skip
    if why:
        return runtime.with_gpus(0.0), "on the CPU" + (f": torch can use no GPU here ({why})" if asked else "")
    if asked == 0:
        return runtime, "on the CPU, as runtime.device or runtime.gpus_per_worker asks"
    num_idle = torch.cuda.device_count() - 1
    idle = f"; idle: {counted(num_idle, 'other GPU')} (one process uses one; a Ray cluster uses all)" if num_idle else ""
    return runtime.with_gpus(1.0), f"on {torch.cuda.get_device_name(0)}{idle}"


def check_precisions(stages: Iterable[Stage], runtime: Runtime, *, old_gpu: str | None = None) -> None:
    """Check that the chosen devices support the precision of every stage.

    Args:
        old_gpu: Kind of a GPU older than Ampere that may be used; None: there is none.

    Raises:
        ResourceError: TensorFloat-32 without a GPU; or TensorFloat-32 or bfloat16 with a GPU that lacks it.
    """
    for stage in stages:
        precision = stage.precision_used
        on_gpu = bool(runtime.gpus_per_worker)
        if (precision == "tf32" and not on_gpu) or (precision in ("tf32", "bf16") and on_gpu and old_gpu):
            raise ResourceError(
                where=f"{stage.kind} {stage.label}: precision={precision}",
                found=f"a GPU ({old_gpu}) without this precision" if on_gpu else "a computation on CPUs",
                expected="NVIDIA GPUs that have it (Ampere or later)",
                remedy="Use fp32, which all devices have, or name a newer kind in runtime.gpu_type.",
            )


NUMBER = 4  # bytes of float32, in which weights, gradients and the optimizer's moments are kept in every precision
COPY_BYTES = {"fp32": 0, "tf32": 0, "bf16": 2}  # of each parameter, the copy that is computed with
# Fitted to infra/benchmarks/memory.md and speed.md (torch 2.13 on CPU, MiniLM, NLI's real lengths, peak resident memory): 64 rows of three
# sentences 2.59 GiB, in bf16 2.38; 512 rows 6.42. On CPU bf16 takes more than fp32, because autocast keeps copies beside its inputs. Where
# layers compute by compiled kernels they take less (64 rows 1.95 GiB, in bf16 1.63): a plan does not know whether a host has them.
PROCESS_BYTES = 0.8 * 2**30  # Python, torch, transformers, Ray
HEAP_BYTES = 0.5 * 2**30  # what the C library keeps after steps of varying sizes
# Kept for the backward pass, of each token, layer and unit of width, beside the weights of attention.
BYTES_PER_UNIT = {"fp32": 90, "tf32": 90, "bf16": 166}
# The same on a GPU, counted from what autograd keeps of a BERT (64 to 72, 40 to 44), with room for the layer that is being differentiated.
# On an H100 MiniLM took 23.4 GiB of NLI at 4,096 rows in bf16 where this says 33.0, since it assumes longer sentences.
BYTES_PER_UNIT_ON_GPU = {"fp32": 80, "tf32": 80, "bf16": 50}
GATED, DROPPED = 0.6, 0.3  # more of a layer, where feed-forward multiplies two, or drops between its matrices as a T5's
WEIGHT_BYTES = {
    "fp32": 8,
    "tf32": 8,
    "bf16": 4,
}  # of an attention weight and dropout's factor, in each layer
DIFFERENTIATED_BYTES = 16  # of an attention weight, of one layer at a time
MEAN_SQUARE = 1.43  # of lengths that are log-normal with sigma 0.6 (NLI, STS, Wikipedia, FAQs), relative to their squared mean
TOKENS_PER_SENTENCE = 24.0  # NLI has 16 on average, Wikipedia 30: of a corpus that planning has not read
CUDA_BYTES = 1.0 * 2**30  # its context, the libraries' workspaces; not measured alone
NCCL_BYTES = 0.6 * 2**30  # 16 channels to three neighbours, by its defaults; not measured here
PLAIN = Runtime(engine="torch")


@dataclass(frozen=True, kw_only=True)
class EncoderSize:
    """Dimensions that determine the memory of a transformer."""

    num_parameters: int
    num_layers: int
    width: int
    num_heads: int
    kept_share: float = 1.0  # of what a layer keeps for the backward pass, relative to a BERT's
    adds_distances: bool = False  # to the scores of attention, a number each


def encoder_size(configuration: Mapping[str, object], *, layers: int | None = None) -> EncoderSize:
    """Return the size of an encoder from its `config.json`; missing values are BERT-base's, the largest encoder of the five papers.

    Args:
        layers: Number of layers that are kept; None: all.
    """
    family, gated = family_of(configuration), is_gated(configuration)
    width = configured(configuration, "width") or 768
    inner_width = configured(configuration, "inner_width") or 4 * width
    num_heads = configured(configuration, "num_heads") or 12
    num_layers = layers or configured(configuration, "num_layers") or 12
    num_positions = configured(configuration, "num_positions") or 512
    rows = (configured(configuration, "num_tokens") or 30522) + (num_positions if family.positions.startswith("table") else 0)
    heads = num_heads + (configured(configuration, "num_key_heads") or num_heads)
    head_width = configured(configuration, "head_width") or width / num_heads
    per_layer = 2 * width * heads * head_width + (3 if gated else 2) * width * inner_width  # no biases and norms
    return EncoderSize(
        num_parameters=round(rows * width + num_layers * per_layer),
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        kept_share=1 + GATED * gated + DROPPED * family.drops_within,
        adds_distances=family.adds_distances,
    )


def size_of(encoder: EncoderSpec, context: Context) -> EncoderSize:
    """Return the size of a pinned encoder, by its `config.json` if this machine has it."""
    return encoder_size(encoder_configuration(encoder, context.folders), layers=encoder.layers)


def worker_bytes(stage: Train, size: EncoderSize, runtime: Runtime, *, tokens: float = TOKENS_PER_SENTENCE) -> float:
    """Return the peak host memory of one worker, in bytes; activations on a GPU are not counted.

    Args:
        tokens: Mean per sentence, before it is cut.
    """
    if runtime.gpus_per_worker:
        return PROCESS_BYTES + _state_bytes(stage, size, PLAIN)
    activations = sentences_at_a_time(stage, runtime) * _sentence_bytes(stage, size, runtime, tokens)
    return PROCESS_BYTES + HEAP_BYTES + _state_bytes(stage, size, runtime) + activations


def gpu_bytes(stage: Train, size: EncoderSize, runtime: Runtime, *, tokens: float = TOKENS_PER_SENTENCE) -> float:
    """Return the peak memory of one worker on its GPU without banks, in bytes; arguments as of `worker_bytes`."""
    activations = sentences_at_a_time(stage, runtime) * _sentence_bytes(stage, size, runtime, tokens)
    group = NCCL_BYTES if runtime.most_workers > 1 else 0.0
    return CUDA_BYTES + group + _state_bytes(stage, size, runtime) + activations


def sentences_at_a_time(stage: Train, runtime: Runtime) -> int:
    """Return the number of sentences whose activations a worker holds at a time."""
    of_a_worker = -(-stage.training.batch_size // runtime.fewest_workers) * stage.num_columns
    return min(of_a_worker, runtime.micro_batch or of_a_worker)


def _state_bytes(stage: Train, size: EncoderSize, runtime: Runtime) -> float:
    """Weights, gradients, AdamW's two moments, copies to compute with; with ZeRO a worker's part of them, and buckets that travel."""
    numbers, workers = size.num_parameters, runtime.fewest_workers
    copies = COPY_BYTES[stage.training.precision] * numbers
    if stage.training.freeze_encoder:
        return copies + NUMBER * numbers
    whole, parts = ((4, 0), (2, 4), (1, 5), (0, 6))[runtime.zero_stage]
    travelling = 4 * min(numbers, BUCKET_NUMBERS) if runtime.zero_stage and workers > 1 else 0
    gathered = 2 * min(numbers, MOST_LIVE) if runtime.zero_stage == 3 else 0
    return copies + NUMBER * (numbers * (whole + parts / workers) + travelling + gathered)


def _sentence_bytes(stage: Train, size: EncoderSize, runtime: Runtime, tokens: float) -> float:
    """Activations of one sentence, with attention's weights where no kernel spares them."""
    precision, longest = stage.training.precision, stage.training.max_length
    tokens = min(tokens, longest)
    per_unit = BYTES_PER_UNIT_ON_GPU if runtime.gpus_per_worker else BYTES_PER_UNIT
    of_a_layer = per_unit[precision] * size.kept_share * tokens * size.width
    kept_once = 0.0
    if size.adds_distances or not runtime.gpus_per_worker:
        weights = size.num_heads * min(MEAN_SQUARE * tokens**2, longest**2)
        of_a_layer += WEIGHT_BYTES[precision] * weights
        kept_once = DIFFERENTIATED_BYTES * weights
    if stage.training.freeze_encoder:  # nothing is kept for a backward pass: one layer at a time
        return of_a_layer + kept_once
    if runtime.recompute_layers:  # the input of each in float32, and all of the one that is recomputed
        return of_a_layer + kept_once + NUMBER * tokens * size.width * size.num_layers
    return of_a_layer * size.num_layers + kept_once


# Errors of CUDA, cuBLAS, NCCL and Triton for memory that torch does not manage: none of them raises torch's OutOfMemoryError.
FULL = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "Cuda failure 2 'out of memory'",
    "Failed to CUDA calloc",
    "Triton Error [CUDA]: out of memory",
)
LEAST_TOKENS = 512  # that `runtime.tokens_per_batch` may be


@contextmanager
def explain_full_gpu(stage: Stage, context: Context) -> Iterator[None]:
    """Turn errors of a full GPU into a ResourceError with the field to change."""
    with explained_if_full(lambda free, total: _full_gpu(stage, context.runtime, free, total)):
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


def _full_gpu(stage: Stage, runtime: Runtime, free: int, total: int) -> ResourceError:
    if isinstance(stage, Train | Rung):
        at_a_time = sentences_at_a_time(stage.whole, runtime)
        tried = f"{counted(at_a_time, 'sentence')} at a time (runtime.micro_batch)"
        remedy = (
            f"Set runtime.micro_batch={max(1, at_a_time // 2)} or runtime.recompute_layers=true, which change no result, or lower "
            "training.max_length or training.batch_size; runtime.zero_stage=2 on several workers divides the optimizer's state."
        )
    else:
        from sentdist.learning.encoder.encode import TOKENS_ON_GPU

        tokens = runtime.tokens_per_batch or TOKENS_ON_GPU
        tried = f"batches of {tokens} tokens (runtime.tokens_per_batch)"
        remedy = f"Set runtime.tokens_per_batch={max(LEAST_TOKENS, tokens // 2)}, which changes no result, or runtime.gpus_per_worker=1."
    share = runtime.gpus_per_worker if 0 < runtime.gpus_per_worker < 1 else 1.0
    mine = f"{share:g} of a GPU's {memory_size(total)}" if share < 1 else whole_gpu(free, total)
    return ResourceError(where=f"{stage.kind} {stage.label}", found=f"{mine} full with {tried}", expected="work that fits", remedy=remedy)


def whole_gpu(free: int, total: int) -> str:
    """Return the description of a full GPU for an error; sizes in bytes."""
    return f"a GPU of {memory_size(total)}, {memory_size(free)} free,"
