"""What DeepSpeed costs: training steps by each engine and ZeRO stage, in turn, over one worker or several.

Of a peer with several workers its own process is the first rank; it starts the others by `python -m rayjobs.benchmarks.engines`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rayjobs.benchmarks.interleaved import Peer
from rayjobs.benchmarks.peers import Work, training_steps

TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class EngineWork(Work):
    """Training by one engine. zero_stage: 0 to 3 of DeepSpeed, None for plain torch; workers share the batch and have `threads` each."""

    zero_stage: int | None
    workers: int = 1


def engines(work: Work, *, workers: int) -> dict[str, Peer[EngineWork]]:
    """By name: plain torch, and DeepSpeed with each ZeRO stage, over so many workers."""
    stages = {TORCH: None} | {f"ZeRO {stage}": stage for stage in range(4)}
    return {
        name: Peer(run=engine_training, work=EngineWork(**vars(work), zero_stage=stage, workers=workers)) for name, stage in stages.items()
    }


def engine_training(work: EngineWork) -> Iterator[dict[str, float]]:
    """One optimizer step of all workers a draw; between draws they wait for one another and compute nothing."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for rank in range(1, work.workers):
            stack.enter_context(_beside(work, rank, folder))
        yield from _rank_steps(work, 0, folder)


def _rank_steps(work: EngineWork, rank: int, folder: str) -> Iterator[dict[str, float]]:
    import torch.distributed as dist

    os.environ["LOCAL_RANK"] = str(rank)  # without which DeepSpeed does not start
    dist.init_process_group("gloo", init_method=f"file://{Path(folder) / 'group'}", rank=rank, world_size=work.workers)
    steps = training_steps(work, _engine(work))
    while True:
        dist.barrier()
        yield next(steps)


def _engine(work: EngineWork) -> Callable[..., Any]:
    if work.zero_stage is None:
        from sentdist.learning.engine import TorchEngine

        return partial(TorchEngine, device=work.device)
    from sentdist.run.deepspeed_engine import DeepSpeedEngine

    return partial(DeepSpeedEngine, zero_stage=work.zero_stage, device=work.device)


def _beside(work: EngineWork, rank: int, folder: str) -> subprocess.Popen[bytes]:
    """A rank in its own process, which ends when its standard input does; a peer's process may have no children of multiprocessing's."""
    process = subprocess.Popen([sys.executable, "-m", "rayjobs.benchmarks.engines"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    pickle.dump((work, rank, folder), process.stdin)
    process.stdin.flush()
    return process


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """A further rank: takes each step that the first one takes, until that one is gone."""
    work, rank, folder = pickle.load(sys.stdin.buffer)
    end = threading.Thread(target=_end_with_stdin, daemon=True)
    end.start()
    try:
        for _ in _rank_steps(work, rank, folder):
            pass
    except RuntimeError:  # as the group's where the first rank is gone, a moment before this process's input ends
        end.join(timeout=10)
        raise


if __name__ == "__main__":
    main()
