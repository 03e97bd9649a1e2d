"""The artifact store: a folder for each finished stage, on a disk or in an object store.

Start with `store.py`, and `record.py` for the metadata of artifacts; `sweep.py` and `searches.py` record sweeps and searches.
"""
