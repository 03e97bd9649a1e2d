"""The labelled texts of a task, whatever scores them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentdist.data.labels import Labelled, read_labelled
from sentdist.plan.task_kinds import ClassificationTask, ClusteringTask, ParaphraseTask, is_own_task


def labelled_rows(
    task: ClassificationTask | ClusteringTask | ParaphraseTask, columns: Sequence[str], splits: Sequence[str] | None, root: Path | None
) -> Labelled:
    """Read the texts in these columns, with their labels; splits: None for all rows. DataError as `read_labelled`.

    Published data sets have a few rows without a text, which count; in a person's own file such a row is a mistake.
    """
    return read_labelled(
        task.source,
        columns=columns,
        label=task.label,
        splits=splits,
        may_be_empty=not is_own_task(task),
        data_root=root,
        hub_revision=task.revision,
    )
