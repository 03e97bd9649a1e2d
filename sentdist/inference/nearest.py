"""Exact nearest-neighbour search in a corpus, read, embedded and searched tile by tile.

No torch at import: workers that search a file of embeddings load no encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentdist.data.cells import LeftOut
from sentdist.data.texts import Texts
from sentdist.errors import DataError, EncoderError
from sentdist.evaluation.nearest import ROWS_PER_TILE, NearestDocuments
from sentdist.inference.embedding_file import TEXTS, TextsDigest, check_made_by, facts_of, open_embeddings
from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stage import Json

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder


@dataclass(frozen=True, kw_only=True)
class SameEncoder:
    """A reference by which other processes and hosts load the same encoder."""

    use: EncoderUse  # with an absolute folder, or the commit of a hub id
    digest: str | None  # of its files; None for the hub, where the commit identifies them

    @classmethod
    def of(cls, loaded: LoadedEncoder) -> SameEncoder:
        """Return the reference: workers run in another folder, and a hub id may name another commit there."""
        use, folder = loaded.use, loaded.folder
        if use.checkpoint in PACKAGED_ENCODERS:
            return cls(use=use, digest=loaded.digest.whole)
        if Path(use.checkpoint).expanduser() == folder:
            return cls(use=replace(use, checkpoint=str(folder.absolute())), digest=loaded.digest.whole)
        return cls(use=replace(use, revision=folder.name), digest=None)  # huggingface_hub: snapshots/COMMIT

    def load(self, device: str | None = None) -> LoadedEncoder:
        """Load the encoder, as `LoadedEncoder.load`.

        Raises:
            EncoderError: as there; or the files on this host differ.
        """
        from sentdist.inference.ready_encoder import LoadedEncoder

        loaded = LoadedEncoder.load(self.use, device)
        if self.digest is not None and loaded.digest.whole != self.digest:
            packaged = PACKAGED_ENCODERS.get(self.use.checkpoint)
            remedy = (
                "Put the same folder on all hosts, or on a shared disk"
                if packaged is None
                else f"Install the same version of {packaged.distribution} on all hosts"
            )
            raise EncoderError(
                where=f"encoder {self.use.checkpoint}",
                found="another configuration, tokenizer or pooling, or other weights under that name on a worker's host than here",
                expected="the same encoder on all hosts, unchanged during the run", remedy=f"{remedy}, and start again.",
            )  # fmt: skip
        return loaded


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Consecutive documents of a corpus."""

    first_row: int
    num_rows: int
    sentences: list[str] | None  # None: not given
    shown: Mapping[str, list[str]] = field(default_factory=dict)  # other columns

    def about(self, row: int) -> dict[str, Json]:
        """Return the text and other columns of a row of the corpus, as far as they are given."""
        place = row - self.first_row
        known: dict[str, Json] = {} if self.sentences is None else {"text": self.sentences[place]}
        return known | ({"columns": {name: cells[place] for name, cells in self.shown.items()}} if self.shown else {})


ReadTile = Callable[[Tile], np.ndarray]  # returns its (r, D) embeddings


@dataclass(frozen=True, kw_only=True)
class SearchedFiles:
    """The corpus: a file of sentences, a file of embeddings, or both with the same rows."""

    texts: Texts | None
    embeddings: Path | None

    @property
    def num_rows(self) -> int | None:
        """Rows of the corpus; None if unknown before reading."""
        if self.embeddings is not None:
            return len(open_embeddings(self.embeddings))
        return None if self.texts is None else self.texts.num_rows

    def check(self, loaded: LoadedEncoder) -> None:
        """Raise DataError if its embeddings were made by another encoder."""
        if self.embeddings is not None:
            check_made_by(self.embeddings, open_embeddings(self.embeddings), width=loaded.width, facts=loaded.facts)

    def tiles(self, rows_per_tile: int = ROWS_PER_TILE) -> Iterator[Tile]:
        """Yield all documents in order; DataError at the end if sentences and embeddings differ in number or order."""
        num_embedded = None if self.embeddings is None else len(open_embeddings(self.embeddings))
        if self.texts is None:
            assert num_embedded is not None, "a corpus has texts or embeddings"
            for first in range(0, num_embedded, rows_per_tile):
                yield Tile(first_row=first, num_rows=min(rows_per_tile, num_embedded - first), sentences=None)
            return
        done, digest = 0, TextsDigest()
        for batch in self.texts.batches(rows_per_tile):
            sentences = batch[self.texts.columns[0]]
            if num_embedded is not None:
                digest.add(sentences)
                if done + len(sentences) > num_embedded:
                    raise self._of_others(f"more than {num_embedded} sentences and {num_embedded} embeddings")
            shown = {column: batch[column] for column in self.texts.shown}
            yield Tile(first_row=done, num_rows=len(sentences), sentences=sentences, shown=shown)
            done += len(sentences)
        if num_embedded is not None and done != num_embedded:
            raise self._of_others(f"{done} sentences and {num_embedded} embeddings")
        if self.embeddings is not None and facts_of(self.embeddings).get(TEXTS, digest.hex) != digest.hex:
            raise self._of_others("other sentences than those encoded, or in another order")

    def _of_others(self, found: str) -> DataError:
        assert self.texts is not None
        return DataError(
            where=f"{self.texts.name} and {self.embeddings}", found=found, expected="one embedding for each sentence, in the same order",
            remedy="Encode the corpus again.",
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TileReader:
    """Provides the embeddings of tiles, here or on a worker: from a file or by the encoder."""

    encoder: SameEncoder
    embeddings: Path | None

    def open(self, loaded: LoadedEncoder | None = None) -> ReadTile:
        """Return a function from tiles to embeddings; loads the encoder if needed, unless `loaded` is given."""
        if self.embeddings is not None:
            mapped_SD = open_embeddings(self.embeddings)
            return lambda tile: mapped_SD[tile.first_row : tile.first_row + tile.num_rows]
        encoder = loaded or self.encoder.load()

        def embedded(tile: Tile) -> np.ndarray:
            assert tile.sentences is not None, "a corpus has texts or embeddings"
            return encoder.embed(tile.sentences)

        return embedded


@dataclass(frozen=True, kw_only=True)
class Queries:
    """Q queries as vectors; a score is the cosine with a document times the scale."""

    vectors: np.ndarray  # (Q, D)
    scale: np.ndarray  # (Q,)


def embed_queries(loaded: LoadedEncoder, sentences: list[str], weights: Mapping[str, float]) -> Queries:
    """Embed queries for search by cosine, or with `weights` (relation to weight) by Σ_k w_k cos(h + r_k, d), the query as head.

    Raises:
        DataError, EncoderError: as `LoadedEncoder.embed` and `scorer_of`.
    """
    from sentdist.inference.similarity import scorer_of

    embeddings_QD = loaded.embed(sentences)
    if not weights:
        return Queries(vectors=embeddings_QD, scale=np.ones(len(sentences)))
    vectors_QD = scorer_of(loaded, weights).queries(embeddings_QD, where="--relation")
    return Queries(vectors=vectors_QD, scale=np.linalg.norm(vectors_QD, axis=1))


class CorpusSearch:
    """The best documents so far with their texts; memory holds Q · depth documents and a tile."""

    def __init__(self, queries: Queries, *, depth: int) -> None:
        self.nearest = NearestDocuments(queries.vectors, depth=depth)
        self._queries = queries
        self._kept: dict[int, dict[str, Json]] = {}  # row -> text and columns

    def look(self, tile: Tile, embeddings_RD: np.ndarray) -> None:
        """Search the next tile of the corpus."""
        self.nearest.add(embeddings_RD)
        self._keep(tile)

    def merge(self, tile: Tile, hits_Qk: np.ndarray) -> None:
        """Merge the hits that a worker found in a tile."""
        self.nearest.merge(hits_Qk, tile.num_rows)
        self._keep(tile)

    def hits(self, query: int, left_out: LeftOut | None = None) -> list[dict[str, Any]]:
        """Return the hits of a query, best first: rank from 1, score, row from 0, and text and other columns if given.

        Rows are counted in the file, including those `left_out` of the search.
        """
        ranking = self.nearest.ranking()
        found: list[dict[str, Any]] = []
        for place, (row, cosine) in enumerate(zip(ranking.documents[query].tolist(), ranking.cosines[query].tolist(), strict=True)):
            hit: dict[str, Any] = {"rank": place + 1, "score": round(cosine * float(self._queries.scale[query]), 6)}
            hit["row"] = row if left_out is None else left_out.row_in_file(row)
            found.append(hit | self._kept.get(row, {}))
        return found

    def _keep(self, tile: Tile) -> None:
        if tile.sentences is None:
            return
        fresh = range(tile.first_row, tile.first_row + tile.num_rows)
        known = self._kept
        self._kept = {}
        for row in self.nearest.rows:
            self._kept[row] = tile.about(row) if row in fresh else known[row]


def search_here(search: CorpusSearch, corpus: SearchedFiles, read: ReadTile) -> Iterator[int]:
    """Search a corpus in this process; yield the number of documents done."""
    for tile in corpus.tiles():
        search.look(tile, read(tile))
        yield search.nearest.num_documents
