"""Style figures, draw them to SVG and PNG with their numbers as CSV, and embed them in HTML."""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from sentdist.errors import DataError
from sentdist.text import colors_of, csv_text

MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # a second cue, for print in grey
INK, MUTED, FAINT, GRID = "#1b1f24", "#57606a", "#afb8c1", "#e7eaee"
SEQUENTIAL = LinearSegmentedColormap.from_list("ours", ["#f4f7fa", "#c3dcec", "#6aaed2", "#1f78b4", "#08406f"])
DIVERGING = LinearSegmentedColormap.from_list("both", ["#8c2d04", "#f0a35e", "#f7f7f7", "#6aaed2", "#08406f"])  # white at the middle

DOTS_AN_INCH = 200

RC: dict[Any, object] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    "text.parse_math": False,  # a dollar sign in a title is a dollar sign
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelsize": 9,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "axes.titlecolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "sentdist",  # equal input, equal bytes
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure, ready to store.

    Args:
        name: file name without suffix.
        table: its numbers as CSV.
        hover: id of a group of marks in the SVG -> tooltip of each mark on an HTML page; files have none.
    """

    name: str
    caption: str
    svg: str
    png: bytes
    table: str
    hover: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SystemStyle:
    """Colour and marker of a system."""

    color: str
    marker: str


SystemStyles = Mapping[str, SystemStyle]


def styles_of(labels: Iterable[str]) -> SystemStyles:
    """Return a style per system by position; a report calls it once, so that a system looks the same in all figures."""
    return {
        label: SystemStyle(color=color, marker=MARKERS[place % len(MARKERS)])
        for place, (label, color) in enumerate(colors_of(labels).items())
    }


def check_drawable(points: Sized, figure: str) -> None:
    """Raise DataError if a figure has no points."""
    if not points:
        raise DataError(where=figure, found="nothing to draw", expected="at least one point", remedy="Leave the figure out of this report.")


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


def legend_columns(names: Sequence[str], *, width_in: float, at_most: int = 3) -> int:
    """Return how many columns of a legend fit: a character of 8.5 points takes 0.075 inches, a handle 0.6."""
    needed = 0.6 + 0.075 * max(map(len, names), default=0)
    return max(1, min(at_most, len(names), int(width_in / needed)))


TITLE_LINE_IN = 0.16  # inches that a further line of a panel's title takes


def in_lines(text: str, *, height_in: float) -> str:
    """Wrap the label of a vertical axis to its height: a character of 9 points takes 0.078 inches."""
    return textwrap.fill(text.replace(" × ", "\u00a0×\u00a0"), max(12, int(height_in / 0.078)))


def break_titles(figure: Figure, titles: Sequence[Text]) -> None:
    """Wrap titles that are wider than their panels, and enlarge the figure by the additional lines of each row."""
    for title in titles:
        title.set_visible(False)  # else panels would make room for the whole title
    figure.set_dpi(DOTS_AN_INCH)  # as it is saved
    figure.draw_without_rendering()  # computes the widths of panels
    most_lines: dict[float, int] = {}
    for title in titles:
        title.set_visible(True)
        axes, width = title.axes, title.get_window_extent().width
        assert axes is not None, "a title of a panel"
        room, row = axes.get_window_extent().width, round(axes.get_position().y0, 3)
        if width > room:  # characters differ in width: 10 % margin
            title.set_text(_in_pieces(title.get_text(), max(8, int(0.9 * room / width * len(title.get_text())))))
        most_lines[row] = max(most_lines.get(row, 1), title.get_text().count("\n") + 1)
    figure.set_figheight(figure.get_figheight() + TITLE_LINE_IN * sum(number - 1 for number in most_lines.values()))


def _in_pieces(name: str, letters: int) -> str:
    """Break a name into lines of at most `letters` characters, after hyphens and colons if possible."""
    lines = [""]
    for piece in re.split(r"(?<=[-_:+ ])", name):
        for part in textwrap.wrap(piece, letters, break_on_hyphens=False) if len(piece) > letters else [piece]:
            lines = [*lines[:-1], lines[-1] + part] if len(lines[-1] + part) <= letters else [*lines, part]
    return "\n".join(line for line in lines if line)


def save(
    figure: Figure,
    *,
    name: str,
    caption: str,
    header: Sequence[str],
    records: Sequence[Sequence[object]],
    hover: Mapping[str, Sequence[str]] | None = None,
    below: Text | None = None,
) -> Drawing:
    """Render a figure to SVG and PNG, without dates.

    Args:
        header: columns of its table, `records`: rows; None is an empty cell.
        hover: see `Drawing`.
        below: label below an axis, wrapped if it is wider than the figure.
    """
    svg, raster = io.StringIO(), FigureCanvasAgg(figure)
    figure.set_dpi(DOTS_AN_INCH)  # with fewer dots the widths of small characters are wrong by 5 %
    figure.set_facecolor("white")
    _place(figure, below)
    figure.set_layout_engine("none")
    png = _painted(raster)
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": None})  # sets the figure's dots an inch to 72
    rows = ([_in_table(value) for value in record] for record in records)
    return Drawing(name=name, caption=caption, svg=svg.getvalue(), png=png, table=csv_text([header, *rows]), hover=hover or {})


def _place(figure: Figure, below: Text | None) -> None:
    """Lay out all parts once for both formats; `savefig` would do it for each."""
    layout = figure.get_layout_engine()
    assert layout is not None  # canvas gives one
    layout.execute(figure)
    if below is not None and _break_where_cut(below, figure.bbox.width):
        layout.execute(figure)


def _painted(raster: FigureCanvasAgg) -> bytes:
    png = io.BytesIO()
    raster.print_png(png, metadata={"Software": None})
    return png.getvalue()


def _in_table(value: object) -> object:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


def _break_where_cut(words: Text, width: float) -> bool:
    """Wrap a text that is wider than the figure; return whether it was.

    matplotlib's `wrap` would read a $ as the start of a formula.
    """
    box = words.get_window_extent()
    if box.x0 >= 0 and box.x1 <= width:
        return False
    middle = (box.x0 + box.x1) / 2
    share = 1.9 * min(middle, width - middle) / box.width  # characters differ in width: 5 % margin
    words.set_text(textwrap.fill(words.get_text(), max(12, int(share * len(words.get_text())))))
    return True


def inline_svg(drawing: Drawing) -> Markup:
    """Return the `<svg>` of a drawing with tooltips; ids get the figure's name as prefix, since several figures share a page."""
    svg = drawing.svg[drawing.svg.index("<svg") :]
    for group, texts in drawing.hover.items():
        svg = _with_titles(svg, group, texts)
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda found: f"{found[1]}{drawing.name}-", svg)
    opening = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
    label = html.escape(drawing.caption)
    return Markup(
        re.sub(r'<svg [^>]*?(viewBox="[^"]+")[^>]*>', lambda found: f'<svg {found[1]} {opening} aria-label="{label}">', svg, count=1)
    )


def _with_titles(svg: str, group: str, texts: Sequence[str]) -> str:
    """Add a title (browsers show it as tooltip) to each mark of a group, a `<use/>` in drawing order."""
    start = svg.index(f'<g id="{group}"')
    head, marks = svg[:start], svg[start:]
    for text in texts:
        before, mark, marks = re.split(r"(<use [^>]*?)/>", marks, maxsplit=1)
        head += f"{before}{mark}><title>{html.escape(text)}</title></use>"
    return head + marks
