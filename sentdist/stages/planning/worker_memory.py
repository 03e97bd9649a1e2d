"""Estimate the memory of a training's worker on host and GPU, so that no more trainings run at once than fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import erf, exp, log, sqrt

from sentdist.families import configured, family_of, is_gated
from sentdist.kernels import longest_tile
from sentdist.learning.bank_shape import BUCKET_BYTES, BUCKET_NUMBERS, MOST_LIVE, MOST_ROWS, BankShape, bytes_together
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderSpec
from sentdist.recipe.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.planning.resolve import embedding_width, encoder_configuration

# Text lengths are assumed to be log-normal: with 0.6 the mean of their squares is right within a factor of 1.35 for all columns that
# were counted (NLI, STS, questions, Wikipedia, abstracts, answers of FAQs), cut at 512 tokens.
SPREAD = 0.6
# Bytes per attention weight (grouped_attention.py): kept for the backward pass (again for dropout), and made there for a layer at a time.
# Peaks of three steps on a CPU without kernels, MiniLM's shape, 32 texts of 200 tokens (24 of MPNet, 24 in bf16), GiB measured, estimated:
# BERT 3.72, 3.79; T5 4.29, 4.16; MPNet 2.92, 3.21; BERT in bf16 2.50, 3.74.
KEPT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}
DIFFERENTIATED_BYTES = {"fp32": 12, "tf32": 12, "bf16": 16}


@dataclass(frozen=True, kw_only=True)
class WeightedLayers:
    """Layers of an encoder that hold their attention weights in memory."""

    num_heads: int
    num_kept: int  # layers whose weights, and dropout's, are kept for the backward pass; 0 for a frozen encoder
    has_dropout: bool
    precision: str

    def sentence_bytes(self, tokens: float, *, longest: int, shortest: int = 0) -> float:
        """Return the mean bytes of a sentence.

        Args:
            tokens: Mean per sentence, before it is cut at `longest`.
            longest: Tokens at which a sentence is cut.
            shortest: Up to this length a kernel holds no weights.
        """
        kept = KEPT_BYTES[self.precision] * (2 if self.has_dropout else 1) * self.num_kept
        of_a_weight = kept + DIFFERENTIATED_BYTES[self.precision]
        return of_a_weight * self.num_heads * mean_square(tokens, longest=longest, shortest=shortest)


def mean_square(tokens: float, *, longest: int, shortest: int = 0) -> float:
    """Return the mean of squared lengths by the partial moments of a log-normal distribution with mean `tokens`.

    Lengths up to `shortest` count as 0, those above `longest` as `longest`.
    """
    if shortest >= longest:
        return 0.0
    center = log(tokens) - SPREAD**2 / 2

    def share_above(length: float, power: int) -> float:
        """The part of the moment of this power above a length."""
        return 1.0 if length == 0 else (1 + erf((center - log(length) + power * SPREAD**2) / SPREAD / sqrt(2))) / 2

    between = exp(2 * center + 2 * SPREAD**2) * (share_above(shortest, 2) - share_above(longest, 2))
    return between + longest**2 * share_above(longest, 0)


NUMBER = 4  # bytes of float32, in which weights, gradients and the optimizer's moments are kept in every precision
# NCCL's own, which torch does not see: 16 channels to three neighbours, each way 4 MiB (NCCL_BUFFSIZE) and half as much for its quick
# protocols, come to 0.6 GiB. By its defaults; not measured here.
NCCL_BYTES = 0.6 * 2**30


def state_bytes(num_parameters: float, runtime: Runtime, *, largest: float) -> float:
    """Return the bytes of a training's state beside its activations: an upper bound of what was counted, at most a quarter above it.

    Weights, gradients, AdamW's two moments; with ZeRO the worker's part of the weights once more, and the buckets of travelling gradients
    (ZeRO 3: and weights).

    Args:
        largest: Parameters of the largest matrix.
    """
    whole, part = NUMBER * num_parameters, NUMBER * num_parameters / runtime.fewest_workers
    bucket, in_layers = (NUMBER * min(num_parameters, numbers) for numbers in (BUCKET_NUMBERS, MOST_LIVE + largest))
    piece = NUMBER * min(num_parameters, BUCKET_NUMBERS + (largest if largest > BUCKET_NUMBERS else 0.0))
    from_others = piece * (1 - 1 / runtime.fewest_workers)
    match runtime.zero_stage:
        case 0:
            return 4 * whole
        case 1:
            return 2 * whole + 4 * part + 2 * from_others + bucket / runtime.fewest_workers
        case 2:
            return whole + 5 * part + 3.5 * from_others
        case _:
            return max(5 * part + 2 * in_layers + 2 * bucket, 6 * part + bucket)


def best_zero_stage(num_parameters: float, runtime: Runtime, *, largest: float) -> int:
    """Return the ZeRO stage at which a worker keeps least, on the same number of workers."""
    return min(range(4), key=lambda stage: state_bytes(num_parameters, runtime.model_copy(update={"zero_stage": stage}), largest=largest))


def step_bytes(num_parameters: float, runtime: Runtime, *, largest: float) -> float:
    """Return the bytes that a step adds after its activations: with several workers at ZeRO stage 0, the bucket of gradients or rows of
    word embeddings that travel.

    Args:
        largest: Parameters of the largest matrix.
    """
    if runtime.zero_stage > 0 or runtime.most_workers == 1:
        return 0.0
    return min(NUMBER * num_parameters, max(BUCKET_BYTES, NUMBER * largest * MOST_ROWS))


def group_bytes(runtime: Runtime) -> float:
    """Return the GPU memory of a training's process group, in bytes, which torch does not see."""
    return NCCL_BYTES if runtime.most_workers > 1 else 0.0


# Fitted to infra/benchmarks/memory.md and speed.md (torch 2.13 on CPU, MiniLM, NLI's real lengths, peak resident memory): 64 rows of three
# sentences 2.59 GiB, in bf16 2.38; 512 rows 6.42. On CPU bf16 takes more than fp32, because autocast keeps copies beside its inputs. Where
# layers compute by compiled kernels they take less (64 rows 1.95 GiB, in bf16 1.63): a plan does not know whether a host has them.
PROCESS_BYTES = 0.8 * 2**30  # Python, torch, transformers, Ray
HEAP_BYTES = 0.5 * 2**30  # what the C library keeps after steps of varying sizes: 64 rows take 1.9 GiB after three of them, 2.6 after forty
COPY_BYTES = {"fp32": 0, "tf32": 0, "bf16": 2}  # of each parameter, the copy that is computed with
NUMBER_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}  # of queries, keys and values
PLAIN = Runtime(engine="torch")
# Kept for the backward pass, of each token, layer and unit of width, beside the weights of attention (see attention_memory.py).
BYTES_PER_UNIT = {"fp32": 90, "tf32": 90, "bf16": 166}
# The same on a GPU, counted from what autograd keeps of a BERT (64 to 72, 40 to 44), with room for the layer that is being differentiated.
# On an H100 MiniLM took 23.4 GiB of NLI at 4,096 rows in bf16 where this says 33.0, since it assumes longer sentences; with kernels for
# whole layers 16.9 (gpu.md): a plan knows neither whether a host has them nor how long sentences are.
BYTES_PER_UNIT_ON_GPU = {"fp32": 80, "tf32": 80, "bf16": 50}
GATED_SHARE = 1.6  # of what a BERT's layer keeps, where feed-forward multiplies two: counted on a simulated GPU, too
DROPPED_SHARE = 0.3  # as much again, where feed-forward drops between its matrices, as a T5's: counted likewise
# On a GPU the derivative of attention in float32 takes this much per sentence, head and 64 tokens of the longest (see fused_attention.py).
ATTENTION_BYTES = {"fp32": 16 * 2**10, "tf32": 16 * 2**10, "bf16": 0}
TOKENS_PER_SENTENCE = 24.0  # NLI has 16 on average, Wikipedia 30: of a corpus that planning has not read
MICRO_BATCH_HEAP = 1.5  # a heap gives memory of varying sizes back late: 512 rows in micro-batches of 192 sentences, 2.4 GiB
# On a GPU: its context, the libraries' workspaces; not measured alone. Logits come on top: LOGITS_SHARE of anchor_blocks.py
CUDA_BYTES = 1.0 * 2**30
# Share of a worker's GPU memory that a bank there may take: it only saves copies, and the estimate of the rest of a training does not
# know long sentences. 10 GiB of an H100's 80 hold RCL's five banks of BERT-base over a million sentences (7.2).
BANK_SHARE = 1 / 8


@dataclass(frozen=True, kw_only=True)
class EncoderSize:
    """Dimensions that determine the memory of a transformer."""

    num_tokens: int
    num_positions: int
    num_layers: int
    width: int
    inner_width: int
    num_heads: int
    num_key_heads: int | None = None  # None: as many
    head_width: int | None = None  # None: of all heads together, the width
    is_gated: bool = False  # three matrices in feed-forward
    drops_within: bool = False  # dropout between the matrices of feed-forward
    adds_distances: bool = False  # to the scores of attention, a number each

    @property
    def num_parameters(self) -> int:
        """Embeddings, attention (4 D² where no head is shared) and feed-forward (2 D·I, gated 3) of each layer; no biases and norms."""
        heads = self.num_heads + (self.num_key_heads or self.num_heads)
        of_heads = 2 * self.width * (heads * self.head_width if self.head_width else heads * self.width // self.num_heads)
        per_layer = of_heads + (3 if self.is_gated else 2) * self.width * self.inner_width
        return (self.num_tokens + self.num_positions) * self.width + self.num_layers * per_layer

    @property
    def kept_share(self) -> float:
        """What a layer keeps for the backward pass, relative to a BERT's."""
        return (GATED_SHARE if self.is_gated else 1.0) + (DROPPED_SHARE if self.drops_within else 0.0)

    @property
    def largest(self) -> int:
        """Parameters of its largest matrix: word embeddings or feed-forward."""
        return self.width * max(self.num_tokens, self.inner_width)


BERT_BASE = EncoderSize(num_tokens=30522, num_positions=512, num_layers=12, width=768, inner_width=3072, num_heads=12)


def encoder_size(configuration: Mapping[str, object], *, layers: int | None = None) -> EncoderSize:
    """Return the size of an encoder from its `config.json`; missing values are BERT-base's, the largest encoder of the five papers.

    Args:
        layers: Number of layers that are kept; None: all.
    """
    width = configured(configuration, "width") or BERT_BASE.width
    family = family_of(configuration)
    num_positions = configured(configuration, "num_positions") or BERT_BASE.num_positions
    return EncoderSize(
        num_tokens=configured(configuration, "num_tokens") or BERT_BASE.num_tokens,
        num_positions=num_positions if family.positions.startswith("table") else 0,
        num_layers=layers or configured(configuration, "num_layers") or BERT_BASE.num_layers,
        width=width,
        inner_width=configured(configuration, "inner_width") or 4 * width,
        num_heads=configured(configuration, "num_heads") or BERT_BASE.num_heads,
        num_key_heads=configured(configuration, "num_key_heads"),
        head_width=configured(configuration, "head_width"),
        is_gated=is_gated(configuration),
        drops_within=family.drops_within,
        adds_distances=family.adds_distances,
    )


def size_of(encoder: EncoderSpec, context: Context) -> EncoderSize:
    """Return the size of a pinned encoder, by its `config.json` if this machine has it."""
    return encoder_size(encoder_configuration(encoder, context.folders), layers=encoder.layers)


def sentences_at_a_time(stage: Train, runtime: Runtime) -> int:
    """Return the number of sentences whose activations a worker holds at a time."""
    of_a_worker = sentences_of_a_worker(stage, runtime)
    return min(of_a_worker, runtime.micro_batch or of_a_worker)


def sentences_of_a_worker(stage: Train, runtime: Runtime) -> int:
    """Return the sentences of a worker's largest share of a batch; rows are not divided."""
    return -(-stage.training.batch_size // runtime.fewest_workers) * stage.num_columns


def worker_bytes(stage: Train, size: EncoderSize, runtime: Runtime, *, tokens: float = TOKENS_PER_SENTENCE) -> float:
    """Return the peak host memory of one worker, in bytes; activations on a GPU are not counted.

    Args:
        tokens: Mean per sentence, before it is cut.
    """
    if runtime.gpus_per_worker:
        return PROCESS_BYTES + _held_bytes(stage, size, PLAIN)
    held = PROCESS_BYTES + _held_bytes(stage, size, runtime)
    at_a_time = sentences_at_a_time(stage, runtime)
    heap = MICRO_BATCH_HEAP if at_a_time < sentences_of_a_worker(stage, runtime) else 1.0
    of_attention = _weighted_layers(stage, size, runtime).sentence_bytes(tokens, longest=stage.training.max_length)
    activations = at_a_time * (_sentence_bytes(stage, size, runtime, BYTES_PER_UNIT, tokens) + of_attention)
    return held + HEAP_BYTES + heap * activations


def gpu_bytes(
    stage: Train,
    size: EncoderSize,
    runtime: Runtime,
    *,
    bank_bytes: float = 0.0,
    gpu_memory: float = math.inf,
    tokens: float = TOKENS_PER_SENTENCE,
) -> float:
    """Return the peak memory of one worker on its GPU, in bytes.

    Args:
        bank_bytes: Of all its banks, on the GPU or not.
        gpu_memory: Of the whole GPU.
        tokens: Mean per sentence, before it is cut.
    """
    beside = _gpu_bytes_beside_banks(stage, size, runtime, tokens)
    lies_there = bank_lies_on_gpu(stage, size, runtime, bank_bytes=bank_bytes, gpu_memory=gpu_memory, tokens=tokens)
    return beside + bank_bytes * lies_there


def bank_lies_on_gpu(
    stage: Train, size: EncoderSize, runtime: Runtime, *, bank_bytes: float, gpu_memory: float, tokens: float = TOKENS_PER_SENTENCE
) -> bool:
    """Return whether the banks of a training are kept on its worker's GPU.

    They are if they take at most BANK_SHARE of the worker's share of the GPU, and by estimate everything fits into that share.
    """
    if not runtime.gpus_per_worker:
        return False
    mine = gpu_memory * min(1.0, runtime.gpus_per_worker)
    return 0 < bank_bytes <= BANK_SHARE * mine and _gpu_bytes_beside_banks(stage, size, runtime, tokens) + bank_bytes <= mine


def embedding_widths(trainings: Iterable[Train], context: Context) -> dict[EncoderSpec, int]:
    """Return the widths of embeddings in the banks of these trainings, by the encoder each started from; files are read once."""
    encoders = {bank.encoder.encoder for stage in trainings for bank in stage.banks}
    return {encoder: embedding_width(encoder, context.folders) or BERT_BASE.width for encoder in encoders}


def planned_bank_bytes(stage: Train, rows: Mapping[str, int], widths: Mapping[EncoderSpec, int]) -> int:
    """Return the bytes of all banks that a training reads, as one table: an upper bound, since sentences may repeat.

    Args:
        rows: Rows of each corpus.
        widths: See `embedding_widths`.
    """
    shapes = [
        BankShape(num_sentences=bank.num_sentences(rows), width=widths[bank.encoder.encoder], dtype=bank.dtype, rows_per_shard=1)
        for bank in stage.banks
    ]
    return bytes_together(shapes) if shapes else 0


def _gpu_bytes_beside_banks(stage: Train, size: EncoderSize, runtime: Runtime, tokens: float) -> float:
    activations = sentences_at_a_time(stage, runtime) * _sentence_bytes_on_gpu(stage, size, runtime, tokens)
    at_a_step = 0.0 if stage.training.freeze_encoder else step_bytes(size.num_parameters, runtime, largest=size.largest)
    return _gpu_bytes_at_rest(stage, size, runtime) + max(activations, at_a_step)


def _gpu_bytes_at_rest(stage: Train, size: EncoderSize, runtime: Runtime) -> float:
    return CUDA_BYTES + group_bytes(runtime) + _held_bytes(stage, size, runtime)


def fitting_micro_batch(stage: Train, size: EncoderSize, runtime: Runtime, *, num_bytes: float, tokens: float = TOKENS_PER_SENTENCE) -> int:
    """Estimate how many sentences (at least 1), of `tokens` tokens before the cut, have activations that fit into `num_bytes`."""
    left = num_bytes - _gpu_bytes_at_rest(stage, size, runtime)
    return max(1, int(left // _sentence_bytes_on_gpu(stage, size, runtime, tokens)))


def _held_bytes(stage: Train, size: EncoderSize, runtime: Runtime) -> float:
    """What the engine keeps for the parameters, and the copy for computing; of a frozen encoder only the weights."""
    copies = COPY_BYTES[stage.training.precision] * size.num_parameters
    if stage.training.freeze_encoder:
        return copies + NUMBER * size.num_parameters
    return copies + state_bytes(size.num_parameters, runtime, largest=size.largest)


def _sentence_bytes_on_gpu(stage: Train, size: EncoderSize, runtime: Runtime, tokens: float) -> float:
    """Activations and attention of one sentence: with added distances, the weights of sentences too long for kernels in Triton; else what
    the derivative takes for one layer at a time."""
    kept, longest = _sentence_bytes(stage, size, runtime, BYTES_PER_UNIT_ON_GPU, tokens), stage.training.max_length
    if size.adds_distances:
        tile = longest_tile(size.head_width or size.width // size.num_heads, NUMBER_BYTES[stage.training.precision])
        return kept + _weighted_layers(stage, size, runtime).sentence_bytes(tokens, longest=longest, shortest=tile)
    attention = 0 if stage.training.freeze_encoder else ATTENTION_BYTES[stage.training.precision]
    return kept + attention * size.num_heads * -(-longest // 64)


def _weighted_layers(stage: Train, size: EncoderSize, runtime: Runtime) -> WeightedLayers:
    num_kept = 0 if stage.training.freeze_encoder else 1 if runtime.recompute_layers else size.num_layers
    has_dropout = stage.regularizers.attention_dropout != 0.0
    return WeightedLayers(num_heads=size.num_heads, num_kept=num_kept, has_dropout=has_dropout, precision=stage.training.precision)


def _sentence_bytes(stage: Train, size: EncoderSize, runtime: Runtime, bytes_per_unit: Mapping[str, float], tokens: float) -> float:
    """Activations of one sentence."""
    units = min(tokens, stage.training.max_length) * size.width
    of_a_layer = bytes_per_unit[stage.training.precision] * size.kept_share * units
    if stage.training.freeze_encoder:  # nothing is kept for a backward pass: one layer at a time
        return of_a_layer
    if runtime.recompute_layers:  # the input of each in float32, and all of the one that is recomputed
        return of_a_layer + 4 * units * size.num_layers
    return of_a_layer * size.num_layers
