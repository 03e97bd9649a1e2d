"""Base class of recipe objectives, and the types they share with planning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import Field

from sentdist.errors import RecipeError
from sentdist.frozen import Frozen
from sentdist.text import Citation

if TYPE_CHECKING:
    from torch import Tensor

    from sentdist.learning.bank import BankReader
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
    from sentdist.learning.encoder.tokens import Batch
    from sentdist.learning.objective import Objective
    from sentdist.learning.targets import TargetReader

Temperature = Annotated[float, Field(gt=0.0)]
Weight = Annotated[float, Field(ge=0.0)]
Rate = Annotated[float, Field(gt=0.0)]


class Mismatch(NamedTuple):
    """Why an objective cannot be used somewhere, as the parts of an error."""

    found: str
    expected: str
    remedy: str
    where: str = ""  # the field, behind the objective's place in the recipe

    def refused(self, where: str) -> RecipeError:
        """Return the error."""
        return RecipeError(where=where, found=self.found, expected=self.expected, remedy=self.remedy)


class Labels(NamedTuple):
    """Labels of a graded corpus, from 0 to `top` in steps of `spacing`; None: any number between."""

    top: float
    spacing: float | None


class Rows(Protocol):
    """What planning tells an objective about a corpus; each kind of corpus implements it."""

    @property
    def label(self) -> str: ...
    @property
    def num_columns(self) -> int: ...
    @property
    def num_positives(self) -> int: ...
    @property
    def labels(self) -> Labels | None: ...
    @property
    def relation_names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an objective needs of a batch and of other artifacts."""

    columns: int
    positives: int | None
    labels: Literal["needed", "refused", "ignored"]
    negatives: int = 0
    relations: bool = False
    bank: bool = False
    targets: bool = False
    alone: bool = True


@dataclass(frozen=True, kw_only=True)
class Start:
    """The training that an encoder comes from, for objectives that continue with parts of it."""

    term: ObjectiveSpec | None
    has_same_terms: bool
    relations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What a loss can be built from besides its recipe fields; None: not available, e.g. no encoder if the embeddings come from
    elsewhere."""

    rows: Rows
    width: int | None = None
    encoder: SentenceEncoder | None = None
    bank: BankReader | None = None
    targets: TargetReader | None = None
    precision: str = "fp32"
    micro_batch: int | None = None

    def needed_width(self, name: str) -> int:
        """Return the width of embeddings; RecipeError naming the objective `name` if it was not given."""
        if self.width is None:
            expected = "the numbers of an embedding, for what the loss learns"
            raise RecipeError(where=f"objective {name}", found="no width", expected=expected, remedy="Give width=D.")
        return self.width

    def needed_encoder(self, name: str) -> SentenceEncoder:
        """Return the encoder; RecipeError naming the objective `name` if there is none."""
        if self.encoder is None:
            raise needs_more(name, "the encoder itself")
        return self.encoder


def needs_more(name: str, needed: str) -> RecipeError:
    """Return the error for an objective that needs more than embeddings."""
    remedy = "Train it by a recipe, which has encoder and sentences, too."
    return RecipeError(where=f"objective {name}", found="embeddings alone", expected=f"also {needed}", remedy=remedy)


class ObjectiveSpec(Frozen):
    """An objective as a recipe names it: each subclass in a module of this package is one (plan/objectives.py finds it)."""

    title: ClassVar[str]
    about: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    needs: ClassVar[Needs]
    regulators_per_bank: ClassVar[int] = 0
    without_bank: ClassVar[type[ObjectiveSpec] | None] = None

    name: str

    def make_loss(self, inputs: LossInputs) -> Objective:
        """Return the loss that the training loop calls. Objectives with parameters override this and initialize them from torch's
        generator.
        """
        from sentdist.learning.objective import FunctionObjective

        return FunctionObjective(partial(self.loss_of, inputs=inputs))

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        """Return a scalar, mean over this rank's B rows, from the (C·B, D) embeddings of `batch.tokens`, column by column."""
        raise NotImplementedError

    def settled(self, rows: Rows) -> Self:
        """Return the objective with defaults that depend on the rows filled in, so that equal objectives have equal keys."""
        return self

    def mismatch(self, rows: Rows) -> Mismatch | None:
        """Return why these values make no sense on these rows, where `needs` cannot express it; None if they do."""
        return None

    def mismatch_of_encoder(self, *, pooling: str, width: int | None, has_mask_token: bool) -> Mismatch | None:
        """Return why these values make no sense for an encoder, else None. `width` None: unknown; `has_mask_token`: unless known to have
        none.
        """
        return None

    def mismatch_of_start(self, start: Start | None, rows: Rows) -> Mismatch | None:
        """Return why training cannot keep the parts of the start that these (settled) values ask for, else None. `start` None: there is
        none.
        """
        return None

    def mismatch_of_frozen_encoder(self) -> Mismatch | None:
        """Return why these values train nothing, or have no effect, with a frozen encoder.

        Objectives with parameters override this to return None.
        """
        return Mismatch("no parameters of its own", "an objective that learns something beside the encoder", "Set freeze_encoder: false.")

    @property
    def remark(self) -> str | None:
        """A note on valid values that may not be what the user meant; printed after the name."""
        return None

    @property
    def used_citations(self) -> tuple[Citation, ...]:
        """The works that these values use."""
        return self.citations

    @property
    def reads_negatives(self) -> bool:
        """Whether the negative columns of a corpus are used."""
        return self.needs.negatives > 0 or bool(getattr(self, "hard_negatives", False))
