"""The command line: commands, their options, and printing of results."""

from sentdist.cli.application import app

__all__ = ["app"]
