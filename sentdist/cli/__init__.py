"""The command line: what each command is called, what it takes, and how its answer is printed."""

from sentdist.cli.application import app

__all__ = ["app"]
