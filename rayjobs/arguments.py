"""What the jobs that take a recipe are told on their command line, or by the environment."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_STORE = ".sentdist/store"
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it for what `ray job submit` starts


@dataclass(frozen=True, kw_only=True)
class RecipeArguments:
    """Places are relative to the working directory of the job."""

    recipe: Path
    overrides: tuple[str, ...]
    store: str
    data: Path | None
    tracking: str | None


def recipe_arguments(about: str, arguments: list[str] | None) -> RecipeArguments:
    """Read a command line; `None` reads that of this process."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("recipe", type=Path, help="a recipe, such as rayjobs/recipes/demo.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", dest="overrides", help="change a field; may be repeated")
    parser.add_argument("--store", default=os.environ.get("SENTDIST_STORE"), help="where artifacts are kept (SENTDIST_STORE)")
    parser.add_argument("--data", default=os.environ.get("SENTDIST_DATA"), help="folder of the data sets (SENTDIST_DATA)")
    parser.add_argument(
        "--tracking", default=os.environ.get("MLFLOW_TRACKING_URI"), help="address of an MLflow server (MLFLOW_TRACKING_URI)"
    )
    found = parser.parse_args(arguments)
    return RecipeArguments(
        recipe=found.recipe,
        overrides=tuple(found.overrides),
        store=found.store or _default_store(),
        data=Path(found.data) if found.data else None,
        tracking=found.tracking or None,
    )


def _default_store() -> str:
    """Below the home folder: a job's working directory is a copy that Ray throws away."""
    return str(Path.home() / DEFAULT_STORE) if IN_A_JOB in os.environ else DEFAULT_STORE
