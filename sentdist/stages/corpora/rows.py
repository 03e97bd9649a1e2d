"""How the rows of a plain corpus are read: pairs or triplets as they stand, or the training folds of a retrieval source."""

from __future__ import annotations

import pyarrow as pa

from sentdist.data.folds import faq_pairs
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.pinned import read_source
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.stages.context import Context
from sentdist.stages.corpora.build import CorpusTable
from sentdist.stages.own_file import read_own


def rows(stage: RowsCorpus, context: Context) -> CorpusTable:
    """The pinned rows of a source; of a fold, each query with a relevant document.

    Raises:
        DataError: a source that is missing, unreadable or of another shape.
    """
    table, columns = _table(stage, context)
    return CorpusTable(
        table=table, columns=columns, facts={}, limit=stage.limit, limit_seed=stage.limit_seed, add_reversed=stage.add_reversed
    )


def _table(stage: RowsCorpus, context: Context) -> tuple[pa.Table, tuple[str, ...]]:
    if stage.own is not None:
        return read_own(
            stage.source, stage.own, "train", revision=stage.source_revision, folders=context.folders, root=context.data_folder
        ), stage.columns
    if (fold := stage.fold) is not None:
        collection = read_retrieval(stage.source, split=stage.split, data_root=context.data_folder, document_field=stage.document_field)
        pairs = faq_pairs(collection, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, role="train", by=fold.by)
        return pairs, ("anchor", "positive")
    table = read_source(
        stage.source,
        split=stage.split,
        data_root=context.data_folder,
        columns=stage.columns,
        hub_revision=stage.source_revision,
    )
    return table, stage.columns
