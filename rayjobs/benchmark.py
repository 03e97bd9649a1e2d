"""Speed against a named peer, both sides interleaved in one run: `python -m rayjobs.benchmark --data DIR --out infra/benchmarks`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rayjobs.contestants import CONTESTANTS, PARTS, Work, encoding_sentences, packaged_encoder

TARGETS = {("training", "fp32"): 3.0, ("training", "bf16"): 2.0, ("encoding", "fp32"): 1.8, ("encoding", "bf16"): 1.5}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One side of one comparison. Rates are medians over rounds; `others_busy` is the largest load others put on the machine meanwhile."""

    what: str
    side: str
    precision: str
    max_length: int
    sentences_per_s: float
    seconds: float
    peak_gib: float
    rounds: int
    parts: dict[str, float]


def main() -> None:
    """Run the comparisons asked for and write speed.json and speed.md."""
    asked = _arguments()
    encoder, table = packaged_encoder(), triplets(Path(asked.data))
    figures: list[Figure] = []
    for what in asked.what:
        for max_length in asked.max_length:
            for precision in asked.precision:
                work = Work(
                    encoder=encoder,
                    triplets=table,
                    batch_size=64,
                    max_length=max_length,
                    precision=precision,
                    temperature=0.05,
                    threads=asked.threads,
                )
                figures += interleave(what, work, rounds=asked.rounds, units=asked.units if what == "training" else 1)
                print(_lines(figures[-2:]), flush=True)
    report = {"machine": machine(asked.threads), "figures": [figure.__dict__ for figure in figures], **_small_figures()}
    folder = Path(asked.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed.json").write_text(json.dumps(report, indent=1))
    (folder / "speed.md").write_text(_markdown(report, figures, asked))
    print(f"written: {folder / 'speed.md'}")


def interleave(what: str, work: Work, *, rounds: int, units: int) -> list[Figure]:
    """Let the sides take turns, `units` draws a turn; each lives in a process of its own, so that its peak memory is its own."""
    context = multiprocessing.get_context("spawn")
    sides = {}
    for side in CONTESTANTS[what]:
        here, there = context.Pipe()
        process = context.Process(target=_take_turns, args=(what, side, work, there), daemon=True)
        process.start()
        sides[side] = (process, here)
    draws: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for number in range(rounds + 1):  # the first round warms up
        for side, (_, pipe) in sides.items():
            pipe.send(units)
            drawn = pipe.recv()
            draws[side] += drawn if number else []
    peaks = {}
    for side, (process, pipe) in sides.items():
        pipe.send(0)
        peaks[side] = pipe.recv()
        process.terminate()
        process.join()
    count = work.sentences_per_step if what == "training" else len(encoding_sentences(work))
    return [_figure(what, side, work, draws[side], peaks[side], count, rounds) for side in sides]


def _take_turns(what: str, side: str, work: Work, pipe: Connection) -> None:
    contestant: Iterator[dict[str, float]] = CONTESTANTS[what][side](work)
    while units := pipe.recv():
        pipe.send([next(contestant) for _ in range(units)])
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def _figure(what: str, side: str, work: Work, draws: list[dict[str, float]], peak: float, count: int, rounds: int) -> Figure:
    seconds = statistics.median(draw["seconds"] for draw in draws)
    parts = {part: statistics.median(draw[part] for draw in draws) for part in PARTS if part in draws[0]}
    return Figure(
        what=what, side=side, precision=work.precision, max_length=work.max_length, sentences_per_s=round(count / seconds, 1),
        seconds=round(seconds, 4), peak_gib=round(peak, 2), rounds=rounds, parts={part: round(value, 4) for part, value in parts.items()},
    )  # fmt: skip


def _small_figures() -> dict[str, dict[str, float]]:
    """Look-up of 64 rows of a bank, and the share of Eq. 3 in a step: milliseconds, medians of 50."""
    import torch

    from sentdist.learning.objectives.rcl import rcl

    torch.set_num_threads(2)
    found: dict[str, dict[str, float]] = {}
    for batch in (64, 512):
        generator = torch.Generator().manual_seed(0)
        anchors, positives = (torch.randn(batch, 384, generator=generator, requires_grad=True) for _ in range(2))
        negatives = torch.randn(batch, 384, generator=generator, requires_grad=True)
        augmented = torch.randn(2, 4, batch, 384, generator=generator)

        def once(anchors=anchors, positives=positives, negatives=negatives, augmented=augmented) -> float:  # type: ignore[no-untyped-def]
            started = time.perf_counter()
            rcl(anchors, positives, torch.cat([positives, negatives]), augmented[0], augmented[1],
                first_row=0, temperature=1.0, regulator_temperature=1.0, regulator_weight=1.0).backward()  # fmt: skip
            return time.perf_counter() - started

        found[f"eq3_batch_{batch}"] = {"milliseconds": round(1e3 * statistics.median(once() for _ in range(50)), 2)}
    return found | {"bank": {"lookup_of_64_rows_ms": _lookup_ms()}}


def _lookup_ms() -> float:
    import tempfile

    import numpy as np

    from sentdist.learning.bank import FileBank

    with tempfile.TemporaryDirectory() as scratch:
        folders = []
        for number in range(4):
            folder = Path(scratch) / str(number)
            (folder / "shards").mkdir(parents=True)
            np.save(folder / "shards" / "00000.npy", np.random.default_rng(number).standard_normal((20000, 384)).astype(np.float16))
            (folder / "bank.json").write_text(
                json.dumps({"num_sentences": 20000, "width": 384, "dtype": "float16", "rows_per_shard": 20000})
            )
            folders.append(folder)
        bank = FileBank(folders)
        ids = np.random.default_rng(9).integers(0, 20000, size=(200, 64))
        seconds = []
        for row in ids:
            started = time.perf_counter()
            bank.rows(row)
            seconds.append(time.perf_counter() - started)
    return round(1e3 * statistics.median(seconds), 3)


def triplets(data: Path) -> pa.Table:
    """Anchor, positive, negative of the NLI triplets."""
    table = pq.read_table(data / "nli" / "triplets.parquet", filters=[("split", "=", "train")])
    return table.select(["sent0", "sent1", "hard_neg"]).rename_columns(["anchor", "positive", "negative"]).combine_chunks()


def machine(threads: int) -> dict[str, str]:
    """What a figure was measured on."""
    from sentdist.stages.environment import environment

    found = environment()
    names = ("processor", "python", "torch", "transformers", "sentence-transformers", "commit")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "threads": str(threads),
        **{name: found[name] for name in names if name in found},
    }


def _lines(pair: list[Figure]) -> str:
    ours, peer = pair
    ratio = ours.sentences_per_s / peer.sentences_per_s
    return (
        f"{ours.what:9} {ours.precision} max {ours.max_length:3}: sentdist {ours.sentences_per_s:8.1f} sentences/s ({ours.peak_gib:.2f} GiB), "
        f"sentence-transformers {peer.sentences_per_s:8.1f} ({peer.peak_gib:.2f} GiB): {ratio:.2f}×"
    )


def _markdown(report: Mapping[str, object], figures: list[Figure], asked: argparse.Namespace) -> str:
    machine = report["machine"]
    assert isinstance(machine, dict)
    lines = ["# Speed against sentence-transformers", "", "Interleaved in one run, medians; ratios are at equal precision.", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += [
        f"- command: `python -m rayjobs.benchmark --data DIR --max-length {' '.join(map(str, asked.max_length))} --threads {asked.threads} --rounds {asked.rounds}`",
        "",
    ]
    lines += [
        "| what | precision | max length | sentdist, sentences/s | sentence-transformers | ratio | target | peak GiB, ours / theirs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ours, peer in zip(figures[::2], figures[1::2], strict=True):
        target = TARGETS[ours.what, ours.precision] if ours.max_length >= 75 else None
        lines.append(
            f"| {ours.what} | {ours.precision} | {ours.max_length} | {ours.sentences_per_s} | {peer.sentences_per_s} | "
            f"**{ours.sentences_per_s / peer.sentences_per_s:.2f}×** | {f'{target}×' if target else '–'} | {ours.peak_gib} / {peer.peak_gib} |"
        )
    lines += [
        "",
        "Where a step of ours goes (seconds, medians):",
        "",
        "| precision | max length | " + " | ".join(PARTS) + " |",
        "|---|---|" + "---|" * len(PARTS),
    ]
    for ours in figures[::2]:
        if ours.parts:
            lines.append(f"| {ours.precision} | {ours.max_length} | " + " | ".join(f"{ours.parts[part]:.4f}" for part in PARTS) + " |")
    small = {
        name: next(iter(values.values()))
        for name, values in report.items()
        if isinstance(values, dict) and name.startswith(("eq3", "bank"))
    }
    lines += [
        "",
        f"Eq. 3 with N = 4, forward and backward: {small['eq3_batch_64']} ms at batch 64, {small['eq3_batch_512']} ms at batch 512.",
    ]
    lines += [f"Look-up of 64 rows in a bank of N = 4: {small['bank']} ms.", ""]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="data root with nli/triplets.parquet")
    parser.add_argument("--out", default="infra/benchmarks")
    parser.add_argument("--what", nargs="+", default=["training", "encoding"], choices=list(CONTESTANTS))
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--max-length", nargs="+", type=int, default=[128, 32])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--units", type=int, default=3, help="optimizer steps a turn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
