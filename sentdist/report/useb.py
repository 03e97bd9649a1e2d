"""The benchmark USEB as one table: its four tasks with their parts, and the mean of the four (Wang et al. 2021, arXiv 2104.06979)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sentdist.evaluation.means import mean_of_all
from sentdist.evaluation.relational import BY
from sentdist.plan.measures import Measure
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.report.columns import AVERAGE

TITLE = "Universal sentence embedding benchmark (USEB)"
TITLE_BY_RELATION = f"{TITLE}, each relation alone (RSE, Figure 5)"
RELATION = "relation"  # the parameter of rows that were scored by one relation
MEASURE = Measure(name="map", title="MAP", unit="mean average precision (TwitterPara: average precision) × 100")

# Tasks of the benchmark, as RSE's Table 5 heads them: column of each part -> task; the column of their mean, where there are several.
_PARTS: tuple[tuple[str | None, Mapping[str, str]], ...] = (
    (None, {"AskUbuntu": "askubuntu"}),
    (None, {"CQADupStack": "cqadupstack"}),
    ("TwitterPara Avg", {"TURL": "twitter-url", "PIT": "twitter-pit"}),
    ("SciDocs Avg", {"Cite": "scidocs-cite", "CC": "scidocs-cocite", "CR": "scidocs-coread", "CV": "scidocs-coview"}),
)
COLUMNS = (*(column for mean, parts in _PARTS for column in (*parts, *([mean] if mean else []))), AVERAGE)
TASK_OF_COLUMN = {column: task for _, parts in _PARTS for column, task in parts.items()}
FOUR = tuple(mean or next(iter(parts)) for mean, parts in _PARTS)


def has_useb(tasks: Sequence[str]) -> bool:
    """Whether all of the benchmark was scored."""
    return set(TASK_GROUPS["useb"]) <= set(tasks)


def useb_scores(results: Mapping[str, float | None], relation: str | None = None) -> dict[str, float | None]:
    """Column -> score from the results of an evaluation, means over folds.

    Where the tasks were scored by each relation alone, one relation counts for all parts of a task: the one whose mean over these is best,
    which is seen on the test data, as in RSE's table. relation: this one, for every task.
    """
    found: dict[str, float | None] = {}
    for mean, parts in _PARTS:
        rows = _by_relation(results, parts, relation)
        complete = {name: row for name, row in rows.items() if None not in row.values()}
        best = max(complete, key=lambda name: sum(one or 0.0 for one in complete[name].values())) if complete else next(iter(rows))
        found |= rows[best]
        if mean is not None:
            found[mean] = mean_of_all(rows[best].values())
    return found | {AVERAGE: mean_of_all(found[column] for column in FOUR)}


def relations_of(results: Mapping[str, float | None]) -> tuple[str, ...]:
    """The relations by each of which the benchmark was scored."""
    first = f"askubuntu.{BY}"
    return tuple(name.removeprefix(first) for name in results if name.startswith(first))


def _by_relation(results: Mapping[str, float | None], parts: Mapping[str, str], relation: str | None) -> dict[str, dict[str, float | None]]:
    """Relation -> column -> score; one row under "" where no relations were scored."""
    names = relations_of(results) if relation is None else (relation,)
    ends = {name: f".{BY}{name}" for name in names} or {"": ""}
    return {name: {column: results.get(f"{task}{end}") for column, task in parts.items()} for name, end in ends.items()}
