"""How the NLI rows of a corpus stage are grouped by premise: sources joined, missing positives copied or reworded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from sentdist.data.augmentation import delete_words, replace_synonyms
from sentdist.data.nli_groups import Augment, group_by_premise, inference_rows
from sentdist.data.nltk_folder import nltk_folder
from sentdist.data.sources.pinned import read_source
from sentdist.learning.paraphrase import paraphrase
from sentdist.plan.corpora.groups import Augmentation, GroupedCorpus, GroupPart
from sentdist.plan.stage import Json
from sentdist.stages.context import Context
from sentdist.stages.corpora.build import CorpusTable
from sentdist.stages.devices import device_of


def rows(stage: GroupedCorpus, context: Context) -> CorpusTable:
    """Columns anchor, positive_1 …, negative_1 …, one row a premise, and what was found and filled, for the record.

    Raises:
        DataError: what `group_by_premise` refuses; an unreadable source; WordNet that is not there.
        EncoderError: a paraphraser that is not there or cannot write.
    """
    root = context.data_folder
    augmentation = stage.augmentation
    table, facts = group_by_premise(
        pa.concat_tables([_read(part, root) for part in stage.parts]),
        num_positives=stage.num_positives,
        num_negatives=stage.num_negatives,
        seed=stage.seed,
        fill=stage.fill,
        at_least=stage.at_least,
        augment=None if augmentation is None else rewording(augmentation, seed=stage.seed, context=context),
        augmented_fraction=augmentation.fraction if augmentation is not None and augmentation.name == "paraphrases" else 1.0,
        limit=stage.limit,
        limit_seed=stage.limit_seed,
    )
    premises: dict[str, Json] = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(facts).items()}
    return CorpusTable(
        table=table, columns=tuple(table.column_names), facts={"premises": premises}, limit=stage.limit, limit_seed=stage.limit_seed
    )


def rewording(augmentation: Augmentation, *, seed: int, context: Context) -> Augment:
    """What turns entailments into further positives."""
    root = context.data_folder
    fraction = augmentation.fraction

    def reword(sentences: Sequence[str]) -> Sequence[str]:
        match augmentation.name:
            case "word_deletion":
                return delete_words(sentences, fraction=fraction, seed=seed)
            case "synonyms":
                return replace_synonyms(sentences, fraction=fraction, seed=seed, folder=nltk_folder(root))
            case "paraphrases":
                revision = augmentation.source_revision or ""
                folder = context.folders.get(revision)
                return paraphrase(
                    sentences,
                    checkpoint=folder or augmentation.checkpoint,
                    revision=None if folder else revision,
                    seed=seed,
                    device=device_of(context.runtime),
                )

    return reword


def _read(part: GroupPart, root: Path | None) -> pa.Table:
    found = read_source(part.source, split=part.split, data_root=root, columns=part.columns, hub_revision=part.source_revision)
    return inference_rows(found, columns=part.columns, labels=part.labels, where=part.source)
