"""The figure of the probes: what tags and words a linear model reads out of each part of the embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sentdist.evaluation.summary import summarize
from sentdist.palette import PALETTE
from sentdist.report.style import INK, MARKERS, Drawing, canvas, check_drawable, house_style, save
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord

PARTS = {"pos": "tag channels", "bow": "word channels"}
TARGETS = {"tags": "tags: share of their information", "words": "words: R²"}

Found = Mapping[str, Mapping[str, Sequence[float]]]  # system -> "tags_from_pos", … -> values of seeds


def probe_drawings(sweep: SweepRecord, records: Mapping[str, Record]) -> Iterator[Drawing]:
    """The figure, where any scores have probes."""
    found: dict[str, dict[str, list[float]]] = {}
    for trial in sweep.trials:
        results = records[trial.key].results if trial.key in records else {}
        for name in (f"{target}_from_{part}" for target in TARGETS for part in PARTS):
            value = results.get(f"probes.{name}")
            if isinstance(value, int | float):
                found.setdefault(trial.cell, {}).setdefault(name, []).append(float(value))
    if found:
        yield probe_plot(found)


def probe_plot(found: Found) -> Drawing:
    """A line a system, a panel for tags and one for words; an adversary that works draws the other part's mark towards 0."""
    check_drawable(found, "probes")
    records: list[list[object]] = []
    with house_style():
        figure, panels = canvas(width=8.4, height=1.3 + 0.36 * len(found), columns=2)
        for axes, (target, title) in zip(panels, TARGETS.items(), strict=True):
            for place, (system, values) in enumerate(found.items()):
                for number, (part, words) in enumerate(PARTS.items()):
                    seeds = values.get(f"{target}_from_{part}")
                    if not seeds:
                        continue
                    one = summarize(seeds)
                    color = PALETTE[number]
                    axes.errorbar(
                        one.mean, place, xerr=one.sd or 0.0, fmt=MARKERS[number], color=color, markeredgecolor="white",
                        label=words if place == 0 else "_",
                    )  # fmt: skip
                    records.append([system, target, part, one.mean, one.sd, one.num_seeds])
            axes.set_yticks(range(len(found)), list(found) if axes is panels[0] else [""] * len(found))
            axes.set_ylim(len(found) - 0.4, -0.6)
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.set_xlabel(title)
            axes.spines["left"].set_visible(False)
            axes.grid(visible=True, axis="x")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        caption = (
            "What linear probes read out of each part, on sentences held out (0: nothing, 1: all); mean and ± 1 standard deviation over "
            "seeds. Tags belong in the tag channels, words in the word channels; adversaries work against the others."
        )
        return save(figure, name="probes", caption=caption, header=["system", "target", "part", "mean", "sd", "seeds"], records=records)
