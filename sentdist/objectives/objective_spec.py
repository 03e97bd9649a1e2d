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
    where: str = ""  # the field, relative to the objective's place in the recipe

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

    columns: int  # minimum; 1: sentences alone
    positives: int | None  # maximum per anchor; None: any number
    labels: Literal["needed", "refused", "ignored"]  # refused: a row means an anchor with its positive, which most graded pairs are not
    negatives: int = 0  # minimum per anchor
    relations: bool = False  # each row has a relation number
    bank: bool = False  # embeddings of entropy encoders
    targets: bool = False  # shares of tags and words
    alone: bool = True  # False: useful only as a term of a sum


@dataclass(frozen=True, kw_only=True)
class Start:
    """The training that an encoder comes from, for objectives that continue with parts of it."""

    term: ObjectiveSpec | None  # its objective of the same name, if any
    has_same_terms: bool  # of the whole objective, in the same order
    relations: tuple[str, ...]  # that the encoder knows


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What a loss can be built from besides its recipe fields; None: not available, e.g. if the embeddings come from elsewhere."""

    rows: Rows
    width: int | None = None  # of embeddings, D
    encoder: SentenceEncoder | None = None
    bank: BankReader | None = None
    targets: TargetReader | None = None
    precision: str = "fp32"  # like micro_batch, for a loss that encodes sentences itself
    micro_batch: int | None = None

    def needed_width(self, name: str) -> int:
        """Return the width of embeddings; RecipeError naming the objective `name` if it was not given."""
        if self.width is None:
            expected = "the width of embeddings, for the parameters of the loss"
            raise RecipeError(where=f"objective {name}", found="no width", expected=expected, remedy="Give width=D.")
        return self.width

    def needed_encoder(self, name: str) -> SentenceEncoder:
        """Return the encoder; RecipeError naming the objective `name` if there is none."""
        if self.encoder is None:
            raise needs_more(name, "the encoder itself")
        return self.encoder


def needs_more(name: str, needed: str) -> RecipeError:
    """Return the error for an objective that needs more than embeddings."""
    remedy = "Train it by a recipe, which has encoder and sentences."
    return RecipeError(where=f"objective {name}", found="embeddings alone", expected=f"also {needed}", remedy=remedy)


class ObjectiveSpec(Frozen):
    """An objective as a recipe names it: each subclass in a module of this package is one (recipe/objectives.py finds it)."""

    title: ClassVar[str]  # for a model card
    about: ClassVar[str]  # for a line of a table
    citations: ClassVar[tuple[Citation, ...]]
    needs: ClassVar[Needs]
    regulators_per_bank: ClassVar[int] = 0  # terms that hold embeddings near those of one entropy encoder
    without_bank: ClassVar[type[ObjectiveSpec] | None] = None  # the objective it equals for an empty bank, if that has a name

    name: str

    def make_loss(self, inputs: LossInputs) -> Objective:
        """Return the loss of the training loop. Objectives with parameters override this and draw them from torch's generator."""
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
        """Return why these values make no sense for an encoder, else None. `width` None: unknown; `has_mask_token`: or unknown."""
        return None

    def mismatch_of_start(self, start: Start | None, rows: Rows) -> Mismatch | None:
        """Return why training cannot keep the parts of the start that these (settled) values ask for, else None."""
        return None

    def mismatch_of_frozen_encoder(self) -> Mismatch | None:
        """Return why these values train nothing, or have no effect, with a frozen encoder; None if they train something."""
        if self.has_parameters:
            return None
        return Mismatch("no own parameters", "an objective with parameters beside the encoder's", "Set freeze_encoder: false.")

    @property
    def has_parameters(self) -> bool:
        """Whether the loss has parameters beside those of the encoder."""
        return type(self).make_loss is not ObjectiveSpec.make_loss

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
