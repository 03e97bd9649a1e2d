"""The report of a sweep, from what is in the store: `ray job submit --working-dir . -- python -m rayjobs.report SWEEP`."""

from __future__ import annotations

import sys

from sentdist.cli import app

if __name__ == "__main__":
    app(["report", *sys.argv[1:]], prog_name="sentdist")  # a job and the command line are one thing
