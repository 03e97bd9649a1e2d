"""A cache of its own for each test that reads files which it wrote itself."""

from __future__ import annotations

from tests.unit.data.conftest import _own_cache  # noqa: F401
