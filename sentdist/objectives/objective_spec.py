"""What all objectives of a recipe have in common: their values, what is known of each, what each needs."""

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
    """Why an objective has no meaning somewhere, in the words of an error."""

    found: str
    expected: str
    remedy: str
    where: str = ""  # the field, behind the objective's place in the recipe

    def refused(self, where: str) -> RecipeError:
        """The error that says so."""
        return RecipeError(where=where, found=self.found, expected=self.expected, remedy=self.remedy)


class Labels(NamedTuple):
    """The labels of a graded corpus: from 0 to `top`, `spacing` apart; None: any number between."""

    top: float
    spacing: float | None


class Rows(Protocol):
    """What an objective asks of a corpus while planning; each kind of corpus says it of itself."""

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
    """What an objective needs of a batch and beside it.

    columns: at least; 1: sentences alone. positives: of an anchor, at most; None: any number. negatives: of an anchor, at least.
    labels: "needed", "ignored", or "refused" where a row is taken for an anchor with its positive, which most graded pairs are not.
    relations: the number of each row's relation. bank, targets: the embeddings of entropy encoders, the shares of tags and words.
    alone: False for what only makes sense as a term of a sum.
    """

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
    """The training that an encoder comes from, as far as an objective may go on with something of it.

    term: the objective of the same name there; None: there is none.
    has_same_terms: whether the whole objective has the same terms in the same order.
    relations: those that encoder knows.
    """

    term: ObjectiveSpec | None
    has_same_terms: bool
    relations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What a loss may be made with beside its values: the rows, the width of embeddings, the encoder it trains, the bank, the targets.

    None: not to be had, as where somebody else's encoder makes the embeddings. precision, micro_batch: for a loss that encodes by itself.
    """

    rows: Rows
    width: int | None = None
    encoder: SentenceEncoder | None = None
    bank: BankReader | None = None
    targets: TargetReader | None = None
    precision: str = "fp32"
    micro_batch: int | None = None

    def needed_width(self, name: str) -> int:
        """The width of embeddings, where the objective of that name must know it. RecipeError where it was not given."""
        if self.width is None:
            expected = "the numbers of an embedding, for what the loss learns"
            raise RecipeError(where=f"objective {name}", found="no width", expected=expected, remedy="Give width=D.")
        return self.width

    def needed_encoder(self, name: str) -> SentenceEncoder:
        """The encoder, for an objective that encodes by itself; RecipeError where there is none."""
        if self.encoder is None:
            raise needs_more(name, "the encoder itself")
        return self.encoder


def needs_more(name: str, needed: str) -> RecipeError:
    """The error for an objective that embeddings alone are not enough for."""
    remedy = "Train it by a recipe, which has encoder and sentences, too."
    return RecipeError(where=f"objective {name}", found="embeddings alone", expected=f"also {needed}", remedy=remedy)


class ObjectiveSpec(Frozen):
    """An objective as a recipe names it. A subclass in a file of this package is an objective: plan/objectives.py finds it.

    title: for a model card. about: what it is, in a line of a table. citations: whose work it is. needs: see `Needs`.
    regulators_per_bank: terms that hold embeddings near those of one entropy encoder. without_bank: the objective that it is where the
    bank is empty; None: none that has a name, or it uses no bank.
    """

    title: ClassVar[str]
    about: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    needs: ClassVar[Needs]
    regulators_per_bank: ClassVar[int] = 0
    without_bank: ClassVar[type[ObjectiveSpec] | None] = None

    name: str

    def make_loss(self, inputs: LossInputs) -> Objective:
        """The loss that the training loop calls. An objective that learns something overrides this;
        its parameters start from torch's generator."""
        from sentdist.learning.objective import FunctionObjective

        return FunctionObjective(partial(self.loss_of, inputs=inputs))

    def loss_of(self, embeddings: Tensor, batch: Batch, inputs: LossInputs) -> Tensor:
        """Scalar, mean over this rank's B rows, from the (C·B, D) embeddings of `batch.tokens`, column by column."""
        raise NotImplementedError

    def settled(self, rows: Rows) -> Self:
        """The same objective with what a default stands for on these rows written out, so that equal objectives have equal keys."""
        return self

    def mismatch(self, rows: Rows) -> Mismatch | None:
        """What `needs` cannot say: why these values have no meaning on these rows; None where they have."""
        return None

    def mismatch_of_encoder(self, *, pooling: str, width: int | None, has_mask_token: bool) -> Mismatch | None:
        """Why these values have no meaning for an encoder; width: None where planning cannot know it. has_mask_token: unless it is known to
        have none."""
        return None

    def mismatch_of_start(self, start: Start | None, rows: Rows) -> Mismatch | None:
        """Why training cannot go on with what these values want to keep of the encoder it starts from; None: no start.
        Asked of settled values."""
        return None

    def mismatch_of_frozen_encoder(self) -> Mismatch | None:
        """Why these values train nothing, or do something without effect, beside an encoder that stays as it is.

        An objective with parameters of its own says that it has them by overriding this.
        """
        return Mismatch("no parameters of its own", "an objective that learns something beside the encoder", "Set freeze_encoder: false.")

    @property
    def remark(self) -> str | None:
        """What a user should know of values that have a meaning, but perhaps not the one they thought of; it is printed behind the name."""
        return None

    @property
    def used_citations(self) -> tuple[Citation, ...]:
        """Whose work these values rest on."""
        return self.citations

    @property
    def reads_negatives(self) -> bool:
        """Whether a corpus's negative columns take part."""
        return self.needs.negatives > 0 or bool(getattr(self, "hard_negatives", False))
