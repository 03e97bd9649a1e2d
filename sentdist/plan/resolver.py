"""What planning asks of the world: what stands behind the names of data and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sentdist.families import POOLINGS
from sentdist.plan.specs import OwnFileSection, OwnRows


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What is found behind a name: the name that goes into a stage, the revision that pins the content, its rows."""

    name: str
    revision: str
    num_rows: int = 0
    width: int | None = None  # of an encoder's layers, where planning can know it
    dense_width: int | None = None  # of what the dense layer gives that its folder declares, where there is one
    num_layers: int | None = None  # of an encoder, where planning can know it
    most_tokens: int | None = None  # that an encoder takes, where planning can know it
    may_drop_heads: bool = True  # its family is one whose sentences lie flat, or planning cannot know it
    may_recompute_layers: bool = True  # in the backward pass, or planning cannot know it
    has_mask_token: bool = True  # its tokenizer, or planning cannot know it
    shares_layers: bool = False  # one layer's weights, used many times, such as ALBERT's
    has_decoder: bool = False  # what generates text, such as BART: no encoder of sentences as it is
    splits: tuple[str, ...] = ()  # of a source

    def width_with(self, pooling: str) -> int | None:
        """Of an encoder's embeddings, where planning can know it."""
        return self.dense_width or self.width if POOLINGS[pooling].gives_dense else self.width


@dataclass(frozen=True, kw_only=True)
class OwnPin:
    """A person's own file. num_rows: that train; num_apart: of them without a text in common, at most; num_dev, num_test: anchors or graded
    pairs that are held out.
    tokens: of a text of those on average, before it is cut, by estimate.
    notes: what was recognised and held out, in sentences.
    """

    name: str
    revision: str
    rows: OwnRows
    num_rows: int
    num_apart: int
    num_dev: int = 0
    num_test: int = 0
    tokens: float | None = None
    notes: tuple[str, ...] = ()


class Resolver(Protocol):
    """Looks at data and checkpoints while planning; every mistake that can be seen then is raised here.

    notes: what could not be looked at, or was read in an unusual way, in sentences for people.
    """

    notes: list[str]

    def source(
        self, name: str, *, split: str | None, revision: str | None, columns: tuple[str, ...], where: str, judged: bool = False
    ) -> Pin:
        """judged: documents, queries and judgements are meant, and no table."""
        ...

    def encoder(self, checkpoint: str, *, revision: str | None, where: str) -> Pin: ...

    def declared_pooling(self, checkpoint: str, *, revision: str | None) -> str | None:
        """The pooling that a checkpoint says it was made with; None where it says none, or planning cannot see it."""
        ...

    def is_retrieval(self, name: str) -> bool:
        """Whether a source is documents, queries and judgements, by what its files are."""
        ...

    def own(self, file: OwnFileSection, *, where: str) -> OwnPin:
        """What a person's own file holds, and which of its rows are held out."""
        ...

    def tagger(self, name: str, *, where: str) -> str:
        """The revision of a tagger: "nltk", or "module:function"."""
        ...

    def wordnet(self, *, where: str) -> str:
        """The revision of WordNet as NLTK finds it."""
        ...
