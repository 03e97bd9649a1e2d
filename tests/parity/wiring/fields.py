"""Which "Class.field" a test changes, written down beside the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


def covers(*fields: str) -> Callable[[Test], Test]:
    """Say which "Class.field" a test changes."""
    return lambda test: test
