"""All trials of a recipe on the cluster: `ray job submit --working-dir . -- python -m rayjobs.sweep RECIPE [--set a.b=c]`."""

from __future__ import annotations

import sys

from rayjobs.arguments import recipe_arguments
from sentdist.errors import SentdistError
from sentdist.execution.run import run_recipe


def main(arguments: list[str] | None = None) -> int:
    """0: every trial has scores. 1: some trial failed. 2: refused before anything was started."""
    asked = recipe_arguments(__doc__ or "", arguments)
    try:
        summary = run_recipe(asked.recipe, overrides=asked.overrides, store=asked.store, data=asked.data, tracking=asked.tracking)
    except SentdistError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
