"""What all kinds of training corpus share: the section of a recipe, the stage, its sources, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import Labels
from sentdist.recipe.resolver import Pin, Resolver
from sentdist.recipe.specs import Fold, OwnRows
from sentdist.recipe.stage import Json, Processes, Purpose, Stage
from sentdist.tasks.sts import StsTask

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Planning:
    """The context in which a section of a recipe is planned."""

    resolver: Resolver
    fold: Fold | None  # None without cross-validation
    pairs_of: Callable[[Sequence[str], str], tuple[StsTask, ...]]  # `RecipeTasks.graded_pairs`


class SourceSection(Frozen):
    """A source of rows in a recipe."""

    source: str
    revision: str | None = None  # of a hub data set; files are pinned by their content
    split: str | None = "train"

    def pin(self, resolver: Resolver, columns: tuple[str, ...], *, where: str) -> Pin:
        """Look up the source; raise DataError if it lacks the split or columns."""
        return resolver.source(self.source, split=self.split, revision=self.revision, columns=columns, where=where)


class PinnedPart(Frozen):
    """A pinned source of rows; split None: all rows."""

    source: str
    source_revision: str
    split: str | None = "train"

    @property
    def name(self) -> str:
        """The name in counts and errors."""
        return f"{self.source}:{self.split}" if self.split else self.source


def pinned(section: Frozen, pin: Pin, *, without: Set[str] = frozenset()) -> dict[str, Any]:
    """Return the section of a source as fields of a stage, with the name and revision of the pin."""
    kept = section.model_dump(exclude={"kind", "source", "revision", *without})
    return kept | {"source": pin.name, "source_revision": pin.revision}


class Section(Frozen):
    """A corpus in a recipe. Each subclass, with a field `kind`, is a kind of corpus."""

    if TYPE_CHECKING:
        kind: str

    def planned(self, given: Planning, *, where: str) -> tuple[CorpusStage, int]:
        """Return the stage, and an estimate of its rows. where: the place in the recipe, for errors."""
        raise NotImplementedError

    def tokens(self, given: Planning, *, where: str) -> float | None:
        """Return the mean tokens per sentence before truncation; None: planning reads no texts of this kind."""
        return None

    @property
    def shown(self) -> str:
        """The name in errors."""
        return f"of kind {self.kind}"

    def judged_source(self, resolver: Resolver) -> str | None:
        """Return the retrieval source of its rows, over whose queries cross-validation goes; None for other sources."""
        return None

    @property
    def documents_by(self) -> str:
        """The field that is read of the documents of a retrieval source."""
        return "answer"


class PinnedSource(Protocol):
    """A source of rows: its name, its digest or commit, its split (None: all), and how to read a user file (None: it is none)."""

    @property
    def source(self) -> str: ...
    @property
    def source_revision(self) -> str: ...
    @property
    def split(self) -> str | None: ...
    @property
    def own(self) -> OwnRows | None: ...


@dataclass(frozen=True, kw_only=True)
class CorpusTable:
    """Rows of a corpus, as `CorpusStage.read` returns them."""

    table: pa.Table
    columns: tuple[str, ...]  # of sentences
    values: tuple[str, ...] = ()  # columns of labels or relations
    facts: dict[str, Json] = field(default_factory=dict)  # for the record
    limit: int | None = None  # rows to draw
    limit_seed: int = 0
    add_reversed: bool = False


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Where the sources of a corpus are read, and the device for a model that generates some of its sentences."""

    root: Path | None
    folders: Mapping[str, str] = field(default_factory=dict)  # revision of an encoder or user file given by path -> its folder
    device: Callable[[], Any] | None = None

    def rows(self, part: PinnedSource, columns: Sequence[str]) -> pa.Table:
        """Return columns of a source; of a user file its training rows."""
        from sentdist.corpora.own_rows import open_split
        from sentdist.data.sources import read_source

        if part.own is not None:
            rows = open_split(part.source, part.own, "train", revision=part.source_revision, folders=self.folders, root=self.root)
            return rows.table()
        return read_source(part.source, split=part.split, data_root=self.root, columns=columns, hub_revision=part.source_revision)


class CorpusStage(Stage):
    """A training corpus."""

    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = "one"
    precision_used: ClassVar[None] = None

    holds: ClassVar[str]  # description of its rows, for a table

    def read(self, reading: Reading) -> CorpusTable:
        """Read the sources, which have the pinned content.

        Raises:
            DataError: an unreadable source, or rows that make no corpus.
        """
        raise NotImplementedError

    @property
    def num_columns(self) -> int:
        """Sentences per row: the anchor, its positives, its hard negatives."""
        raise NotImplementedError

    if TYPE_CHECKING:  # a field in one kind, which pydantic would not let shadow a property

        @property
        def num_positives(self) -> int:
            """Positives per anchor; 0 for single sentences."""
            ...

    @property
    def labels(self) -> Labels | None:
        """The labels of its rows; None without labels."""
        return None

    @property
    def relation_names(self) -> tuple[str, ...]:
        """The relations of its rows, in the order of their numbers; empty without relations."""
        return ()

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        return 0  # no encoder reads sentences here

    @property
    def training_fold(self) -> Fold | None:
        """The fold of the cross-validation that its rows are from; None without one."""
        return None

    @property
    def uses_gpu(self) -> bool:
        """Whether a model generates some of its sentences."""
        return False

    @property
    def sources(self) -> tuple[PinnedSource, ...]:
        """The sources of its rows, in order."""
        raise NotImplementedError

    @property
    def described(self) -> tuple[str, ...]:
        """Description of the data for a model card."""
        return tuple(f"{one.source} ({one.split or 'all'}, {one.source_revision})" for one in self.sources)
