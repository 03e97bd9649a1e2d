"""A recipe without its grid: `ray job submit --working-dir . -- python -m rayjobs.run RECIPE [--set a.b=c]`."""

from __future__ import annotations

import sys

from rayjobs.sweep import main

if __name__ == "__main__":
    sys.exit(main([*sys.argv[1:], "--set", "sweep={}"]))
