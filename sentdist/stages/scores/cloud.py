"""What a report draws of a cloud of embeddings: its singular values, and some sentences with their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SAMPLED_PAIRS = 150  # sentences enough for a map, few enough for a page
SPECTRUM_FILE, SAMPLE_FILE = "cloud/spectrum.parquet", "cloud/sample.parquet"


@dataclass(frozen=True, kw_only=True, eq=False)
class Cloud:
    """Singular values (D,) of S normalised embeddings in falling order;
    U sampled sentences, the part of the task of each, and their (U, D) embeddings."""

    singular_values: np.ndarray
    sentences: Sequence[str]
    subsets: Sequence[str]
    embeddings: np.ndarray

    def write(self, folder: Path) -> None:
        """Two small Parquet files below `folder`; embeddings as float16."""
        (folder / "cloud").mkdir()
        pq.write_table(pa.table({"singular_value": self.singular_values}), folder / SPECTRUM_FILE, compression="zstd")
        columns = {
            "sentence": list(self.sentences),
            "subset": list(self.subsets),
            "embedding": pa.array(list(self.embeddings.astype(np.float16)), pa.list_(pa.float16())),
        }
        pq.write_table(pa.table(columns), folder / SAMPLE_FILE, compression="zstd")


def sampled_pairs(num_pairs: int) -> list[int]:
    """Rows spread evenly over a task, so that every part of it is there and every encoder is asked about the same sentences."""
    count = min(num_pairs, SAMPLED_PAIRS)
    return [number * num_pairs // count for number in range(count)]
