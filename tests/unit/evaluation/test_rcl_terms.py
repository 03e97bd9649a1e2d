"""RCL's Eq. 4 to 6 against loops, Jensen's inequality and the loss itself; and from a finished recipe."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from rayjobs.benchmarks.rcl_terms import HEADER, table
from sentdist.errors import DataError
from sentdist.evaluation.geometry import rcl_terms
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_terms_are_those_of_loops_and_of_eq_3() -> None:
    draw, m = np.random.default_rng(0), 7
    q, ind, au_q, au_ind = draw.normal(size=(m, 5)) + 1, draw.normal(size=(m, 5)), draw.normal(size=(2, m, 5)), draw.normal(size=(2, m, 5))
    found = rcl_terms(q, ind, au_q, au_ind)
    pairs = [(q, ind), *((q, one) for one in au_q), *((ind, one) for one in au_ind)]
    spreads = [np.mean([math.log(np.mean([math.exp(_cosine(x, y)) for y in right])) for x in left]) for left, right in pairs]
    cosines = [np.mean([_cosine(x, y) for x in left for y in right]) for left, right in pairs]
    assert found.pairs.spread == pytest.approx(spreads[0]) and found.queries.spread == pytest.approx(sum(spreads[1:3]))
    assert found.bound == pytest.approx(sum(cosines)) and found.bound < sum(spreads), "Jensen"
    loss = sum(
        np.mean([-_cosine(left[i], right[i]) + math.log(sum(math.exp(_cosine(left[i], y)) for y in right)) for i in range(m)])
        for left, right in pairs
    )
    assert found.asymptotic_loss == pytest.approx(loss - len(pairs) * math.log(m)), "Eq. 3 less log M for each of its 1 + 2N terms"
    with pytest.raises(DataError, match="the same rows and width"):
        rcl_terms(q, ind[:3], au_q, au_ind)


def test_before_and_after_of_a_recipe(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    values = tiny_values(tiny_encoder_dir, selection=None, baseline=None)
    methods = values["methods"]
    assert isinstance(methods, dict)
    values["methods"] = {name: methods[name] for name in ("entropy", "rcl")}
    data = write_data(tmp_path / "data")
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(DataError, match="no finished RCL encoder"):
        table(file, store=str(tmp_path / "store"), data=data, rows=16)
    run_local(*tiny_plan(values, data=data, store=tmp_path / "store"))
    lines = table(file, store=str(tmp_path / "store"), data=data, rows=16).splitlines()
    before, after = ([float(cell) for cell in line.split("|")[3:-1]] for line in lines[-2:])
    assert len(before) == len(HEADER) - 2 and after[0] < before[0], "what is minimized falls"
    assert all(row[4] >= row[5] for row in (before, after)), "Eq. 6 is a lower bound of Eq. 5"
