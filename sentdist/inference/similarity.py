"""Score pairs of sentences by cosine, or by the relations that an encoder was trained with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from sentdist.data.texts import Texts
from sentdist.errors import DataError, EncoderError
from sentdist.families import POOLINGS
from sentdist.files import whole_file
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.relation_file import Relations, has_relations, read_relations
from sentdist.recipe.objectives import names_where
from sentdist.recipe.specs import RelationalScoring
from sentdist.tasks.scorer import COSINE, RelationalScorer, Scorer
from sentdist.text import csv_cell

PAIRS_AT_ONCE = 8_192
SCHEMA = pa.schema([("sentence1", pa.large_string()), ("sentence2", pa.large_string()), ("score", pa.float64())])

TextPairs = tuple[list[str], list[str]]


@dataclass(frozen=True, kw_only=True)
class PairScorer:
    """Scores pairs by cosine, or, with relations, by Σ_k w_k cos(h_1 + r_k, h_2) (RSE, arXiv 2212.08802)."""

    loaded: LoadedEncoder
    scorer: Scorer

    def scores(self, first: list[str], second: list[str]) -> np.ndarray:
        """Return (S,) float64 similarities in [−1, 1]; equal sentences are embedded once."""
        unique = list(dict.fromkeys([*first, *second]))
        row = {sentence: number for number, sentence in enumerate(unique)}
        embeddings = self.loaded.embed(unique)
        first_SD, second_SD = (embeddings[[row[sentence] for sentence in half]] for half in (first, second))
        return self.scorer.similarities(first_SD, second_SD, where="similarity")


def pair_scorer(loaded: LoadedEncoder, weights: Mapping[str, float]) -> PairScorer:
    """Return a scorer by cosine if `weights` (relation to weight) is empty, else by relations; raises as `scorer_of`."""
    return PairScorer(loaded=loaded, scorer=scorer_of(loaded, weights) if weights else COSINE)


def scorer_of(loaded: LoadedEncoder, weights: Mapping[str, float]) -> RelationalScorer:
    """Return the scorer of an encoder's relations: the greater score of both directions.

    Args:
        loaded: the encoder.
        weights: relation -> weight; 0 leaves a relation out.

    Raises:
        EncoderError: the encoder has no relations, or they were trained with another pooling.
        DataError: an unknown relation, or no weight above 0.
    """
    if not any(weights.values()):
        raise DataError(where="relations", found="no weight above 0", expected="at least one", remedy="0 leaves a relation out.")
    scoring = RelationalScoring.model_validate({"weights": dict(weights), "directions": "max_both"})
    if not has_relations(loaded.folder):
        raise EncoderError(
            where=f"encoder {loaded.use.checkpoint}: relations", found="no relations",
            expected=f"an encoder trained with a relational objective ({names_where(relations=True)})", remedy="Leave relations out.",
        )  # fmt: skip
    relations = read_relations(loaded.folder)
    if (learned := _learned_with(loaded, relations)) is not None:
        raise EncoderError(
            where=f"encoder {loaded.use.checkpoint}: relations",
            found=f"pooling {loaded.encoder.pooling} for relations that were trained with {learned}",
            expected="the pooling that relations were trained with",
            remedy="Leave relations out." if POOLINGS[learned].is_other_at_test else f"Use pooling {learned}, or leave relations out.",
        )
    scorer = RelationalScorer(relations=relations, scoring=scoring)
    scorer.check(where="relations")
    return scorer


def _learned_with(loaded: LoadedEncoder, relations: Relations) -> str | None:
    """The pooling that relations were trained with, if the encoder's embeddings differ from it here; None: equal or unknown."""
    learned = relations.pooling or loaded.encoder.checkpoint.pooling
    is_other = learned is not None and (POOLINGS[learned].is_other_at_test or learned != loaded.encoder.pooling)
    return learned if is_other else None


def pair_batches(file: Texts) -> Iterator[TextPairs]:
    """Yield batches of pairs from two columns of a file; raises as `Texts.batches`."""
    for batch in file.batches(PAIRS_AT_ONCE):
        yield batch[file.columns[0]], batch[file.columns[1]]


def write_scores(scorer: PairScorer, pairs: Iterator[TextPairs], out: Path) -> Iterator[int]:
    """Write columns sentence1, sentence2, score to a .csv or .parquet file, atomically; yield the number of pairs done.

    In CSV, a sentence that looks like a formula gets a leading apostrophe; in Parquet, sentences are unchanged.
    """
    done, shown = 0, csv_cell if out.suffix == ".csv" else str
    with whole_file(out) as part, _table_writer(part, out.suffix) as writer:
        for first, second in pairs:
            texts = [pa.array(map(shown, half), pa.large_string()) for half in (first, second)]
            columns = [*texts, pa.array(scorer.scores(first, second))]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
            done += len(first)
            yield done


def _table_writer(path: Path, suffix: str) -> pq.ParquetWriter | pyarrow.csv.CSVWriter:
    return pq.ParquetWriter(path, SCHEMA) if suffix == ".parquet" else pyarrow.csv.CSVWriter(path, SCHEMA)
