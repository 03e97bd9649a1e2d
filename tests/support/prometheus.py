"""What Prometheus would read from the nodes of the cluster that this process is connected to."""

from __future__ import annotations

import re
import time
import urllib.request

from sentdist.run.events import Metric


def exported(metric: Metric) -> str:
    """The name that Ray gives a metric of ours in Prometheus."""
    return f"ray_{metric.name}{'_total' if metric.kind == 'counter' else ''}"


def rows(metric: Metric) -> list[tuple[dict[str, str], float]]:
    """Labels and value of each row; asks at most twice a second, as Ray sends only every ten."""
    import ray

    time.sleep(0.5)
    found = []
    for node in ray.nodes():
        with urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        for labels, value in re.findall(rf"^{exported(metric)}\{{(.*)\}} (\S+)$", text, re.MULTILINE):
            found.append((dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)))
    return found
