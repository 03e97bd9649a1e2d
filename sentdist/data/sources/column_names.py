"""Whether a table has the columns that are wanted, and what to do where it has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sentdist.errors import DataError, brief, listed
from sentdist.reading import foreign_separator, of_its_suffix
from sentdist.spelling import did_you_mean


def check_columns(name: str, found: Sequence[str], wanted: Sequence[str], *, may_name: bool = True) -> None:
    """Raise DataError unless all wanted columns are among those found, once each.

    may_name: whether a person can say which columns are wanted; else these have fixed names.
    """
    refuse_repeated(name, [column for column in found if column in wanted])
    absent = list(dict.fromkeys(column for column in wanted if column not in found))
    if absent:
        raise DataError(
            where=name,
            found=f"columns {listed(found)}",
            expected=f"columns {listed(list(dict.fromkeys(wanted)))}",
            remedy=_columns_remedy(absent, found, [column for column in found if column not in wanted], may_name=may_name),
        )


def refuse_repeated(name: str, columns: Sequence[str]) -> None:
    """Raise DataError for a name that several columns have."""
    if twice := [brief(column) for column, count in Counter(columns).items() if count > 1]:
        raise DataError(
            where=name, found=f"several columns named {listed(twice)}", expected="each name once", remedy="Rename or remove all but one."
        )


def _columns_remedy(absent: Sequence[str], found: Sequence[str], unused: Sequence[str], *, may_name: bool) -> str:
    foreign = foreign_separator(found[0]) if len(found) == 1 else None
    if foreign is not None:
        return of_its_suffix(foreign)
    alike = next((column for column in unused if column.strip().casefold() == absent[0].strip().casefold()), None)
    hint = did_you_mean(absent[0], unused) if alike is None else f'Did you mean "{alike}"?'
    what = "Name the columns that hold the sentences, or rename them in the file" if may_name else "Rename columns in the file"
    return f"{hint} {what} ({', '.join(absent)} missing).".lstrip()
