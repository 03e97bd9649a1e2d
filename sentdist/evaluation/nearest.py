"""Find the documents nearest to each query: exact cosine search tile by tile, and lexical scores (BM25, word overlap)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import bm25s
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.sts import checked_embeddings, normalized

ROWS_PER_TILE = 8192
QUERIES_PER_BLOCK = 1024
# Two documents whose cosines agree to this many decimals tie: float32 embeddings do not distinguish them.
COSINE_DECIMALS = 6
STEPS = 10**COSINE_DECIMALS

# A hit as one number: how far its rounded cosine is below 1, in steps, then its row. Smaller is better, ties fall in the corpus's order,
# and the best k are those of a partition.
ROW_BITS = 40
NO_HIT = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    """The best K documents of Q queries: rows of the corpus and cosines, best first; ties in corpus order."""

    documents: NDArray[np.int64]  # (Q, K)
    cosines: NDArray[np.float64]  # (Q, K)


def search(queries_QD: ArrayLike, documents: NDArray[np.floating] | Iterable[NDArray[np.floating]], *, depth: int) -> Ranking:
    """Find the `depth` documents of highest cosine to each query, exactly; all documents where there are fewer.

    Args:
        documents: one (R, D) array, which may be memory-mapped, or an iterable of (r, D) tiles.

    Raises:
        DataError: zero or non-finite embeddings, another width than that of the queries, or an empty corpus.
    """
    nearest = NearestDocuments(queries_QD, depth=depth)
    if isinstance(documents, np.ndarray):
        documents = [documents[start : start + ROWS_PER_TILE] for start in range(0, len(documents), ROWS_PER_TILE)]
    for tile in documents:
        nearest.add(tile)
    return nearest.ranking()


class NearestDocuments:
    """The best documents so far of Q queries; memory is O(Q · depth) and the tile at hand.

    Cosines are computed in float64 and rounded to six decimals; ties keep corpus order, on every machine and for every tiling.
    """

    def __init__(self, queries_QD: ArrayLike, *, depth: int, first_row: int = 0) -> None:
        """Start a search; `first_row`: row of the first tile in the whole corpus, if this is a part of it."""
        if depth < 1:
            raise DataError(where="search: depth", found=f"{depth}", expected="at least 1 document a query", remedy="Ask for more.")
        self._unit_QD = normalized(checked_embeddings(queries_QD, where="queries"))
        self.hits = np.full((len(self._unit_QD), depth), NO_HIT)  # (Q, depth) so far, unordered, for `merge`
        self._next_row = first_row
        self.num_documents = 0

    @property
    def rows(self) -> set[int]:
        """Rows of the corpus that are among the best of any query."""
        return set(np.unique(self.hits[self.hits != NO_HIT] & ((1 << ROW_BITS) - 1)).tolist())

    def add(self, tile_RD: ArrayLike) -> None:
        """Search the next documents of the corpus."""
        unit_RD = normalized(checked_embeddings(tile_RD, where=f"documents from row {self._next_row}"))
        width = self._unit_QD.shape[1]
        if unit_RD.shape[1] != width:
            raise DataError(
                where="documents", found=f"width {unit_RD.shape[1]}", expected=f"width {width}, as the queries have",
                remedy="Encode queries and documents with the same encoder.",
            )  # fmt: skip
        rows_R = np.arange(self._next_row, self._next_row + len(unit_RD))
        for first in range(0, len(self.hits), QUERIES_PER_BLOCK):
            cosines_QR = self._unit_QD[first : first + QUERIES_PER_BLOCK] @ unit_RD.T
            worst_Q = 1.0 - (self.hits[first : first + QUERIES_PER_BLOCK].max(axis=1) >> ROW_BITS) / STEPS
            better = np.flatnonzero(cosines_QR.max(axis=1) > worst_Q - 1.0 / STEPS)  # else no document of the tile can be a hit
            hits = (STEPS - np.rint(cosines_QR[better] * STEPS).astype(np.int64) << ROW_BITS) | rows_R
            self._merge(first + better, hits)
        self._next_row += len(unit_RD)
        self.num_documents += len(unit_RD)

    def merge(self, hits_Qk: NDArray[np.int64], num_documents: int) -> None:
        """Merge the hits of another part of the corpus, of `num_documents` documents."""
        self._merge(np.arange(len(self.hits)), hits_Qk)
        self.num_documents += num_documents

    def ranking(self) -> Ranking:
        """Return the best documents, best first."""
        if not self.num_documents:
            raise DataError(where="documents", found="none", expected="at least one", remedy="Check that the corpus was read.")
        best = np.sort(self.hits, axis=1)[:, : self.num_documents]
        return Ranking(documents=best & ((1 << ROW_BITS) - 1), cosines=(STEPS - (best >> ROW_BITS)) / STEPS)

    def _merge(self, queries: NDArray[np.intp], hits: NDArray[np.int64]) -> None:
        depth = self.hits.shape[1]
        self.hits[queries] = np.partition(np.hstack([self.hits[queries], hits]), depth - 1, axis=1)[:, :depth]


Lexical = Literal["word_overlap", "bm25"]

K1, B = 0.9, 0.4  # Anserini's and BEIR's defaults (Thakur et al. 2021, arXiv 2104.08663)


def word_scores(kind: Lexical, queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.float64]:
    """Return (Q, R) lexical scores of R documents for Q queries; higher is better. A query without a known word scores 0 everywhere.

    Args:
        kind: word_overlap: Jaccard similarity of words; bm25: Lucene's form of Robertson and Zaragoza 2009. Words are lower-cased runs of
            letters and digits, without stemming or stop words.
    """
    words_Q, words_R = [_words(query) for query in queries], [_words(document) for document in documents]
    return _bm25(words_Q, words_R) if kind == "bm25" else _overlaps(words_Q, words_R)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _bm25(words_Q: list[list[str]], words_R: list[list[str]]) -> NDArray[np.float64]:
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index(words_R, show_progress=False)
    known = index.vocab_dict
    scores_QR = np.zeros((len(words_Q), len(words_R)))
    for row, words in enumerate(words_Q):
        found = [word for word in words if word in known]
        if found:
            scores_QR[row] = index.get_scores(found)
    return scores_QR


def _overlaps(words_Q: list[list[str]], words_R: list[list[str]]) -> NDArray[np.float64]:
    sets_R = [set(words) for words in words_R]
    rows = []
    for words in map(set, words_Q):
        rows.append([len(words & other) / max(1, len(words | other)) for other in sets_R])
    return np.asarray(rows)
