"""The papers whose printed tables can stand beside ours, as recipes and `sentdist report --paper` call them.

What is known of NAME, its tables among it, stands in sentdist/report/papers/NAME.py.
"""

from __future__ import annotations

PAPERS = ("rcl", "sts_regression", "rse", "supmpn", "auxiliary", "simcse")
