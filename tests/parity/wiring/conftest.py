"""One place for all tests here: tiny data of every kind, two encoders, a store."""

from __future__ import annotations

import pytest

from tests.parity.wiring.product import Place


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place.make(tmp_path_factory.mktemp("wiring"))
