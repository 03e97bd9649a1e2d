"""How much memory an engine keeps for the parameters that it trains, beside activations: read in DeepSpeed's source, and counted.

Counted is what torch holds at the peak of a step (tests/parity/test_engine_memory.py), on 1, 2 and 4 workers, of models whose gradients
travel in one piece, in four and in eight, and of one with two large matrices. Bytes a parameter, in eight pieces:

| | 1 worker | 2 | 4 |
|---|---|---|---|
| torch, ZeRO 0 | 16 | 16.5 | 16.5 |
| ZeRO 1 | 24 | 16 | 12 |
| ZeRO 2 | 24 | 14 | 9 |
| ZeRO 3 | 24.5 | 13 | 8 |

A matrix that is larger than a piece, as the embeddings of words may be, travels whole.
"""

from __future__ import annotations

from sentdist.learning.gradient_pieces import BUCKET_BYTES, BUCKET_NUMBERS, MOST_LIVE, MOST_ROWS
from sentdist.plan.runtime import Runtime

NUMBER = 4  # bytes of float32, in which weights, gradients and the optimizer's moments are kept in every precision
# NCCL's own, which torch does not see: 16 channels to three neighbours, each way 4 MiB (NCCL_BUFFSIZE) and half as much for its quick
# protocols, come to 0.6 GiB. By its defaults; not measured here.
NCCL_BYTES = 0.6 * 2**30


def state_bytes(num_parameters: float, runtime: Runtime, *, largest: float) -> float:
    """What lies there while activations do: weights, gradients, AdamW's two moments; with ZeRO the worker's part of the weights once more,
    and the pieces in which gradients, and with ZeRO 3 weights, travel. A bound of what was counted, up to a quarter above it.

    largest: parameters of the largest matrix.
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
    """The ZeRO stage at which a worker keeps least, on as many workers."""
    return min(range(4), key=lambda stage: state_bytes(num_parameters, runtime.model_copy(update={"zero_stage": stage}), largest=largest))


def step_bytes(num_parameters: float, runtime: Runtime, *, largest: float) -> float:
    """What comes on top as the activations go: at ZeRO stage 0, over several workers, the bucket that the gradients move into, or the rows
    of word embeddings that travel.

    largest: parameters of the largest matrix.
    """
    if runtime.zero_stage > 0 or runtime.most_workers == 1:
        return 0.0
    return min(NUMBER * num_parameters, max(BUCKET_BYTES, NUMBER * largest * MOST_ROWS))


def group_bytes(runtime: Runtime) -> float:
    """What the process group of a training takes of a GPU, of which torch knows nothing."""
    return NCCL_BYTES if runtime.most_workers > 1 else 0.0
