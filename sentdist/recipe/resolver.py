"""The interface by which planning looks up data sources and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sentdist.families import POOLINGS
from sentdist.recipe.specs import OwnFileSection, OwnRows


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A source or checkpoint as found by name. Facts that planning cannot know are None, or True for `may_…` and `has_mask_token`."""

    name: str  # as in a stage
    revision: str  # pins the content
    num_rows: int = 0
    width: int | None = None  # of an encoder's layers
    dense_width: int | None = None  # of the output of the dense layer that the encoder's folder declares
    num_layers: int | None = None  # of an encoder
    most_tokens: int | None = None  # maximum length that an encoder takes
    may_drop_heads: bool = True  # the encoder runs without padding
    may_recompute_layers: bool = True  # in the backward pass
    has_mask_token: bool = True  # of the tokenizer
    shares_layers: bool = False  # one layer's weights are used many times, as in ALBERT
    has_decoder: bool = False  # generates text, as BART does: no sentence encoder without changes
    splits: tuple[str, ...] = ()  # of a source

    def width_with(self, pooling: str) -> int | None:
        """Return the width of the encoder's embeddings with a pooling; None if planning cannot know it."""
        return self.dense_width or self.width if POOLINGS[pooling].gives_dense else self.width


@dataclass(frozen=True, kw_only=True)
class OwnPin:
    """A user file as recognised."""

    name: str
    revision: str
    rows: OwnRows
    num_rows: int  # training rows
    num_apart: int  # largest set of training rows without a text in common
    num_dev: int = 0  # anchors or graded pairs held out for dev
    num_test: int = 0  # likewise for test
    tokens: float | None = None  # estimated mean tokens per training text, before truncation
    notes: tuple[str, ...] = ()  # sentences on what was recognised and held out


class Resolver(Protocol):
    """Look up data and checkpoints while planning; raises every error that can be detected before any work starts."""

    notes: list[str]  # sentences on what could not be checked, or was read in an unusual way

    def source(self, name: str, *, split: str | None, revision: str | None, columns: tuple[str, ...], where: str) -> Pin:
        """Pin a data source.

        Args:
            columns: Names that the source must have.
        """
        ...

    def encoder(self, checkpoint: str, *, revision: str | None, where: str) -> Pin: ...

    def declared_pooling(self, checkpoint: str, *, revision: str | None) -> str | None:
        """Return the pooling that a checkpoint declares; None if it declares none or planning cannot see it."""
        ...

    def is_retrieval(self, name: str) -> bool:
        """Return whether the files of a source are documents, queries and judgements."""
        ...

    def own(self, file: OwnFileSection, *, where: str) -> OwnPin:
        """Recognise the content of a user file and which of its rows are held out."""
        ...

    def tagger(self, name: str, *, where: str) -> str:
        """Return the revision of a tagger: "nltk", or "module:function"."""
        ...

    def wordnet(self, *, where: str) -> str:
        """Return the revision of WordNet as NLTK finds it."""
        ...
