"""Distributed training of sentence embeddings on Ray: encoders in use, recipes planned, built and reported.

The names in `__all__` are the public surface; every other module is private by convention and may change. Importing this loads none of
them: a name is found when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentdist.api import (
        DataError,
        Encoder,
        EncoderError,
        Hit,
        Outcome,
        Plan,
        Recipe,
        RecipeError,
        SentdistError,
        StoreError,
        TrainingDiverged,
        evaluate,
        objective,
        plan,
        report,
        run,
        search,
        similarity,
        sweep,
    )

__all__ = [
    "DataError",
    "Encoder",
    "EncoderError",
    "Hit",
    "Outcome",
    "Plan",
    "Recipe",
    "RecipeError",
    "SentdistError",
    "StoreError",
    "TrainingDiverged",
    "evaluate",
    "objective",
    "plan",
    "report",
    "run",
    "search",
    "similarity",
    "sweep",
]

# Python sets the name of a package here when it is first imported, over these two functions: import both now (they are empty) and take
# the names away. `from sentdist.plan.recipe import …` still finds the package, `sentdist.plan(recipe)` the function.
for _package in ("plan", "report"):
    import_module(f"sentdist.{_package}")
    del globals()[_package]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'sentdist' has no attribute {name!r}; it offers {', '.join(__all__)}")
    from sentdist import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
