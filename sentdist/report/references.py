"""Which row each row of a table is compared with: one baseline for all, or in a grid the baseline's row at the same point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sentdist.errors import listed
from sentdist.plan.dotted import short_names
from sentdist.report.score_rows import Scalar, SystemRows


@dataclass(frozen=True, kw_only=True)
class GridBaseline:
    """The method that the rows of a grid are compared with. title: what tables call it; by_dev: labels of rows, the best on dev first."""

    method: str
    title: str
    by_dev: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class References:
    """Labels of rows and of those that they are compared with.

    of: row -> its reference. chosen: what dev chose of a method -> what it chose of the baseline's, where `of` has another row.
    baselines: the rows of the baseline. title: what all are compared with; "" for nothing. keys: the grid's fields that the baseline
    varies, in whose values a row and its reference agree; () where all rows have one reference. first: what a row is compared with
    that has no such reference; elsewhere: these rows.
    """

    of: Mapping[str, str]
    chosen: Mapping[str, str] = field(default_factory=dict)
    baselines: frozenset[str] = frozenset()
    title: str = ""
    keys: tuple[str, ...] = ()
    first: str | None = None
    elsewhere: tuple[str, ...] = ()

    @property
    def own(self) -> Mapping[str, str]:
        """`of`, where rows have several references."""
        return self.of if self.keys else {}

    @property
    def words(self) -> str:
        """What differences are from, for a sentence or an axis."""
        return f"{self.title} at the same {_names(self.keys)}" if self.keys else self.title

    @property
    def note(self) -> str:
        """What is compared with what; "" where all rows have one reference."""
        if not self.keys:
            return ""
        values = f"value{'s' if len(self.keys) > 1 else ''}"
        said = f"Each row is compared with {self.title} at the same {values} of {_names(self.keys)}, rows of {self.title} with none."
        return f"{said} {self.apart}".rstrip()

    @property
    def apart(self) -> str:
        """A sentence on the rows that have no reference at their own point; "" for none."""
        if not self.elsewhere:
            return ""
        compared = "Not compared" if self.first is None else f"Compared with {self.first}"
        return f"{compared}, for want of a row at the same values: {listed(self.elsewhere)}."


def references(systems: Sequence[SystemRows], baseline: str | None, grid: GridBaseline | None) -> References:
    """Compare each row with the one row of the grid's baseline that has the same values of all fields that the baseline varies, and a
    row without any with `baseline`. No grid, or no row with a reference other than `baseline`: all are compared with it."""
    of = {} if grid is None else _at_equal_points(systems, grid.method)
    if grid is None or set(of.values()) <= {baseline}:
        one = {} if baseline is None else {system.label: baseline for system in systems if system.label != baseline}
        return References(
            of=one, baselines=frozenset() if baseline is None else frozenset({baseline}), title=baseline or "", first=baseline
        )
    cells = [system for system in systems if system.method == grid.method]
    others = [system.label for system in systems if system.method != grid.method]
    found = {label: reference for label in others if (reference := of.get(label, baseline)) is not None}
    return References(
        of=found,
        chosen={label: best for label, best in _chosen(systems, grid).items() if found.get(label) != best},
        baselines=frozenset(cell.label for cell in cells),
        title=grid.title,
        keys=tuple(cells[0].params),
        first=baseline,
        elsewhere=tuple(label for label in others if label not in of),
    )


def _at_equal_points(systems: Sequence[SystemRows], method: str) -> dict[str, str]:
    """Row of another method -> the row of this one that agrees in all fields that this one varies; without those that have none, or
    several."""
    cells = [system for system in systems if system.method == method]
    keys = list(cells[0].params) if cells else []
    at_point: dict[tuple[Scalar, ...], list[str]] = {}
    for cell in cells:
        at_point.setdefault(tuple(cell.params[key] for key in keys), []).append(cell.label)
    found: dict[str, str] = {}
    for system in systems:
        if keys and system.method != method and system.params.keys() >= set(keys):
            alike = at_point.get(tuple(system.params[key] for key in keys), [])
            found |= {system.label: alike[0]} if len(alike) == 1 else {}
    return found


def _chosen(systems: Sequence[SystemRows], grid: GridBaseline) -> dict[str, str]:
    """What dev chose of each other method -> what it chose of the baseline's."""
    method_of = {system.label: system.method for system in systems}
    best: dict[str, str] = {}
    for label in grid.by_dev:
        if label in method_of:
            best.setdefault(method_of[label], label)
    return {label: best[grid.method] for method, label in best.items() if grid.method in best and method != grid.method}


def _names(keys: Sequence[str]) -> str:
    """Fields as cells name them."""
    *before, last = short_names([keys]).values()
    return f"{', '.join(before)} and {last}" if before else last
