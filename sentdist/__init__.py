"""Distributed training of sentence embeddings on Ray: encoders in use, recipes planned, built and reported.

The names in `__all__` are the public surface; every other module is private by convention and may change. Importing this loads none of
them: a name is found when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from sentdist.api import *  # what of it is public stands in __all__

__all__ = [
    "DataError",
    "Encoder",
    "EncoderError",
    "Hit",
    "Outcome",
    "Plan",
    "Recipe",
    "RecipeError",
    "ResourceError",
    "SentdistError",
    "StoreError",
    "TrainingDiverged",
    "compare",
    "evaluate",
    "objective",
    "plan",
    "report",
    "run",
    "search",
    "similarity",
    "sweep",
    "train",
]


class _CalledPackage(ModuleType):
    """A package that is called as the public function of its name: `sentdist.plan(recipe)`, while `import sentdist.plan.unroll` finds the
    module inside."""

    def __call__(self, *arguments: object, **named: object) -> object:
        return self.__wrapped__(*arguments, **named)

    @property
    def __wrapped__(self) -> Callable[..., object]:  # where inspect.signature looks
        return getattr(_api(), self.__name__.rpartition(".")[2])


for _package in ("plan", "report"):
    import_module(f"sentdist.{_package}").__class__ = _CalledPackage


def _api() -> ModuleType:
    return import_module("sentdist.api")


if not TYPE_CHECKING:  # which would take any misspelt name for an object

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("importlib.metadata").version("sentdist")
        if name not in __all__:
            raise AttributeError(f"module 'sentdist' has no attribute {name!r}; it offers {', '.join(__all__)}")
        return getattr(_api(), name)


def __dir__() -> list[str]:
    """The public names, and Python's own; not what this file works with, which a notebook would offer beside them."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
