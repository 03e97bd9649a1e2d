"""How much memory an engine keeps for the parameters that it trains, beside activations: read in DeepSpeed's source, and counted.

Counted is what torch holds at the peak of a step (tests/parity/test_engine_memory.py), on 1, 2 and 4 workers, where the gradient travels in
one piece and in four. Bytes a parameter, in one piece:

| | 1 worker | 2 | 4 |
|---|---|---|---|
| torch, ZeRO 0 | 16 | 20 | 20 |
| ZeRO 1, 2 | 24 | 18 to 20 | 15 to 18 |
| ZeRO 3 | 32 | 22 to 26 | 17 to 21 |

So ZeRO saves memory from four workers on, and ZeRO 3 more than ZeRO 2 only where an encoder has more than MOST_AT_ONCE parameters.
"""

from __future__ import annotations

from sentdist.learning.gradient_pieces import BUCKET_BYTES, MOST_AT_ONCE
from sentdist.plan.runtime import Runtime

NUMBER = 4  # bytes of float32, in which weights, gradients and the optimizer's moments are kept in every precision
MOST_LIVE = 1_000_000_000  # parameters that ZeRO 3 holds whole at a time, and does not let go between two uses, as DeepSpeed has it
# NCCL's own, which torch does not see: 16 channels to three neighbours, each way 4 MiB (NCCL_BUFFSIZE) and half as much for its quick
# protocols, come to 0.6 GiB. By its defaults; not measured here.
NCCL_BYTES = 0.6 * 2**30


def state_bytes(num_parameters: float, runtime: Runtime) -> float:
    """What lies there while activations do: weights, gradients, AdamW's two moments; with ZeRO the worker's part of the weights once more,
    and the pieces in which gradients, and with ZeRO 3 weights, travel. A bound of what was counted, up to a quarter above it.
    """
    whole, part = NUMBER * num_parameters, NUMBER * num_parameters / runtime.fewest_workers
    from_others = NUMBER * min(num_parameters, MOST_AT_ONCE) * (1 - 1 / runtime.fewest_workers)
    match runtime.zero_stage:
        case 0:
            return 4 * whole
        case 1:
            return 2 * whole + 4 * part + 2 * from_others
        case 2:
            return whole + 5 * part + 3 * from_others
        case _:
            return 5 * part + 2 * NUMBER * (min(num_parameters, MOST_LIVE) + min(num_parameters, MOST_AT_ONCE))


def step_bytes(num_parameters: float, runtime: Runtime) -> float:
    """What comes on top as the activations go: at ZeRO stage 0, over several workers, the bucket that the gradients move into."""
    return min(NUMBER * num_parameters, BUCKET_BYTES) if runtime.zero_stage == 0 and runtime.most_workers > 1 else 0.0


def group_bytes(runtime: Runtime) -> float:
    """What the process group of a training takes of a GPU, of which torch knows nothing."""
    return NCCL_BYTES if runtime.most_workers > 1 else 0.0
