"""Where artifacts are kept: a folder for each finished stage, on a disk or in an object store.

Where to begin: `store.py`, with `record.py` for what is noted of an artifact; `sweep.py` and `searches.py` for what is noted of sweeps.
"""
