"""What a name that does not exist was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath

LONGEST_NAME = 200  # letters; difflib takes time for every letter of what it compares
ALIKE = 0.6  # share of the letters, difflib's own default
ELSEWHERE = {  # what others call a thing -> what it is called here, where it is among the names that there are
    "gpu": ("cuda",), "lr": ("learning_rate",), "bs": ("batch_size",), "grid": ("sweep",), "dataset": ("corpus",), "data": ("corpus",),
    "model": ("encoder", "checkpoint"), "loss": ("objective",), "weight": ("terms",),
    "file": ("source",), "path": ("source", "file"),
}  # fmt: skip


def near(name: str, names: Iterable[str], *, alike: float = ALIKE) -> str | None:
    """The one of `names` that was probably meant: our word for it, one spelt alike, or beginning or ending so; None where there is none."""
    return next(iter(similar_names(name, names, most=1, alike=alike)), None)


def near_file(name: str, names: Iterable[str]) -> str | None:
    """`near` for names of files: what stands before the suffix is compared; of equal ones that with the same suffix."""
    suffix, stems = PurePath(name).suffix, dict[str, str]()
    for known in sorted(names, key=lambda known: PurePath(known).suffix != suffix):
        stems.setdefault(PurePath(known).stem, known)
    closest = near(PurePath(name).stem, stems)
    return None if closest is None else stems[closest]


def similar_names(name: str, names: Iterable[str], *, most: int, alike: float = ALIKE) -> list[str]:
    """Up to `most` of the names that may have been meant, the likeliest first: what others call so, what is spelt alike or has the very
    letters in another order, what begins so, what ends so. No more than the first 200 letters of a name count, large ones as small ones."""
    if len(name) > LONGEST_NAME:
        return []
    shown = {known[:LONGEST_NAME].casefold(): known for known in reversed(list(names))}
    typed = name.casefold()
    around = [known for small, known in reversed(shown.items()) if len(name) > 2 and small.startswith(typed)]
    around += [known for small, known in reversed(shown.items()) if len(name) > 3 and small.endswith(f"_{typed}")]
    close = [shown[one] for one in difflib.get_close_matches(typed, shown, n=most, cutoff=alike)]
    close += [known for small, known in shown.items() if len(name) > 2 and sorted(small) == sorted(typed)]
    ours = [] if typed in shown else [shown[one] for one in ELSEWHERE.get(typed, ()) if one in shown]
    return list(dict.fromkeys([*ours, *close, *around]))[:most]


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "", *, alike: float = ALIKE) -> str:
    """A question that names what was probably meant; `otherwise` where nothing is near."""
    closest = near(name, names, alike=alike)
    return otherwise if closest is None else f'Did you mean "{closest}"?'
