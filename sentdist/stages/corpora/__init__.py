"""The bodies of corpus stages: a file for each kind reads its sources, `build.py` writes the rows down."""
