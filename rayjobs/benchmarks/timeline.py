"""Where the seconds of a sweep went: `python -m rayjobs.benchmarks.timeline --store DIR --sweep demo --out demo.svg`.

A bar a stage, from the records of the store: their ends are known to the second.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rayjobs.benchmarks import out_file
from sentdist.report.style import PALETTE, Drawing, canvas, house_style, quiet, save
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep

RESOLUTION_S = 1.0  # records note their end to the second, so two stages of one slot may seem to overlap by so much
BAR = 0.8  # height, in slots


@dataclass(frozen=True, kw_only=True)
class Bar:
    """When a stage was built, in seconds after the first one began, and in which slot: stages of one slot follow one another."""

    kind: str
    label: str
    start_s: float
    end_s: float
    slot: int


def main() -> None:
    """Draw the sweep that the arguments name, and print the seconds of each kind of stage."""
    parser = argparse.ArgumentParser(prog="python -m rayjobs.benchmarks.timeline", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--store", required=True, help="folder or bucket with the sweep's artifacts")
    parser.add_argument("--sweep", required=True)
    parser.add_argument("--out", type=out_file, required=True, help="the SVG file")
    asked = parser.parse_args()
    store = ArtifactStore(asked.store)
    found = bars(list(load_sweep(store, asked.sweep).records(store).values()))
    asked.out.write_text(drawn(found, name=asked.sweep).svg)
    print(table(found))


def bars(records: Sequence[Record]) -> list[Bar]:
    """The stages in the order in which they began, each in the first slot that was free."""
    spans = [(datetime.fromisoformat(record.created_at).timestamp() - record.seconds, record) for record in records]
    spans.sort(key=lambda span: span[0])
    first = spans[0][0]
    slots: list[float] = []  # the end of each one's last stage
    found = []
    for begin, record in spans:
        start, end = begin - first, begin - first + record.seconds
        slot = next((number for number, free in enumerate(slots) if free <= start + RESOLUTION_S), len(slots))
        slots[slot : slot + 1] = [end]
        found.append(Bar(kind=record.kind, label=record.label, start_s=start, end_s=end, slot=slot))
    return found


def drawn(found: Sequence[Bar], *, name: str) -> Drawing:
    """The bars, a colour for each kind of stage."""
    colors = dict(zip(dict.fromkeys(bar.kind for bar in found), PALETTE, strict=False))
    with house_style():
        figure, (axes,) = canvas(width=7.2, height=0.9 + 0.45 * (1 + max(bar.slot for bar in found)))
        for kind, color in colors.items():
            mine = [bar for bar in found if bar.kind == kind]
            axes.barh(
                [bar.slot for bar in mine],
                [bar.end_s - bar.start_s for bar in mine],
                left=[bar.start_s for bar in mine],
                height=BAR,
                color=color,
                edgecolor="white",
                label=kind,
            )
        axes.set_yticks([])
        axes.set_xlabel("seconds after the first stage began")
        axes.invert_yaxis()
        figure.legend(loc="outside upper right", ncols=len(colors))
        quiet(axes)
        records = [[bar.label, bar.kind, f"{bar.start_s:.1f}", f"{bar.end_s:.1f}", bar.slot] for bar in found]
        return save(figure, name=name, caption="Stages of a sweep.", header=["stage", "kind", "start_s", "end_s", "slot"], records=records)


def table(found: Sequence[Bar]) -> str:
    """Markdown: stages and seconds of each kind, and what share of the slots' time they take."""
    whole_s = max(bar.end_s for bar in found)
    num_slots = 1 + max(bar.slot for bar in found)
    lines = ["| stage | number | seconds | of the slots' time |", "|---|---|---|---|"]
    for kind in dict.fromkeys(bar.kind for bar in found):
        mine = [bar.end_s - bar.start_s for bar in found if bar.kind == kind]
        lines.append(f"| {kind} | {len(mine)} | {sum(mine):.1f} | {sum(mine) / (whole_s * num_slots):.0%} |")
    useful_s = sum(bar.end_s - bar.start_s for bar in found)
    return "\n".join([*lines, f"| all | {len(found)} | {useful_s:.1f} | {useful_s / (whole_s * num_slots):.0%} |"])


if __name__ == "__main__":
    main()
