"""Speed against a named peer, both sides interleaved in one run: `python -m rayjobs.benchmarks.speed --data DIR --out infra/benchmarks`."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rayjobs.benchmarks import out_folder
from rayjobs.benchmarks.engines import TORCH, engines
from rayjobs.benchmarks.interleaved import Peer, Turns, interleave, machine
from rayjobs.benchmarks.peers import PARTS, PEERS, Work, encoding_sentences, packaged_encoder
from rayjobs.benchmarks.speed_page import ENGINES, speed_page
from sentdist.recipe.stage import Json

DEFAULTS = ("training", "encoding")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One side of one comparison. Rates are medians over rounds."""

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
    """Run the comparisons asked for and write speed.json and speed.md; parts that are not asked for stay as they were measured."""
    asked = _arguments()
    folder: Path = asked.out
    kept = folder / "speed.json"
    parts: dict[str, dict[str, Json]] = json.loads(kept.read_text()) if kept.is_file() else {}
    for what in asked.what:
        measured = _sts(asked) if what == "sts" else _of_engines(what, asked) if what in ENGINES else _against_peer(what, asked)
        parts[what] = {"machine": dict(machine(asked.threads)), "command": _command(what, asked), **measured}
        kept.write_text(json.dumps(parts, indent=1))
        (folder / "speed.md").write_text(speed_page(parts))
    print(f"written: {folder / 'speed.md'}")


def _against_peer(what: str, asked: argparse.Namespace) -> dict[str, Json]:
    figures: list[Figure] = []
    for work in _works(asked):
        sides = {side: Peer(run=run, work=work) for side, run in PEERS[what].items()}
        found = interleave(sides, rounds=asked.rounds, units=asked.units if what == "training" else 1)
        count = work.sentences_per_step if what == "training" else len(encoding_sentences(work))
        figures += [_figure(what, side, work, turns, count, asked.rounds) for side, turns in found.items()]
        print(_lines(figures[-2:]), flush=True)
    small: dict[str, Json] = {name: dict(values) for name, values in _small_figures().items()} if what == "training" else {}
    return {"figures": [asdict(figure) for figure in figures], **small}


def _of_engines(what: str, asked: argparse.Namespace) -> dict[str, Json]:
    figures: list[Figure] = []
    for work in _works(asked):
        found = interleave(engines(work, workers=ENGINES[what]), rounds=asked.rounds, units=asked.units)
        for side, turns in found.items():
            ratio = turns.over(found[TORCH], units=asked.units)
            figure = _figure(what, side, work, turns, work.sentences_per_step, asked.rounds)
            figures.append(replace(figure, parts={"of_torch": round(ratio, 3)}))
            print(f"{work.precision} max {work.max_length:3} {side}: {figure.seconds:.3f} s a step, {ratio:.2f} of torch's", flush=True)
    return {"figures": [asdict(figure) for figure in figures]}


def _works(asked: argparse.Namespace) -> Iterator[Work]:
    """What is compared: each length in each precision."""
    encoder, table = asked.encoder or packaged_encoder(), triplets(Path(asked.data))
    for max_length in asked.max_length:
        for precision in asked.precision:
            yield Work(
                encoder=encoder, triplets=table, batch_size=64, max_length=max_length, precision=precision, temperature=0.05,
                threads=asked.threads,
            )  # fmt: skip


def _sts(asked: argparse.Namespace) -> dict[str, Json]:
    from rayjobs.benchmarks.sts_peers import StsWork, measured_sts

    work = StsWork(
        encoder=asked.encoder or packaged_encoder(), data=asked.data, tasks=tuple(asked.tasks), precision="fp32", threads=asked.threads
    )
    figures = measured_sts(work, rounds=asked.rounds)
    for figure in figures:
        print(figure, flush=True)
    return {"figures": [asdict(figure) for figure in figures]}


def _command(what: str, asked: argparse.Namespace) -> str:
    own = f"--tasks {' '.join(asked.tasks)}" if what == "sts" else f"--max-length {' '.join(map(str, asked.max_length))}"
    units = f" --units {asked.units}" if what == "training" or what in ENGINES else ""
    encoder = f" --encoder {Path(asked.encoder).name}" if asked.encoder else ""
    options = f"--threads {asked.threads} --rounds {asked.rounds}{units}"
    return f"python -m rayjobs.benchmarks.speed --data DIR{encoder} --what {what} {own} {options}"


def _figure(what: str, side: str, work: Work, turns: Turns, count: int, rounds: int) -> Figure:
    seconds = turns.median("seconds")
    return Figure(
        what=what, side=side, precision=work.precision, max_length=work.max_length, sentences_per_s=round(count / seconds, 1),
        seconds=round(seconds, 4), peak_gib=round(turns.peak_gib, 2), rounds=rounds,
        parts={part: round(turns.median(part), 4) for part in PARTS if part in turns.samples[0]},
    )  # fmt: skip


def _small_figures() -> dict[str, dict[str, float]]:
    """Look-up of 64 rows of a bank, and the share of Eq. 3 in a step: milliseconds, medians of 50."""
    import torch

    from sentdist.objectives.rcl import rcl

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


def _lines(pair: list[Figure]) -> str:
    ours, peer = pair
    ratio = ours.sentences_per_s / peer.sentences_per_s
    return (
        f"{ours.what:9} {ours.precision} max {ours.max_length:3}: sentdist {ours.sentences_per_s:8.1f} sentences/s ({ours.peak_gib:.2f} "
        f"GiB), sentence-transformers {peer.sentences_per_s:8.1f} ({peer.peak_gib:.2f} GiB): {ratio:.2f}×"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="data root with nli/triplets.parquet, and sts/*.parquet for the part sts")
    parser.add_argument("--encoder", help="folder of a checkpoint; else the packaged MiniLM")
    parser.add_argument("--out", default="infra/benchmarks", type=out_folder)
    parser.add_argument("--what", nargs="+", default=list(DEFAULTS), choices=[*PEERS, *ENGINES, "sts"])
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], help="not of sts, which compares both with the peer's default")
    parser.add_argument("--max-length", nargs="+", type=int, default=[128, 32], help="not of sts, which takes the encoder's own")
    parser.add_argument("--tasks", nargs="+", default=["sts"], help="of sts")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--units", type=int, default=3, help="optimizer steps a turn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
