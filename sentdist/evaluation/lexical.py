"""Scores from words alone, without an encoder: the floor that any encoder must beat, and what keyword search reaches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, assert_never

import bm25s
import numpy as np
from numpy.typing import NDArray

Lexical = Literal["word_overlap", "bm25"]

K1, B = 0.9, 0.4  # Anserini's and BEIR's defaults (Thakur et al. 2021, arXiv 2104.08663)


def word_scores(kind: Lexical, queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.float64]:
    """(Q, R) how well each of R documents matches each of Q queries; higher is better.

    word_overlap: shared words over all words of both (Jaccard). bm25:
    Lucene's form of Robertson and Zaragoza 2009, over lower-cased runs of letters and digits, no stemming, no stop words.
    A query without a known word scores 0 everywhere.
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
