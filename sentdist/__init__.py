"""Distributed training of sentence embeddings on Ray: use encoders; plan, run and report recipes.

The names in `__all__` are the public API; other modules are private by convention and may change. Names are imported on first access.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from sentdist.api import *  # __all__ lists the public names

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
    """A package that can be called as the public function of its name: `sentdist.report(sweep)` beside `import sentdist.report.page`."""

    def __call__(self, *arguments: object, **named: object) -> object:
        return self.__wrapped__(*arguments, **named)

    @property
    def __wrapped__(self) -> Callable[..., object]:  # read by inspect.signature
        return getattr(_api(), self.__name__.rpartition(".")[2])


for _package in ("report", "run"):
    import_module(f"sentdist.{_package}").__class__ = _CalledPackage


def _api() -> ModuleType:
    return import_module("sentdist.api")


if not TYPE_CHECKING:  # else type checkers accept any misspelt name

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("importlib.metadata").version("sentdist")
        if name not in __all__:
            raise AttributeError(f"module 'sentdist' has no attribute {name!r}; it offers {', '.join(__all__)}")
        return getattr(_api(), name)


def __dir__() -> list[str]:
    """List the public names and Python's own, without this module's imports, for completion in notebooks."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
