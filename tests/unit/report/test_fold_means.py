"""A row over folds stands beside a printed one only when all of its folds are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sentdist.report.paper import fold_means


def test_a_row_waits_for_all_of_its_folds() -> None:
    trials = [SimpleNamespace(cell="RCL", method="rcl", seed=0, key=f"fold-{number}") for number in range(3)]
    sweep: Any = SimpleNamespace(trials=trials)
    records: dict[str, Any] = {
        trial.key: SimpleNamespace(results={"faqir": score}) for trial, score in zip(trials, (50.0, 60.0, 70.0), strict=True)
    }
    (row,) = fold_means(sweep, records, {"MAP": "faqir"})
    assert row.label == "RCL" and row.scores == {"MAP": pytest.approx(60.0)}
    del records["fold-1"]
    assert fold_means(sweep, records, {"MAP": "faqir"}) == []
