"""What a large batch costs in memory, with and without micro-batches:
`python -m rayjobs.benchmarks.memory --data DIR --out infra/benchmarks`."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from rayjobs.benchmarks import out_folder
from rayjobs.benchmarks.interleaved import machine
from rayjobs.benchmarks.peers import Work, packaged_encoder, sentdist_training
from rayjobs.benchmarks.speed import triplets

STEPS = 3
SIDES = ((64, None), (512, None), (512, 192), (512, 64))  # rows of a batch, sentences of a micro-batch


@dataclass(frozen=True, kw_only=True)
class Row:
    """A size of batch and what it cost: peak resident memory of the process, seconds of the last step,
    peak of the tensors that a step makes."""

    batch_size: int
    micro_batch: int | None
    peak_gib: float
    seconds_a_step: float
    tensors_gib: float


def main() -> None:
    """Train a few steps at each size, each in a process of its own, and write memory.json and memory.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="data root with nli/triplets.parquet")
    parser.add_argument("--out", default="infra/benchmarks", type=out_folder)
    parser.add_argument("--max-length", type=int, default=128)
    asked = parser.parse_args()
    work = Work(
        encoder=packaged_encoder(), triplets=triplets(Path(asked.data)), batch_size=64, max_length=asked.max_length, precision="fp32",
        temperature=0.05, threads=2,
    )  # fmt: skip
    rows: list[Row] = []
    for batch_size, micro_batch in SIDES:
        found = _measured(replace(work, batch_size=batch_size, micro_batch=micro_batch))
        rows.append(Row(batch_size=batch_size, micro_batch=micro_batch, **found))
        print(rows[-1], flush=True)
    (asked.out / "memory.json").write_text(json.dumps({"machine": machine(2), "rows": [asdict(row) for row in rows]}, indent=1))
    (asked.out / "memory.md").write_text(_markdown(rows, asked.max_length))


def _measured(work: Work) -> dict[str, float]:
    """What a process of its own finds; see Row."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_train, args=(work, there), daemon=True)
    process.start()
    found: dict[str, float] = here.recv()
    process.join()
    return found


def _train(work: Work, pipe: Connection) -> None:
    steps = sentdist_training(work)
    for _ in range(STEPS):
        started = time.perf_counter()
        next(steps)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    pipe.send({"peak_gib": round(peak, 2), "seconds_a_step": round(seconds, 2), "tensors_gib": round(_tensors_gib(steps), 2)})


def _tensors_gib(steps: Iterator[dict[str, float]]) -> float:
    """The most that tensors made in one step take at a time, in GiB: what a step needs, before the C library's heap has its share."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        next(steps)
    trace = Path(tempfile.mkdtemp()) / "trace.json"
    profiled.export_chrome_trace(str(trace))
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    shutil.rmtree(trace.parent)
    changes = (event["args"]["Bytes"] for event in sorted(events, key=lambda event: float(event["ts"])))
    return max(itertools.accumulate(changes)) / 2**30


def _markdown(rows: list[Row], max_length: int) -> str:
    lines = [
        "# Memory of a training process",
        "",
        f"MiniLM, (anchor, positive, negative) rows of NLI, max length {max_length}, fp32, torch engine, {STEPS} steps of AdamW.",
        "Tensors: the most that those made in a step take at a time. Process: its peak resident memory, with "
        "libraries, weights and optimizer state.",
        "Micro-batches are recomputed in the backward pass: value and gradient are those of one pass (`tests/parity/test_grad_cache.py`).",
        "",
        *(f"- {name}: {value}" for name, value in machine(2).items()),
        "- command: `python -m rayjobs.benchmarks.memory --data DIR`",
        "",
        "| rows a batch | sentences | sentences a micro-batch | tensors of a step, GiB | process, GiB | seconds a step |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        sizes = f"{row.batch_size} | {3 * row.batch_size} | {row.micro_batch or 'all'}"
        lines.append(f"| {sizes} | {row.tensors_gib} | {row.peak_gib} | {row.seconds_a_step} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
