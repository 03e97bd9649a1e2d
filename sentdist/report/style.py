"""Style figures and save them as SVG, PNG and CSV."""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from sentdist.text import csv_text

# Okabe & Ito (2008), darkest and most distant first: distinguishable for colour-blind readers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # a second cue, for print in grey
INK, MUTED, FAINT = "#1b1f24", "#57606a", "#afb8c1"
SEQUENTIAL = LinearSegmentedColormap.from_list("ours", ["#f4f7fa", "#c3dcec", "#6aaed2", "#1f78b4", "#08406f"])
DIVERGING = LinearSegmentedColormap.from_list("both", ["#8c2d04", "#f0a35e", "#f7f7f7", "#6aaed2", "#08406f"])  # white at the middle

RC: dict[Any, object] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    "font.size": 9,
    "text.parse_math": False,  # a dollar sign in a title is a dollar sign
    "text.color": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": MUTED,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
    "grid.color": "#e7eaee",
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "sentdist",  # equal input, equal bytes
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure, ready to store. name: file name without suffix; table: its numbers as CSV."""

    name: str
    caption: str
    svg: str
    png: bytes
    table: str


@dataclass(frozen=True, kw_only=True)
class SystemStyle:
    """Colour and marker of a system."""

    color: str
    marker: str


SystemStyles = Mapping[str, SystemStyle]


def styles_of(labels: Iterable[str]) -> SystemStyles:
    """Return a style per system by position; a report calls it once, so that a system looks the same in all figures."""
    return {
        label: SystemStyle(color=PALETTE[place % len(PALETTE)], marker=MARKERS[place % len(MARKERS)])
        for place, label in enumerate(dict.fromkeys(labels))
    }


@contextmanager
def house_style() -> Iterator[None]:
    """Apply matplotlib's settings to the figures drawn inside, then restore the global ones."""
    with matplotlib.rc_context(RC):
        yield


def canvas(*, width: float, height: float, rows: int = 1, columns: int = 1, sharex: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure (size in inches) with rows × columns axes in reading order; needs no display and no pyplot state."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex)
    return figure, list(axes.flat)


def quiet(axes: Axes, *, grid: str = "y") -> None:
    """Draw only horizontal (or vertical) guide lines, without the spine that they end at."""
    axes.grid(visible=True, axis=grid)  # type: ignore[arg-type]
    axes.spines["left" if grid == "y" else "bottom"].set_visible(False)


def legend_above(figure: Figure, *panels: Axes) -> None:
    """Draw one legend above all panels; a character takes 0.075 inches, a handle 0.6."""
    found = [one for axes in panels for one in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles, names = [handle for handle, _ in found], [str(name) for _, name in found]
    columns = int(figure.get_figwidth() / (0.6 + 0.075 * max(map(len, names))))
    figure.legend(handles, names, loc="outside upper left", ncols=max(1, min(3, columns, len(names))))


def in_lines(text: str, *, height_in: float) -> str:
    """Wrap the label of a vertical axis to its height: a character of 9 points takes 0.078 inches."""
    return textwrap.fill(text, max(12, int(height_in / 0.078)))


def save(figure: Figure, *, name: str, caption: str, header: Sequence[str], records: Sequence[Sequence[object]]) -> Drawing:
    """Render a figure to SVG and PNG, without dates. header: columns of its table, `records`: rows; None is an empty cell."""
    svg, png = io.StringIO(), io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    rows = (["" if one is None else f"{one:.6g}" if isinstance(one, float) else one for one in record] for record in records)
    return Drawing(name=name, caption=caption, svg=svg.getvalue(), png=png.getvalue(), table=csv_text([header, *rows]))


def inline_svg(drawing: Drawing) -> Markup:
    """Return the `<svg>` of a drawing; ids get the figure's name as prefix, since several figures share a page."""
    svg = drawing.svg[drawing.svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda found: f"{found[1]}{drawing.name}-", svg)
    opening = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
    label = html.escape(drawing.caption)
    return Markup(
        re.sub(r'<svg [^>]*?(viewBox="[^"]+")[^>]*>', lambda found: f'<svg {found[1]} {opening} aria-label="{label}">', svg, count=1)
    )
