"""All that is asked of a GPU, in one go: `python -m rayjobs.benchmarks.gpu --data DIR --out infra/benchmarks`.

Whether it is right (`pytest tests/gpu`); training beside sentence-transformers; encoding; memory; attention of short sentences beside
torch's; where a step goes. Ray is not needed, sentence-transformers is. Parts that are not asked for stay as they were measured, and each
figure is written when it is there. `--device cpu --tiny` runs all of it small, to see that it runs; those figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path

import torch

from rayjobs.benchmarks import out_folder
from rayjobs.benchmarks.gpu_kernels import Attended, Profiled, attention, profiled_steps
from rayjobs.benchmarks.gpu_page import gpu_page
from rayjobs.benchmarks.gpu_peers import peer_encoding, peer_training
from rayjobs.benchmarks.interleaved import Sample, machine
from rayjobs.benchmarks.peers import Work, encoding_sentences, packaged_encoder, sentdist_encoding, sentdist_training
from rayjobs.benchmarks.speed import triplets
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.learning.precision import apply_matmul_precision
from sentdist.recipe.stage import Json

ROOT = Path(__file__).parents[2]
PARTS = ("correctness", "training", "encoding", "memory", "attention", "profile")
OURS, PEER = "sentdist", "sentence-transformers"
ATTENTIONS = ("sdpa", "flash_attention_2")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything. steps: of the optimizer, a multiple of those between two looks at the GPU (runtime.log_every, 5)."""

    batches: tuple[int, ...] = (64, 512, 4096)
    steps: int = 20
    rows: int = 40_960
    product: int = 8192  # of the matrix product whose speed is the peak
    sentences: int = 40_000
    budgets: tuple[int, ...] = (4096, 16_384, 65_536)  # tokens a forward pass of ours
    peer_batches: tuple[int, ...] = (32, 256)  # sentences a forward pass of theirs
    micro_batch: int = 1536


TINY = Sizes(
    batches=(8,), steps=5, rows=64, product=64, sentences=24, budgets=(512,), peer_batches=(8,), micro_batch=6
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What one case gave, or why it gave nothing.

    what: how it was asked. sentences_per_s: end to end. share: of the arithmetic that a product of the same precision reaches.
    allocated, reserved: GiB of the GPU at their peak, by torch's count; 0 on a CPU.
    """

    side: str
    what: str
    precision: str
    batch_size: int
    sentences_per_s: float = 0.0
    milliseconds: float = 0.0
    share: float = 0.0
    allocated_gib: float = 0.0
    reserved_gib: float = 0.0
    error: str = ""


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts asked for, write gpu.json and gpu.md; exit code 1 where a check of tests/gpu failed."""
    asked = _arguments(arguments)
    if asked.device != "cpu":
        keep_gpu_memory_whole()  # as every process of ours does
    folder: Path = asked.out
    kept = folder / "gpu.json"
    parts: dict[str, dict[str, Json]] = json.loads(kept.read_text()) if kept.is_file() else {}
    with tempfile.TemporaryDirectory() as scratch:
        for what in asked.what:
            said: dict[str, Json] = {"machine": dict(_machine(asked)), "command": _command(what, asked)}
            for measured in _correctness() if what == "correctness" else _measured(what, asked, Path(scratch)):
                parts[what] = {**said, **measured}
                kept.write_text(json.dumps(parts, indent=1))
                (folder / "gpu.md").write_text(gpu_page(parts))
    print(f"written: {folder / 'gpu.md'}")
    if parts.get("correctness", {}).get("failed"):
        raise SystemExit(1)


def _correctness() -> Iterator[dict[str, Json]]:
    """Of every test in tests/gpu whether it passed; those that skip say why."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    lines = done.stdout.splitlines() or done.stderr.splitlines()
    named = {kind: [line for line in lines if line.startswith(kind)] for kind in ("FAILED", "ERROR", "SKIPPED")}
    ended: list[Json] = [] if done.returncode in (0, 1) else [f"pytest ended with {done.returncode}"]
    yield {"summary": lines[-1], "failed": [*named["FAILED"], *named["ERROR"], *ended], "skipped": [*named["SKIPPED"]]}


def _measured(what: str, asked: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Json]]:
    """What is known after each figure."""
    sizes = TINY if asked.tiny else Sizes()
    if asked.batches:
        sizes = replace(sizes, batches=tuple(asked.batches))
    table = triplets(Path(asked.data)).slice(0, sizes.rows)
    work = Work(
        encoder=_encoder(asked, scratch), triplets=table, batch_size=0, max_length=asked.max_length, precision="bf16", temperature=0.05,
        threads=asked.threads, device=asked.device, num_sentences=sizes.sentences,
    )  # fmt: skip
    sentences = encoding_sentences(work) if what == "encoding" else list(chain(*(column.to_pylist() for column in table.columns)))
    meter = Meter(work, sizes, sentences)
    cases: dict[str, Callable[[Work, Sizes, Meter], Iterator[Figure | Attended | Profiled]]] = {
        "training": _training, "encoding": _encoding, "memory": _memory, "attention": _attention, "profile": _profile,
    }  # fmt: skip
    figures: list[Json] = []
    for figure in cases[what](work, sizes, meter):
        print(figure, flush=True)
        figures.append(asdict(figure))
        yield {
            "peaks": {name: round(peak, 1) for name, peak in meter.peaks.items()},
            "tokens_a_sentence": round(meter.tokens_a_sentence, 1),
            "figures": figures,
        }


class Meter:
    """Turns seconds into figures: knows the model's arithmetic, the GPU's peak, and how long sentences are."""

    def __init__(self, work: Work, sizes: Sizes, sentences: list[str]) -> None:
        encoder = SentenceEncoder.load(work.encoder)
        config = encoder.model.config
        width, inner = config.hidden_size, config.intermediate_size
        self.num_heads, self.head_width = config.num_attention_heads, width // config.num_attention_heads
        # Products of the layers with their weights; those within attention, which depend on lengths, are left out: a few in a hundred here.
        self._flops_a_token = 2 * config.num_hidden_layers * (4 * width**2 + 2 * width * inner)
        self.lengths = encoder.tokenize(sentences, max_length=work.max_length).lengths
        self.tokens_a_sentence = sum(self.lengths) / len(sentences)
        self.device, self._steps = torch.device(work.device), sizes.steps
        self._on_gpu = self.device.type == "cuda"
        self.peaks = measured_peaks(self.device, sizes.product)

    def trained(self, side: str, what: str, work: Work, run: Callable[[Work], Iterator[Sample]]) -> Figure:
        """A figure of training: seconds a step over `steps` steps, after as many that warm up."""
        figure = Figure(side=side, what=what, precision=work.precision, batch_size=work.batch_size)

        def seconds() -> float:
            samples = run(work)
            try:
                for _ in islice(samples, self._steps):
                    pass
                self._wait()
                started = time.perf_counter()
                for _ in islice(samples, self._steps):
                    pass
                self._wait()
                return (time.perf_counter() - started) / self._steps
            finally:
                samples.close()  # type: ignore[attr-defined]  # a generator, which holds its model

        return self._figure(figure, work, seconds, work.sentences_per_step, passes=3)

    def encoded(self, side: str, what: str, work: Work, run: Callable[[Work], Iterator[Sample]]) -> Figure:
        """A figure of encoding: the second time over all sentences."""
        figure = Figure(side=side, what=what, precision=work.precision, batch_size=work.batch_size)

        def seconds() -> float:
            samples = run(work)
            try:
                next(samples)
                return next(samples)["seconds"]
            finally:
                samples.close()  # type: ignore[attr-defined]

        return self._figure(figure, work, seconds, len(encoding_sentences(work)), passes=1)

    def _figure(self, figure: Figure, work: Work, measure: Callable[[], float], num_sentences: int, *, passes: int) -> Figure:
        """passes: how often the arithmetic of a forward pass is done, 3 where gradients are computed."""
        if self._on_gpu:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            seconds = measure()
        except Exception as error:  # one case that does not run, for want of memory say, is a line of the page
            return replace(figure, error=f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}")
        flops = passes * self._flops_a_token * self.tokens_a_sentence * num_sentences
        memory = (torch.cuda.max_memory_allocated(self.device), torch.cuda.max_memory_reserved(self.device)) if self._on_gpu else (0, 0)
        return replace(
            figure,
            sentences_per_s=round(num_sentences / seconds, 1),
            milliseconds=round(1e3 * seconds, 2),
            share=round(flops / seconds / (1e12 * self.peaks[work.precision]), 3),
            allocated_gib=round(memory[0] / 2**30, 2),
            reserved_gib=round(memory[1] / 2**30, 2),
        )

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize(self.device)


def measured_peaks(device: torch.device, size: int) -> dict[str, float]:
    """TFLOP/s of a product of two square matrices in each precision that the device has."""
    found = {}
    for precision in _precisions(device):
        apply_matmul_precision(device, "fp32" if precision == "bf16" else precision)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        for repeats in (3, 10):  # the first ones warm up
            started = time.perf_counter()
            for _ in range(repeats):
                product = left @ right
            product[0, 0].item()  # waits for the device
            found[precision] = repeats * 2 * size**3 / (time.perf_counter() - started) / 1e12
    return found


def _precisions(device: torch.device) -> tuple[str, str]:
    return ("bf16", "tf32") if device.type == "cuda" else ("bf16", "fp32")  # a CPU has no tf32


def _training(work: Work, sizes: Sizes, meter: Meter) -> Iterator[Figure]:
    for batch_size in sizes.batches:
        for precision in _precisions(meter.device):
            case = replace(work, batch_size=batch_size, precision=precision)
            yield meter.trained(OURS, "", case, sentdist_training)
            for way in _attentions(precision):
                yield meter.trained(PEER, way, case, partial(peer_training, attention=way))


def _encoding(work: Work, sizes: Sizes, meter: Meter) -> Iterator[Figure]:
    for precision in _precisions(meter.device):
        for budget in sizes.budgets:
            case = replace(work, precision=precision, tokens_per_batch=budget)
            yield meter.encoded(OURS, f"{budget} tokens a pass", case, sentdist_encoding)
        for way in _attentions(precision):
            for batch_size in sizes.peer_batches:
                case = replace(work, precision=precision, batch_size=batch_size)
                yield meter.encoded(PEER, f"{way}, {batch_size} sentences a pass", case, partial(peer_encoding, attention=way))


def _memory(work: Work, sizes: Sizes, meter: Meter) -> Iterator[Figure]:
    case = replace(work, batch_size=sizes.batches[-1])
    yield meter.trained(OURS, "all activations kept", case, sentdist_training)
    yield meter.trained(OURS, f"micro_batch {sizes.micro_batch}", replace(case, micro_batch=sizes.micro_batch), sentdist_training)
    yield meter.trained(OURS, "recompute_layers", replace(case, recompute_layers=True), sentdist_training)


def _attention(work: Work, sizes: Sizes, meter: Meter) -> Iterator[Attended]:
    counts = [3 * batch_size for batch_size in sizes.batches]
    precisions = ("bf16", "fp32", "tf32") if meter.device.type == "cuda" else ("bf16", "fp32")
    yield from attention(
        meter.lengths, meter.device, num_heads=meter.num_heads, width=meter.head_width, counts=counts, precisions=precisions
    )  # fmt: skip


def _profile(work: Work, sizes: Sizes, meter: Meter) -> Iterator[Profiled]:
    yield from profiled_steps(work, batches=sizes.batches, precisions=_precisions(meter.device), steps=sizes.steps)


def _attentions(precision: str) -> list[str]:
    """What sentence-transformers can attend with here; FlashAttention 2 computes in half precision and is a package of its own."""
    return [one for one in ATTENTIONS if one == "sdpa" or (precision == "bf16" and find_spec("flash_attn") is not None)]


def _encoder(asked: argparse.Namespace, scratch: Path) -> str:
    """A folder that both sides load."""
    if not asked.random_weights:
        return asked.encoder or packaged_encoder()
    folder = scratch / "encoder"
    if not folder.exists():
        torch.manual_seed(0)
        encoder = SentenceEncoder.load(asked.encoder or packaged_encoder(), initialization="random")
        encoder.save(folder, base_model="random weights")
    return str(folder)


def _machine(asked: argparse.Namespace) -> dict[str, str]:
    found = machine(asked.threads)
    if asked.device == "cpu":
        return found
    gpu = torch.cuda.get_device_properties(asked.device)
    flash = find_spec("flash_attn")
    return found | {
        "GPU": f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, compute capability {gpu.major}.{gpu.minor}",
        "CUDA": str(torch.version.cuda),
        "FlashAttention 2": "not installed" if flash is None else f"{version('flash_attn')} at {flash.origin}",
        "PYTORCH_ALLOC_CONF": os.environ.get("PYTORCH_ALLOC_CONF", "not set"),
    }


def _command(what: str, asked: argparse.Namespace) -> str:
    encoder = (f" --encoder {Path(asked.encoder).name}" if asked.encoder else "") + (" --random-weights" if asked.random_weights else "")
    tiny = " --tiny" if asked.tiny else ""
    batches = f" --batches {' '.join(map(str, asked.batches))}" if asked.batches else ""
    return (
        f"python -m rayjobs.benchmarks.gpu --data DIR --what {what} --device {asked.device}{encoder} --max-length "
        f"{asked.max_length}{batches}{tiny}"
    )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data root with nli/triplets.parquet, of which some 40,000 rows are read")
    parser.add_argument("--out", default="infra/benchmarks", type=out_folder)
    parser.add_argument("--what", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--encoder", help="folder of a checkpoint; else the packaged MiniLM")
    parser.add_argument("--random-weights", action="store_true", help="take architecture and tokenizer alone: speed is the same")
    parser.add_argument("--batches", type=int, nargs="+", help="rows of a step; else 64, 512 and 4,096")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    parser.add_argument("--tiny", action="store_true", help="to see that it runs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
