"""What score tests share: the tiny pairs, Spearman by scipy, evaluations as the product makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from scipy.stats import spearmanr

from sentdist.data.sources.hub import inspect_source
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores
from sentdist.stages.scores.build import build_scores
from tests.parity.wiring.product import Place, planned
from tests.parity.wiring.reference import Student

SLACK = 0.1  # × 100: two neighbours among 40 pairs that float32 puts the other way round


def pairs_of(place: Place, split: str, *, family: str = "triplets", source: str = "sts/stsb") -> list[dict[str, Any]]:
    return [row for row in pq.read_table(place.root / family / f"{source}.parquet").to_pylist() if row["split"] == split]


def cosines_of(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray((one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)))


def spearman_of(
    student: Student,
    rows: Sequence[Mapping[str, Any]],
    *,
    channels: tuple[int, int] | None = None,
    after: str = "none",
    each_once: bool = False,
) -> float:
    """× 100, by scipy. each_once: whether a sentence counts once in mean and covariance."""
    with torch.no_grad():
        table = {
            text: e.numpy()
            for text in dict.fromkeys(t for r in rows for t in (r["sentence1"], r["sentence2"]))
            for e in student.encode([text])
        }
    first, second = (
        np.stack([table[row[name]] for row in rows])[:, slice(*(channels or (0, None)))] for name in ("sentence1", "sentence2")
    )
    whole = np.stack(list(table.values()))[:, slice(*(channels or (0, None)))] if each_once else np.concatenate([first, second])
    if after != "none":
        first, second = first - whole.mean(0), second - whole.mean(0)
    if after == "whiten":
        values, vectors = np.linalg.eigh(np.cov(whole.T, bias=True))
        is_there = values > 1e-9 * values.max()  # what is not may be below 0 by rounding
        root = vectors[:, is_there] / np.sqrt(values[is_there])
        first, second = first @ root, second @ root
    return 100 * float(spearmanr(cosines_of(first, second), [row["score"] for row in rows])[0])


def scored(place: Place, stage: Scores, family: str = "triplets") -> dict[str, Json]:
    _, context = planned(place, family, {"methods": {"m": {}}})
    return build_scores(stage, context).record.results


def on_task(base: Scores, task: Any) -> Scores:
    """The same evaluation of one other task."""
    return Scores(encoder=base.encoder, tasks=(task,), max_length=base.max_length, precision=base.precision, view=base.view)


def revision_of(place: Place, source: str) -> str:
    """What planning pins a source of the triplets' data root to."""
    return inspect_source(source, data_root=place.root / "triplets").revision


def base_scores(place: Place, family: str = "triplets", **changes: Json) -> Scores:
    plan, _ = planned(place, family, {"methods": {"m": {}}, **{name.replace("_at_", "."): value for name, value in changes.items()}})
    return plan.trials[0].scores
