"""The page of the speed benchmark, a function of speed.json: each part with the machine and the command that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# At most so many tokens a sentence: 32, and 128.
TARGETS = {
    ("training", "fp32"): (2.4, 3.8),
    ("training", "bf16"): (2.8, 4.5),
    ("encoding", "fp32"): (1.6, 1.6),
    ("encoding", "bf16"): (2.0, 2.0),
}
ENGINE_TARGETS = {"ZeRO 0": 1.05, "ZeRO 1": 1.15, "ZeRO 2": 1.15, "ZeRO 3": 1.3}  # of a step of the torch engine, at most
STS_TARGETS = {"default": 3.0, "equal": 1.5}
PEER_DEFAULT = ("sentence-transformers", "fp32")

ENGINES = {"engines": 1, "engines-of-two": 2}  # parts that compare engines, and their workers

TITLES = {
    "training": "Training",
    "engines": "Training by DeepSpeed beside plain torch",
    "engines-of-two": "Training by DeepSpeed beside plain torch, over two workers",
    "encoding": "Encoding",
    "sts": "Scoring STS tasks",
}

Figures = list[Mapping[str, Any]]


def speed_page(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown of all parts in the order of `TITLES`."""
    lines = ["# Speed against sentence-transformers", "", "Both sides interleaved in one run, each in a process of its own; medians.", ""]
    for what in TITLES:
        if what not in parts:
            continue
        part = parts[what]
        lines += [
            f"## {TITLES[what]}",
            "",
            *(f"- {name}: {value}" for name, value in part["machine"].items()),
            f"- command: `{part['command']}`",
            "",
        ]
        lines += _sts(part) if what == "sts" else _engines(part["figures"], ENGINES[what]) if what in ENGINES else _rates(part["figures"])
        if what == "training":
            lines += _shares(part)
    return "\n".join(lines)


def _rates(figures: Figures) -> list[str]:
    lines = [
        "| precision | max length | sentdist, sentences/s | sentence-transformers | ratio | target | peak GiB, ours / theirs |",
        "|---|---|---|---|---|---|---|",
    ]
    for ours, peer in zip(figures[::2], figures[1::2], strict=True):
        target = TARGETS[ours["what"], ours["precision"]][ours["max_length"] >= 75]
        lines.append(
            f"| {ours['precision']} | {ours['max_length']} | {ours['sentences_per_s']} | {peer['sentences_per_s']} | "
            f"**{ours['sentences_per_s'] / peer['sentences_per_s']:.2f}×** | {target}× | {ours['peak_gib']} / {peer['peak_gib']} |"
        )
    return [*lines, ""]


def _engines(figures: Figures, workers: int) -> list[str]:
    who = "One worker each, which shows what DeepSpeed does around a step, not what its collectives cost."
    if workers > 1:
        who = f"{workers} workers each, processes of one machine that share the batch and send by gloo. Peak memory is that of the first."
    lines = [
        f"{who} Seconds a step: medians. Beside torch's: the median over rounds.",
        "",
        "| precision | max length | engine | seconds | of torch's | target | peak GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in figures:
        ratio = f"**{one['parts']['of_torch']:.2f}**"
        target = ENGINE_TARGETS.get(one["side"])
        lines.append(
            f"| {one['precision']} | {one['max_length']} | {one['side']} | {one['seconds']:.3f} | {ratio if target else '1'} | "
            f"{target or '–'} | {one['peak_gib']} |"
        )
    return [*lines, ""]


def _shares(part: Mapping[str, Any]) -> list[str]:
    names = list(part["figures"][0]["parts"])
    lines = ["Where a step of ours goes (seconds, medians):", "", f"| precision | max length | {' | '.join(names)} |"]
    lines.append("|---|---|" + "---|" * len(names))
    for ours in part["figures"][::2]:
        lines.append(f"| {ours['precision']} | {ours['max_length']} | " + " | ".join(f"{ours['parts'][one]:.4f}" for one in names) + " |")
    eq3 = [part[f"eq3_batch_{batch}"]["milliseconds"] for batch in (64, 512)]
    return [
        *lines,
        "",
        f"Eq. 3 with N = 4, forward and backward: {eq3[0]} ms at batch 64, {eq3[1]} ms at batch 512.",
        f"Look-up of 64 rows in a bank of N = 4: {part['bank']['lookup_of_64_rows_ms']} ms.",
        "",
    ]


def _sts(part: Mapping[str, Any]) -> list[str]:
    figures: Figures = part["figures"]
    seconds = {(one["side"], one["precision"]): one["seconds"] for one in figures}
    lines = [
        "Ours is the whole scores stage of `sentdist evaluate`: encoder and data read, every different sentence encoded once, items and "
        "spectrum written. Theirs are",
        "`EmbeddingSimilarityEvaluator`s in their default settings, model and pairs in memory. The peer's default precision is fp32; in "
        "bf16 its weights are bfloat16.",
        "",
        f"| side | precision | seconds | over the peer's default (target {STS_TARGETS['default']}×) | at equal precision (target "
        f"{STS_TARGETS['equal']}×) | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for one in figures:
        peer = seconds["sentence-transformers", one["precision"]]
        ratios = [f"**{other / one['seconds']:.2f}×**" for other in (seconds[PEER_DEFAULT], peer)]
        if one["side"] != "sentdist":
            ratios = ["–", "–"]
        lines.append(f"| {one['side']} | {one['precision']} | {one['seconds']:.1f} | {' | '.join(ratios)} | {one['peak_gib']} |")
    tasks = list(figures[0]["scores"])
    lines += ["", "Spearman × 100:", "", f"| side | precision | {' | '.join(tasks)} |", "|---|---|" + "---|" * len(tasks)]
    for one in figures:
        lines.append(f"| {one['side']} | {one['precision']} | " + " | ".join(f"{one['scores'][task]:.3f}" for task in tasks) + " |")
    lines += ["", f"Largest difference between the sides at one precision: {', '.join(_differences(figures))}.", ""]
    return lines


def _differences(figures: Figures) -> list[str]:
    scores = {(one["side"], one["precision"]): one["scores"] for one in figures}
    found = []
    for precision in dict.fromkeys(one["precision"] for one in figures):
        ours, peer = (scores[side, precision] for side in ("sentdist", "sentence-transformers"))
        found.append(f"{max(abs(ours[task] - peer[task]) for task in ours):.3f} in {precision}")
    return found
