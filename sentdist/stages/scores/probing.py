"""What can be read of tags and words out of an encoder's channels: the probes that an evaluation asks for."""

from __future__ import annotations

import numpy as np

from sentdist.data.corpus import OpenedCorpus
from sentdist.data.seeded_order import shuffled
from sentdist.data.targets import FileTargets
from sentdist.errors import DataError
from sentdist.evaluation.probes import probe_distribution, probe_regression
from sentdist.objectives.channels import Channels
from sentdist.plan.specs import Probes
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores
from sentdist.stages.context import Context
from sentdist.stages.inputs import folder_of
from sentdist.stages.scores.embed_sentences import Embed
from sentdist.stages.tagging import targets_of


def probe_results(stage: Scores, embed: Embed, context: Context) -> dict[str, Json]:
    """What linear probes find, as results of the record; empty where none are asked for.

    `probes.tags_from_pos` and `probes.tags_from_bow`: the share of the tags' information that the tags' and the words' channels give away
    (1 is all, 0 none, see `DistributionProbe.explained`). `probes.words_from_…`: R² of the shares of the most frequent words.
    An adversary that works brings tags_from_bow and words_from_pos down.
    """
    targets = targets_of(stage.targets, context)
    if stage.probes is None or targets is None or stage.targets is None:
        return {}
    corpus = OpenedCorpus.open(folder_of(stage.targets.corpus, context))
    ids = np.sort(shuffled(corpus.num_sentences, seed=stage.probes.seed, stream="probes")[: stage.probes.num_sentences])
    embeddings_SD = embed(corpus.sentences(ids))
    return _found(stage.probes, embeddings_SD, targets, ids)


def _found(probes: Probes, embeddings_SD: np.ndarray, targets: FileTargets, ids: np.ndarray) -> dict[str, Json]:
    channels = Channels.of(embeddings_SD.shape[1], probes.channels)
    parts = {"pos": embeddings_SD[:, : channels.pos], "bow": embeddings_SD[:, channels.pos :]}
    rows = targets.rows(ids)
    kept = rows.bow_words < probes.num_words  # the vocabulary is in the order of frequency
    words_SV = np.zeros((len(ids), min(probes.num_words, targets.num_words)))
    words_SV[rows.bow_rows[kept], rows.bow_words[kept]] = rows.bow_shares[kept]
    results: dict[str, Json] = {"probes.num_sentences": len(ids)}
    for name, part_SD in parts.items():
        try:
            tags = probe_distribution(part_SD, rows.pos, seed=probes.seed)
            words = probe_regression(part_SD, words_SV, seed=probes.seed)
        except DataError as error:
            raise error.with_context(where=f"probes: {error.where}") from error
        results |= {
            f"probes.tags_from_{name}": tags.explained,
            f"probes.tags_from_{name}.cross_entropy": tags.cross_entropy,
            f"probes.words_from_{name}": words.r2,
        }
        results |= {"probes.tags.floor": tags.floor, "probes.tags.best": tags.best}
    return results
