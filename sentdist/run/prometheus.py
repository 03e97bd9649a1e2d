"""Report metrics for Prometheus through Ray: sentences trained, stages, bytes of banks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from ray.util.metrics import Counter, Gauge


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that a process of the cluster reports. labels: names of its Prometheus labels."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()


SENTENCES = Metric(name="sentdist_sentences", kind="counter", meaning="Sentences trained on, by all workers together", labels=("kind",))
STAGES = Metric(name="sentdist_stages", kind="counter", meaning="What happened to stages", labels=("kind", "what"))
IN_FLIGHT = Metric(name="sentdist_stages_in_flight", kind="gauge", meaning="Stages being built or waiting for their inputs")
BANK_BYTES = Metric(name="sentdist_bank_bytes", kind="gauge", meaning="Bytes of banks in the object store")
COUNTED = ("started", "finished", "failed", "lost", "retry")  # values of `StageEvent.what`
METRICS = (SENTENCES, STAGES, IN_FLIGHT, BANK_BYTES)


def add(metric: Metric, amount: float = 1, **labels: str) -> None:
    """Add to a counter (takes a microsecond)."""
    if amount > 0:  # Ray refuses 0
        _counter(metric).inc(amount, tags=labels)


def show(metric: Metric, value: float) -> None:
    """Set the current value of a gauge for this process."""
    _gauge(metric).set(value)


@cache
def _counter(metric: Metric) -> Counter:
    return Counter(metric.name, description=metric.meaning, tag_keys=metric.labels)


@cache
def _gauge(metric: Metric) -> Gauge:
    return Gauge(metric.name, description=metric.meaning, tag_keys=metric.labels)
