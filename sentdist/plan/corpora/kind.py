"""What every kind of training corpus says of itself: its section of a recipe, its stage, its rows, as objectives ask for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import Labels
from sentdist.plan.resolver import Pin, Resolver
from sentdist.plan.specs import Fold, OwnRows, Task
from sentdist.plan.stage import Processes, Purpose, Stage


@dataclass(frozen=True, kw_only=True)
class Planning:
    """What a section of a recipe is planned with. fold: the part of a cross-validation; None outside of one.
    pairs_of: the tasks of graded pairs that some names of tasks or groups stand for, pinned; RecipeError for another."""

    resolver: Resolver
    fold: Fold | None
    pairs_of: Callable[[Sequence[str], str], tuple[Task, ...]]


def pinned(said: Frozen, pin: Pin, *, without: Set[str] = frozenset()) -> dict[str, Any]:
    """What a recipe says of a source, as fields of a stage: its name and revision are those of the pin."""
    kept = said.model_dump(exclude={"kind", "source", "revision", *without})
    return kept | {"source": pin.name, "source_revision": pin.revision}


class Section(Frozen):
    """A corpus as a recipe says it. A subclass in a file of this package is a kind of corpus, and has a `kind`."""

    if TYPE_CHECKING:
        kind: str

    def planned(self, given: Planning, *, where: str) -> tuple[CorpusStage, int]:
        """The stage, and its rows as far as planning can know. where: the place in the recipe, for errors."""
        raise NotImplementedError

    def tokens(self, given: Planning, *, where: str) -> float | None:
        """Of a sentence on average, before it is cut; None: planning reads no texts of this kind."""
        return None

    @property
    def shown(self) -> str:
        """What an error calls it."""
        return f"of kind {self.kind}"

    def judged_source(self, resolver: Resolver) -> str | None:
        """The retrieval source that its rows come from, by what its files are: cross-validation then goes over its queries."""
        return None

    @property
    def documents_by(self) -> str:
        """What of the documents of such a source is read."""
        return "answer"


class PinnedSource(Protocol):
    """What rows are read from: a name, its digest or commit, and the split; None: all. own: which rows of a person's own file; None of
    what is not one."""

    @property
    def source(self) -> str: ...
    @property
    def source_revision(self) -> str: ...
    @property
    def split(self) -> str | None: ...
    @property
    def own(self) -> OwnRows | None: ...


class CorpusStage(Stage):
    """A training corpus. holds: what its rows are, in a line of a table.
    reader: "module:function" of (stage, context) that reads the sources and gives a `CorpusTable`."""

    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = "one"
    precision_used: ClassVar[None] = None

    holds: ClassVar[str]
    reader: ClassVar[str]

    @property
    def num_columns(self) -> int:
        """Sentences of a row: the anchor, its positives, its hard negatives."""
        raise NotImplementedError

    if TYPE_CHECKING:  # a field in one kind, which pydantic would not let shadow a property

        @property
        def num_positives(self) -> int:
            """Positives of an anchor; 0 of sentences alone."""
            ...

    @property
    def labels(self) -> Labels | None:
        """The labels of its rows; None where they have none."""
        return None

    @property
    def relation_names(self) -> tuple[str, ...]:
        """The relations of its rows, in the order of their numbers; empty where they have none."""
        return ()

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        return 0  # an encoder sees none of them here

    @property
    def training_fold(self) -> Fold | None:
        """The part of a cross-validation over the queries of its source that its rows are from; None outside of one."""
        return None

    @property
    def uses_gpu(self) -> bool:
        """Whether a model writes some of its sentences."""
        return False

    @property
    def sources(self) -> tuple[PinnedSource, ...]:
        """What its rows are read from, in their order."""
        raise NotImplementedError

    @property
    def described(self) -> tuple[str, ...]:
        """What the data is, for a model card."""
        return tuple(f"{one.source} ({one.split or 'all'}, {one.source_revision})" for one in self.sources)
