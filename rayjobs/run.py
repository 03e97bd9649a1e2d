"""A recipe without its grid: `ray job submit --working-dir . -- python -m rayjobs.run RECIPE [--set a.b=c]`."""

from __future__ import annotations

import sys

from sentdist.cli import app

if __name__ == "__main__":
    app(["run", *sys.argv[1:]], prog_name="sentdist")  # a job and the command line are one thing
