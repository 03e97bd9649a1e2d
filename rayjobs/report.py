"""Writes the report of a sweep from what is in the store: `ray job submit --working-dir . -- python -m rayjobs.report SWEEP`, with the options of `sentdist report`."""

from __future__ import annotations

import sys

from sentdist.cli import app

if __name__ == "__main__":
    app(["report", *sys.argv[1:]])
