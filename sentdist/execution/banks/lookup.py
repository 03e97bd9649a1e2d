"""Where a training looks its augmented embeddings up: in the object store, or in memory-mapped files."""

from __future__ import annotations

from sentdist.learning.bank import StoredBank
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.train_here import file_bank


def bank_of(stage: Train, context: Context) -> StoredBank | None:
    """The bank of a training; None if its objective uses none."""
    if not stage.banks or not context.runtime.bank_in_object_store:
        return file_bank(stage, context)
    from sentdist.execution.banks.reader import open_bank

    return open_bank(stage.banks, context)
