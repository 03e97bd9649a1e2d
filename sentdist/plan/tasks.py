"""The table of evaluation tasks: source, metric, licence and citation of each, in one literal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class TaskCard:
    """What is known of a task before its data is seen. `citation` is a key of `sentdist.report.citations`."""

    kind: Literal["sts", "retrieval"]
    source: str
    split: str | None
    metric: str
    licence: str
    citation: str
    num_items: int | None = None  # pairs or queries, where the published set has a known size


TASKS: dict[str, TaskCard] = {
    "sts12": TaskCard(
        kind="sts", source="sts/sts12", split=None, metric="spearman", licence="SemEval shared task", citation="sts12", num_items=3108
    ),
    "sts13": TaskCard(
        kind="sts", source="sts/sts13", split=None, metric="spearman", licence="SemEval shared task", citation="sts13", num_items=1500
    ),
    "sts14": TaskCard(
        kind="sts", source="sts/sts14", split=None, metric="spearman", licence="SemEval shared task", citation="sts14", num_items=3750
    ),
    "sts15": TaskCard(
        kind="sts", source="sts/sts15", split=None, metric="spearman", licence="SemEval shared task", citation="sts15", num_items=3000
    ),
    "sts16": TaskCard(
        kind="sts", source="sts/sts16", split=None, metric="spearman", licence="SemEval shared task", citation="sts16", num_items=1186
    ),
    "stsb": TaskCard(
        kind="sts", source="sts/stsb", split="test", metric="spearman", licence="CC BY-SA 4.0", citation="stsb", num_items=1379
    ),
    "stsb-dev": TaskCard(
        kind="sts", source="sts/stsb", split="dev", metric="spearman", licence="CC BY-SA 4.0", citation="stsb", num_items=1500
    ),
    "sickr": TaskCard(
        kind="sts", source="sts/sick", split="test", metric="spearman", licence="CC BY-NC-SA 3.0", citation="sick", num_items=4927
    ),
    "stsb-pooled": TaskCard(  # train, dev and test as one: how RSE's own rows are scored (its dev pairs also choose the checkpoint)
        kind="sts", source="sts/stsb", split=None, metric="spearman", licence="CC BY-SA 4.0", citation="stsb", num_items=8628
    ),
    "sickr-pooled": TaskCard(
        kind="sts", source="sts/sick", split=None, metric="spearman", licence="CC BY-NC-SA 3.0", citation="sick", num_items=9927
    ),
    "stackfaq": TaskCard(
        kind="retrieval", source="retrieval/stackfaq", split=None, metric="map", licence="unstated", citation="stackfaq", num_items=1249
    ),
    "scenes-sts": TaskCard(kind="sts", source="embedded/sts", split="test", metric="spearman", licence="Apache-2.0", citation="sentdist"),
    "scenes-sts-dev": TaskCard(
        kind="sts", source="embedded/sts", split="dev", metric="spearman", licence="Apache-2.0", citation="sentdist"
    ),
    "scenes-faq": TaskCard(kind="retrieval", source="embedded/faq", split=None, metric="map", licence="Apache-2.0", citation="sentdist"),
}

TASK_GROUPS: dict[str, tuple[str, ...]] = {
    "sts": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"),
    "sts-pooled": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb-pooled", "sickr-pooled"),
    "scenes": ("scenes-sts", "scenes-faq"),
}
