"""Find the documents nearest to each query: exact cosine search tile by tile, and lexical scores (BM25, word overlap)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

import bm25s
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError
from sentdist.evaluation.sts import checked_embeddings, normalized

ROWS_PER_TILE = 8192
QUERIES_PER_BLOCK = 1024
PAIRS_PER_BLOCK = 16_384
# Two documents whose cosines agree to this many decimals tie: float32 embeddings do not distinguish them.
COSINE_DECIMALS = 6
STEPS = 10**COSINE_DECIMALS

# A hit as one number: how far its rounded cosine is below 1, in steps, then its row. Smaller is better, ties fall in the corpus's order,
# and the best k are those of a partition.
ROW_BITS = 40
NO_HIT = np.iinfo(np.int64).max

SAFE_SQUARES = (1e-24, 1e24)  # squared lengths from which float32 neither overflows nor loses digits


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    """The best K documents of Q queries: rows of the corpus and cosines, best first; ties in corpus order."""

    documents: NDArray[np.int64]  # (Q, K)
    cosines: NDArray[np.float64]  # (Q, K)
    num_documents: int


def search(queries_QD: ArrayLike, documents: ArrayLike | Iterable[NDArray[np.floating]], *, depth: int) -> Ranking:
    """Find the `depth` documents of highest cosine to each query, exactly; all documents where there are fewer.

    Args:
        documents: one (R, D) array, which may be memory-mapped, or an iterable of (r, D) tiles.

    Raises:
        DataError: zero or non-finite embeddings, another width than that of the queries, or an empty corpus.
    """
    nearest = NearestDocuments(queries_QD, depth=depth)
    for tile in _tiles(documents):
        nearest.add(tile)
    return nearest.ranking()


class NearestDocuments:
    """The best documents so far of Q queries; memory is O(Q · depth) and the tile at hand.

    Cosines are computed in float64 and rounded to six decimals; ties keep corpus order, on every machine and for every tiling. Tiles are
    multiplied in float32, and only documents that could be among the best within its rounding error are computed in float64. That error
    has a bound (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1): a product of vectors of D numbers and length 1 is
    off by at most D · 2⁻²⁴ to first order, in any order of summation; a length by half of it.
    """

    def __init__(self, queries_QD: ArrayLike, *, depth: int, first_row: int = 0) -> None:
        """Start a search; `first_row`: row of the first tile in the whole corpus, if this is a part of it."""
        if depth < 1:
            raise DataError(where="search: depth", found=f"{depth}", expected="at least 1 document a query", remedy="Ask for more.")
        self._unit_QD = normalized(checked_embeddings(queries_QD, where="queries"))
        self._rough_QD = self._unit_QD.astype(np.float32)
        self._margin = (2 * self.width + 16) * 2.0**-24
        self._hits_Qk = np.full((len(self._unit_QD), depth), NO_HIT)
        self._next_row = first_row
        self.num_documents = 0

    @property
    def width(self) -> int:
        return int(self._unit_QD.shape[1])

    @property
    def hits(self) -> NDArray[np.int64]:
        """(Q, depth) hits so far, unordered, for `merge`."""
        return self._hits_Qk

    @property
    def rows(self) -> set[int]:
        """Rows of the corpus that are among the best of any query."""
        found = self._hits_Qk[self._hits_Qk != NO_HIT] & ((1 << ROW_BITS) - 1)
        return set(np.unique(found).tolist())

    def add(self, tile_RD: ArrayLike) -> None:
        """Search the next documents of the corpus."""
        tile = np.asarray(tile_RD)
        where = f"documents from row {self._next_row}"
        if tile.ndim == 2 and tile.shape[1] != self.width:
            raise DataError(
                where="documents", found=f"width {tile.shape[1]}", expected=f"width {self.width}, as the queries have",
                remedy="Encode queries and documents with the same encoder.",
            )  # fmt: skip
        rough_RD, inverse_R = _scaled(tile, where)
        for first in range(0, len(self._hits_Qk), QUERIES_PER_BLOCK):
            block = slice(first, first + QUERIES_PER_BLOCK)
            rough_QR = self._rough_QD[block] @ rough_RD.T
            rough_QR *= inverse_R
            query, document = np.nonzero(self._candidates(rough_QR, self._hits_Qk[block]))
            if len(query):
                cosines = self._cosines(query + first, document, tile)
                keys = (STEPS - np.rint(cosines * STEPS).astype(np.int64) << ROW_BITS) | (self._next_row + document)
                self._keep(query + first, keys)
        self._next_row += len(tile)
        self.num_documents += len(tile)

    def merge(self, hits_Qk: NDArray[np.int64], num_documents: int) -> None:
        """Merge the hits of another part of the corpus, of `num_documents` documents."""
        both = np.hstack([self._hits_Qk, hits_Qk])
        self._hits_Qk = _smallest(both, self._hits_Qk.shape[1])
        self.num_documents += num_documents

    def ranking(self) -> Ranking:
        """Return the best documents, best first."""
        if not self.num_documents:
            raise DataError(where="documents", found="none", expected="at least one", remedy="Check that the corpus was read.")
        best = np.sort(self._hits_Qk, axis=1)[:, : self.num_documents]
        cosines = (STEPS - (best >> ROW_BITS)) / STEPS
        return Ranking(documents=best & ((1 << ROW_BITS) - 1), cosines=cosines, num_documents=self.num_documents)

    def _candidates(self, rough_QR: NDArray[np.float32], hits_Qk: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(Q, R) whether a document may be among the best: not surely below the worst hit or `depth` documents of this tile."""
        depth = hits_Qk.shape[1]
        worst_Q = hits_Qk.max(axis=1)
        floor_Q = np.where(worst_Q == NO_HIT, -np.inf, 1.0 - (worst_Q >> ROW_BITS) / STEPS - self._margin)
        may_QR = rough_QR > floor_Q[:, None].astype(np.float32)
        crowded = np.flatnonzero(may_QR.sum(axis=1) > depth)
        if len(crowded):
            last = rough_QR.shape[1] - depth
            limit = np.partition(rough_QR[crowded], last, axis=1)[:, last] - (2 * self._margin + 2 / STEPS)
            may_QR[crowded] &= rough_QR[crowded] > limit[:, None].astype(np.float32)
        return may_QR

    def _cosines(self, query: NDArray[np.intp], document: NDArray[np.intp], tile_RD: NDArray[np.floating]) -> NDArray[np.float64]:
        """The cosines of pairs, each summed separately, so that they do not depend on the tiling."""
        used, place = np.unique(document, return_inverse=True)
        unit_RD = normalized(tile_RD[used].astype(np.float64))
        cosines = np.empty(len(query))
        for first in range(0, len(query), PAIRS_PER_BLOCK):
            block = slice(first, first + PAIRS_PER_BLOCK)
            cosines[block] = np.vecdot(self._unit_QD[query[block]], unit_RD[place[block]])
        return cosines

    def _keep(self, query: NDArray[np.intp], keys: NDArray[np.int64]) -> None:
        """Merge new hits, sorted by query, into the old ones."""
        active, start, count = np.unique(query, return_index=True, return_counts=True)
        padded = np.full((len(active), count.max()), NO_HIT)
        padded[np.repeat(np.arange(len(active)), count), np.arange(len(keys)) - np.repeat(start, count)] = keys
        both = np.hstack([self._hits_Qk[active], padded])
        self._hits_Qk[active] = _smallest(both, self._hits_Qk.shape[1])


def _scaled(tile_RD: NDArray[np.floating], where: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A tile in float32 and the inverse lengths (R,) of its rows; DataError for zero or non-finite rows."""
    if tile_RD.ndim == 2 and tile_RD.size:
        with np.errstate(over="ignore", invalid="ignore"):
            rough_RD = np.ascontiguousarray(tile_RD, dtype=np.float32)
            squares_R = np.vecdot(rough_RD, rough_RD)
        if squares_R.min() > SAFE_SQUARES[0] and squares_R.max() < SAFE_SQUARES[1]:
            return rough_RD, 1 / np.sqrt(squares_R)
    unit_RD = normalized(checked_embeddings(tile_RD, where=where)).astype(np.float32)
    return unit_RD, np.ones(len(unit_RD), dtype=np.float32)


def _smallest(hits: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    return np.partition(hits, depth - 1, axis=1)[:, :depth] if hits.shape[1] > depth else hits


def _tiles(documents: ArrayLike | Iterable[NDArray[np.floating]]) -> Iterable[ArrayLike]:
    if isinstance(documents, np.ndarray):
        return (documents[start : start + ROWS_PER_TILE] for start in range(0, len(documents), ROWS_PER_TILE))
    return documents  # type: ignore[return-value]


Lexical = Literal["word_overlap", "bm25"]

K1, B = 0.9, 0.4  # Anserini's and BEIR's defaults (Thakur et al. 2021, arXiv 2104.08663)


def word_scores(kind: Lexical, queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.float64]:
    """Return (Q, R) lexical scores of R documents for Q queries; higher is better. A query without a known word scores 0 everywhere.

    Args:
        kind: word_overlap: Jaccard similarity of words; bm25: Lucene's form of Robertson and Zaragoza 2009. Words are lower-cased runs of
            letters and digits, without stemming or stop words.
    """
    words_Q, words_R = [_words(query) for query in queries], [_words(document) for document in documents]
    match kind:
        case "bm25":
            return _bm25(words_Q, words_R)
        case "word_overlap":
            return _overlaps(words_Q, words_R)
    assert_never(kind)


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
