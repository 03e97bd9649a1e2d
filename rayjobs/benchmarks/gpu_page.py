"""The page of the GPU benchmark, a function of gpu.json: each part with the machine and the command that measured it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sentdist.text import markdown_table

FASTER = 2.0  # than sentence-transformers, at batches of 64 and 512
SHARE = 0.6  # of the measured peak, at batches of 4,096

Part = Mapping[str, Any]


def gpu_page(parts: Mapping[str, Part]) -> str:
    """Markdown of the parts that there are, in the order of PAGES."""
    lines = ["# On a GPU", ""]
    for what, of_part in PAGES.items():
        if what not in parts:
            continue
        part = parts[what]
        lines += [f"## {what.capitalize()}", ""]
        lines += [*(f"- {name}: {value}" for name, value in part["machine"].items()), f"- command: `{part['command']}`", ""]
        lines += [*of_part(part), ""]
    return "\n".join(lines)


def _correctness(part: Part) -> list[str]:
    lines = [f"`pytest tests/gpu`: {part['summary'].strip('= ')}"]
    for name in ("failed", "skipped"):
        lines += ["", f"{name.capitalize()}:", "", *(f"- {line}" for line in part[name])] if part[name] else []
    return lines


def _training(part: Part) -> list[str]:
    lines = [
        *_measured(part),
        f"Steps end to end: sentences come as text on their side, as token ids from a table that is made once on ours. Targets: {FASTER}× "
        f"at 64 and 512 rows, {SHARE:.0%} of the peak at 4,096.",
        "",
    ]  # fmt: skip
    rows = []
    for one in part["figures"]:
        ours = _ours_beside(one, part["figures"])
        ratio = f"**{ours['sentences_per_s'] / one['sentences_per_s']:.2f}×**" if ours and one["sentences_per_s"] else "–"
        rows.append([str(one["batch_size"]), one["precision"], _side(one), *_figures(one), ratio])
    head = ["rows a batch", "precision", "side", "sentences/s", "ms a step", "of the peak", "GiB in tensors / reserved", "ours is faster"]
    return [*lines, markdown_table(head, rows, num_left=3)]


def _encoding(part: Part) -> list[str]:
    head = ["precision", "side", "sentences/s", "ms in all", "of the peak", "GiB in tensors / reserved"]
    rows = [[one["precision"], _side(one), *_figures(one)] for one in part["figures"]]
    return [*_measured(part), "Tokenizing included, on both sides.", "", markdown_table(head, rows, num_left=2)]


def _memory(part: Part) -> list[str]:
    head = ["rows a batch", "precision", "what", "sentences/s", "ms a step", "of the peak", "GiB in tensors / reserved"]
    rows = [[str(one["batch_size"]), one["precision"], one["what"], *_figures(one)] for one in part["figures"]]
    return [*_measured(part), markdown_table(head, rows, num_left=3)]


def _attention(part: Part) -> list[str]:
    head = ["sentences", "precision", "a token sees", "dropout", "torch's kernels, ms (host)", "ours, ms (host)", "ours is faster"]
    pairs = zip(part["figures"][::2], part["figures"][1::2], strict=False)  # in turn; a half that was cut off is left out
    rows = [
        [
            f"{theirs['num_sentences']:,}", theirs["precision"], theirs["seen"], f"{theirs['dropout']:g}",
            *(f"{one['milliseconds']} ({one['host_milliseconds']})" for one in (theirs, ours)),
            f"**{theirs['milliseconds'] / ours['milliseconds']:.2f}×**",
        ]
        for theirs, ours in pairs
    ]  # fmt: skip
    about = "One layer's attention of the first sentences, forward and derivative; in brackets after how long the host was done with it."
    return [about, "", markdown_table(head, rows, num_left=3)]


def _profile(part: Part) -> list[str]:
    head = ["rows a batch", "precision", "ms a step", "ms of kernels", "kernels", "operations"]
    figures = part["figures"]
    rows = [
        [
            str(one["batch_size"]),
            one["precision"],
            *(str(one[name]) for name in ("milliseconds", "device_milliseconds", "kernels", "operations")),
        ]
        for one in figures
    ]
    lines = [
        "A training step of ours; operations of torch, views and those that others call counted, too.",
        "",
        markdown_table(head, rows, num_left=2),
    ]
    for one in figures:
        named = [f"- {milliseconds} ms, {calls:g} calls: `{name}`" for name, calls, milliseconds in one["largest"]]
        lines += ["", f"{one['batch_size']} rows in {one['precision']}:", "", *named] if named else []
    return lines


PAGES: dict[str, Callable[[Part], list[str]]] = {
    "correctness": _correctness,
    "training": _training,
    "encoding": _encoding,
    "memory": _memory,
    "attention": _attention,
    "profile": _profile,
}


def _measured(part: Part) -> list[str]:
    peaks = ", ".join(f"{peak} TFLOP/s in {precision}" for precision, peak in part["peaks"].items())
    return [f"Peak, measured by a product of square matrices: {peaks}. Sentences have {part['tokens_a_sentence']} tokens.", ""]


def _side(one: Part) -> str:
    return f"{one['side']}, {one['what']}" if one["what"] else str(one["side"])


def _figures(one: Part) -> list[str]:
    if one["error"]:
        return [one["error"], "–", "–", "–"]
    memory = f"{one['allocated_gib']} / {one['reserved_gib']}"
    return [f"{one['sentences_per_s']:,.0f}", str(one["milliseconds"]), f"{one['share']:.1%}", memory]


def _ours_beside(one: Part, figures: list[Part]) -> Part | None:
    """Our figure of the same batch and precision, for one of theirs."""
    same = [
        other for other in figures
        if other["side"] == "sentdist" and (other["batch_size"], other["precision"]) == (one["batch_size"], one["precision"])
    ]  # fmt: skip
    return same[0] if same and one["side"] != "sentdist" and not same[0]["error"] else None
