"""The dashboard of cluster/monitoring asks for nothing that nobody exports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ray

from sentdist.run.events import METRICS
from tests.support.prometheus import exported

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "cluster" / "monitoring" / "dashboard.json").read_text())
ASKED = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
OF_RAY = {"SessionName", "Location"}


def test_every_metric_of_the_dashboard_is_exported() -> None:
    """Ours by the code, as tests of clusters see; the others stand in Ray's own dashboards."""
    ours = {exported(metric): metric for metric in METRICS}
    of_ray = (Path(ray.__file__).parent / "dashboard/modules/metrics/dashboards/default_dashboard_panels.py").read_text()
    asked = [(expression, name) for expression in ASKED for name in re.findall(r"\bray_\w+", expression)]
    assert {name for _, name in asked} >= set(ours), "each is shown"
    for expression, name in asked:
        assert name in ours or name in of_ray, name
        labels = set(re.findall(r"(\w+)=~?\"", expression)) | {
            word for by in re.findall(r"by \((.*?)\)", expression) for word in by.split(", ")
        }
        assert labels <= OF_RAY | set(ours[name].labels if name in ours else ()), expression
