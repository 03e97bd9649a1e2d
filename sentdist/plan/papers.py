"""The papers whose printed tables can stand beside ours, as recipes and `sentdist report --paper` call them.

What is known of NAME, its tables among it, stands in sentdist/report/papers/NAME.py.
"""

from __future__ import annotations

from sentdist.errors import DataError
from sentdist.spelling import did_you_mean

PAPERS = ("rcl", "sts_regression", "rse", "supmpn", "auxiliary", "simcse")


def check_paper(name: str) -> None:
    """Refuse a name that no paper has: DataError."""
    if name not in PAPERS:
        remedy = did_you_mean(name, PAPERS, "Correct the name.")
        raise DataError(where="paper", found=repr(name), expected=f"one of {', '.join(PAPERS)}", remedy=remedy)
