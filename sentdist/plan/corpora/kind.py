"""What every kind of training corpus says of itself: its rows, as objectives ask for them, and its words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sentdist.objectives.objective import Labels
from sentdist.plan.stage import Purpose, Stage


class CorpusStage(Stage):
    """A training corpus. recipe_kind: what a recipe calls its kind. holds: what its rows are, in a line of a table."""

    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = None

    recipe_kind: ClassVar[str]
    holds: ClassVar[str]

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

    @property
    def described(self) -> tuple[str, ...]:
        """What the data is, for a model card."""
        raise NotImplementedError
