"""The four kinds of stage: a corpus, a trained encoder, its embeddings of a corpus, its scores."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.plan.specs import (
    EncoderSpec,
    Entropy,
    Fold,
    Objective,
    Precision,
    Regularized,
    Regularizers,
    Selection,
    Stopping,
    Task,
    Training,
)
from sentdist.plan.stage import Stage


class Corpus(Stage):
    """Training rows as ids into a table of unique sentences."""

    kind: ClassVar[str] = "corpus"
    revision: ClassVar[int] = 1

    source: str
    source_revision: str
    split: str | None = None
    columns: tuple[str, ...] = ("sent0", "sent1", "hard_neg")  # anchor, positive[, negative]
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0
    add_reversed: bool = False  # also (positive, anchor, negative), as the recipe of the start checkpoint did
    fold: Fold | None = None
    document_field: Literal["answer", "question", "question_answer"] = "answer"

    @property
    def label(self) -> str:
        fold = f"-fold{self.fold.number}" if self.fold else ""
        return _slug(f"{self.source}{f'-{self.limit}' if self.limit else ''}{fold}")


class Train(Stage):
    """An encoder trained on a corpus with one objective."""

    kind: ClassVar[str] = "train"
    revision: ClassVar[int] = 1

    encoder: EncoderSpec
    start: Train | None = None  # continue from this encoder; None: from the checkpoint
    corpus: Corpus
    objective: Objective
    banks: tuple[Embed, ...] = ()
    training: Training
    regularizers: Regularizers = Regularizers()
    stopping: Stopping | None = None
    selection: Selection | None = None
    seed: int

    @model_validator(mode="after")
    def _banks_fit_objective(self) -> Train:
        if self.banks and not isinstance(self.objective, Regularized):
            raise ValueError(f"objective {self.objective.name} uses no bank")
        return self

    @property
    def label(self) -> str:
        phi = f"{self.objective.phi:+g}" if isinstance(self.objective, Entropy) else ""
        banks = f"-n{len(self.banks)}" if self.banks else ""
        return _slug(f"{self.objective.name}{phi}{banks}-{self.encoder.checkpoint}-b{self.training.batch_size}-s{self.seed}")


class Embed(Stage):
    """A bank: the embeddings of every unique sentence of a corpus by one frozen encoder (dropout off)."""

    kind: ClassVar[str] = "bank"
    revision: ClassVar[int] = 1

    encoder: Train
    corpus: Corpus
    dtype: Literal["float16", "float32"] = "float16"
    max_length: Annotated[int, Field(ge=3)] = 75
    precision: Precision = "fp32"

    @property
    def label(self) -> str:
        return f"{self.encoder.label}-on-{self.corpus.label}"


class Evaluate(Stage):
    """The scores of an encoder on pinned tasks."""

    kind: ClassVar[str] = "scores"
    revision: ClassVar[int] = 1

    encoder: EncoderSpec | Train
    tasks: tuple[Task, ...]
    max_length: Annotated[int, Field(ge=3)] | None = None  # None: what the encoder can take
    precision: Precision = "fp32"

    @property
    def label(self) -> str:
        return self.encoder.label if isinstance(self.encoder, Train) else _slug(f"{self.encoder.checkpoint}-untouched")


STAGES: dict[str, type[Stage]] = {"corpus": Corpus, "train": Train, "bank": Embed, "scores": Evaluate}


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "+-._" else "-" for letter in text.lower()).strip("-")
