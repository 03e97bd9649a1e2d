"""The kinds of stage beside corpora: a trained encoder, its embeddings of a corpus, its scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.frozen import Frozen
from sentdist.plan.corpora import CORPORA, AnyCorpus
from sentdist.plan.objectives import AnyObjective, phi_of, uses_bank, uses_hard_negatives, uses_targets
from sentdist.plan.specs import EncoderSpec, LexicalSpec, Precision, Probes, Regularizers, Stopping, TaskPrompts, Training, View
from sentdist.plan.stage import Processes, Purpose, Stage, slug
from sentdist.plan.task_kinds import DevTask, ScoredTask, num_encoded

# English by WordPiece: 4.1 to 5.4 in 12 of 13 data sets, mostly 4.6. Letters of other scripts take more bytes, and more of a token.
BYTES_PER_TOKEN = 4.6
SPECIAL_TOKENS = 2


@dataclass(frozen=True, kw_only=True)
class CorpusSizes:
    """rows: training rows, by a corpus's key; texts, by the name of a task of a person's own.
    tokens: of a sentence on average, before it is cut, by a corpus's key, where planning has read the texts."""

    rows: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, float] = field(default_factory=dict)


def tokens_in(num_bytes: float) -> float:
    """About how many tokens a text of so many bytes of UTF-8 has, before anything is known of a tokenizer."""
    return SPECIAL_TOKENS + num_bytes / BYTES_PER_TOKEN


OF_THE_DATA = ("kind", "source", "revision", "split", "role", "fold", "fold_role")  # not the name, nor how much of it is scored


class Selection(Frozen):
    """Score a dev task every so often and keep the best weights; of several tasks the mean of their scores counts.

    parts: numbers of tasks, in order, whose means count as one each, as USEB averages two sets of tweets before it averages tasks;
    (): each task counts as one.
    """

    later_fields: ClassVar[tuple[str, ...]] = ("further_tasks", "parts")

    task: DevTask
    view: View = View()
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of the training rows of an epoch
    further_tasks: tuple[DevTask, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def tasks(self) -> tuple[DevTask, ...]:
        return (self.task, *self.further_tasks)

    @property
    def places(self) -> Iterator[range]:
        """The tasks of each part, by their place."""
        first = 0
        for size in self.parts or (1,) * len(self.tasks):
            yield range(first, first + size)
            first += size

    @property
    def name(self) -> str:
        """As a recipe spells it, with the tasks of groups one by one."""
        return "+".join(task.name for task in self.tasks)


def chosen_and_scored(selection: Selection | None, tasks: Sequence[ScoredTask]) -> tuple[str, ...]:
    """Names of the scored tasks whose data chose the weights, too, by whatever name and however few of their items."""
    chose = () if selection is None else [_data_of(task) for task in selection.tasks]
    return tuple(task.name for task in tasks if _data_of(task) in chose)


def _data_of(task: ScoredTask) -> tuple[object, ...]:
    return tuple(getattr(task, field, None) for field in OF_THE_DATA)


class Targets(Stage):
    """Targets: for every unique sentence of a corpus the shares of its tags and of its words."""

    kind: ClassVar[str] = "targets"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = "targets"
    built_by: ClassVar[Processes | None] = "pool"
    precision_used: ClassVar[None] = None

    corpus: AnyCorpus
    tagger: str = "nltk"  # or "module:function"
    tagger_revision: str
    num_words: Annotated[int, Field(ge=1)] = 20_000

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        return rows[self.corpus.key] * self.corpus.num_columns

    @property
    def label(self) -> str:
        return slug(f"{self.tagger}-{self.num_words}-on-{self.corpus.label}")


class Train(Stage):
    """An encoder trained on a corpus with one objective."""

    kind: ClassVar[str] = "train"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = "train"
    built_by: ClassVar[Processes | None] = "group"

    encoder: EncoderSpec
    start: Train | None = None  # continue from this encoder; None: from the checkpoint
    corpus: AnyCorpus
    objective: AnyObjective
    banks: tuple[Bank, ...] = ()
    targets: Targets | None = None
    training: Training
    regularizers: Regularizers = Regularizers()
    stopping: Stopping | None = None
    selection: Selection | None = None
    seed: int

    @model_validator(mode="after")
    def _banks_fit_objective(self) -> Train:
        if self.banks and not uses_bank(self.objective):
            raise ValueError(f"objective {self.objective.name} uses no bank")
        if (self.targets is not None) != uses_targets(self.objective):
            raise ValueError(f"objective {self.objective.name} uses {'no' if self.targets else 'its'} targets")
        return self

    @property
    def num_columns(self) -> int:
        """Columns of the corpus that take part: an objective can leave out hard negatives that are there."""
        corpus = self.corpus
        return corpus.num_columns if uses_hard_negatives(self.objective) else min(corpus.num_columns, 1 + corpus.num_positives)

    @property
    def dev_tasks(self) -> tuple[DevTask, ...]:
        """The tasks that choose the training's weights; none where the last ones are kept."""
        return () if self.selection is None else self.selection.tasks

    @property
    def sentences_per_step(self) -> int:
        """Sentences of the global batch."""
        return self.training.batch_size * self.num_columns

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        return self.training.epochs * self.training.steps_per_epoch(rows[self.corpus.key]) * self.sentences_per_step

    @property
    def precision_used(self) -> Precision:
        return self.training.precision

    @property
    def label(self) -> str:
        phi = f"{value:+g}" if (value := phi_of(self.objective)) else ""
        banks = f"-n{len(self.banks)}" if self.banks else ""
        return slug(f"{self.objective.name}{phi}{banks}-{self.encoder.checkpoint}-b{self.training.batch_size}-s{self.seed}")

    @property
    def whole(self) -> Train:
        """The training that this is, or is a part of: itself."""
        return self


class Rung(Stage):
    """A training until a share of its steps, to go on from: its dev scores so far and its checkpoint.

    It ends at the first dev score at which that share is done, and reads what the training reads. A lower rung, where there is one, is
    where it starts from; since that changes no bit, it is no input.
    """

    kind: ClassVar[str] = "rung"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "aside"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = "group"

    of: Train
    share: Annotated[float, Field(gt=0.0, lt=1.0)]

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return self.of.inputs

    @property
    def precision_used(self) -> Precision:
        return self.of.precision_used

    @property
    def label(self) -> str:
        return f"{self.of.label}-to-{100 * self.share:g}"

    @property
    def whole(self) -> Train:
        """The training that this is, or is a part of."""
        return self.of


class Bank(Stage):
    """A bank: the embeddings of every unique sentence of a corpus by one frozen encoder (dropout off)."""

    kind: ClassVar[str] = "bank"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = "bank"
    built_by: ClassVar[Processes | None] = "pool"

    encoder: Train
    corpus: AnyCorpus
    dtype: Literal["float16", "float32"] = "float16"
    max_length: Annotated[int, Field(ge=3)] = 75
    precision: Precision = "fp32"

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        return rows[self.corpus.key] * self.corpus.num_columns

    @property
    def precision_used(self) -> Precision:
        return self.precision

    @property
    def label(self) -> str:
        return f"{self.encoder.label}-on-{self.corpus.label}"


class Scores(Stage):
    """The scores of an encoder on pinned tasks."""

    kind: ClassVar[str] = "scores"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "scores"
    speed_of: ClassVar[str | None] = "bank"  # scores encode as fast as banks do
    built_by: ClassVar[Processes | None] = "one"

    later_fields: ClassVar[tuple[str, ...]] = ("prompts",)

    encoder: EncoderSpec | Train | LexicalSpec
    tasks: tuple[ScoredTask, ...]
    max_length: Annotated[int, Field(ge=3)] | None = None  # None: what the encoder can take
    precision: Precision = "fp32"
    view: View = View()
    probes: Probes | None = None
    targets: Targets | None = None  # what the probes look for
    prompts: TaskPrompts = TaskPrompts()  # before the texts of tasks; the probes' sentences have none

    @model_validator(mode="after")
    def _probes_look_for_targets(self) -> Scores:
        if (self.probes is None) != (self.targets is None):
            raise ValueError("probes go with targets")
        return self

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        return sum(num_encoded(task, rows) for task in self.tasks)

    @property
    def precision_used(self) -> Precision:
        return self.precision

    @property
    def label(self) -> str:
        match self.encoder:
            case Train():
                return self.encoder.label
            case LexicalSpec():
                return slug(self.encoder.name)
        layers = "" if self.encoder.layers is None else f"-{self.encoder.layers}-layers"
        if self.encoder.initialization != "pretrained":
            return slug(f"{self.encoder.checkpoint}{layers}-untrained")
        is_folder = (self.encoder.revision or "").startswith("sha256:")  # a training of the store, or whatever else a person has made
        return slug(f"{self.encoder.checkpoint}{layers}{'' if is_folder else '-untouched'}")


class Overlap(Stage):
    """What a training corpus, or the dev set that chooses checkpoints, holds of test sets. No other stage needs it: reports do."""

    kind: ClassVar[str] = "overlap"
    # 1: pairs of paraphrases and candidates were looked for as single sentences;
    # 2: disguised, contained and slightly changed texts were missed; 3: those of labels and clusters, and rarer disguises
    revision: ClassVar[int] = 4
    purpose: ClassVar[Purpose] = "aside"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = None
    precision_used: ClassVar[None] = None

    of: AnyCorpus | DevTask
    tasks: tuple[ScoredTask, ...]
    near: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8  # Jaccard similarity from which two texts are near-duplicates

    @property
    def label(self) -> str:
        return slug(self.of.name if isinstance(self.of, DevTask) else self.of.label)


class Encoded(Stage):
    """Embeddings of test sentences, kept between evaluations of an encoder; `sentdist evaluate` makes them."""

    kind: ClassVar[str] = "encoded"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "aside"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = None

    later_fields: ClassVar[tuple[str, ...]] = ("prompt",)

    encoder: EncoderSpec | Train
    max_length: Annotated[int, Field(ge=3)] | None = None
    precision: Precision = "fp32"
    sentences: str  # digest
    prompt: str = ""  # before each sentence

    @property
    def precision_used(self) -> Precision:
        return self.precision

    @property
    def label(self) -> str:
        return self.encoder.label if isinstance(self.encoder, Train) else slug(self.encoder.checkpoint)


class Tokens(Stage):
    """The sentences of a corpus as a tokenizer reads them. The first training that needs them makes them, so no plan has them:
    a plan knows checkpoints, and many of these share one tokenizer."""

    kind: ClassVar[str] = "tokens"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "aside"
    speed_of: ClassVar[str | None] = None
    built_by: ClassVar[Processes | None] = None
    precision_used: ClassVar[None] = None

    corpus: AnyCorpus
    tokenizer: str  # digest
    max_length: Annotated[int, Field(ge=3)]

    @property
    def label(self) -> str:
        return slug(f"{self.corpus.label}-{self.max_length}")


_KINDS: tuple[type[Stage], ...] = (*CORPORA, Targets, Train, Rung, Bank, Scores, Encoded, Overlap, Tokens)
STAGES: dict[str, type[Stage]] = {stage.kind: stage for stage in _KINDS}


def to_share(train: Train, share: float) -> Train | Rung:
    """The stage that holds a training until a share of its steps."""
    return train if share >= 1.0 else Rung(of=train, share=share)


__all__ = [
    "STAGES",
    "Bank",
    "Encoded",
    "Overlap",
    "Rung",
    "Scores",
    "Targets",
    "Tokens",
    "Train",
    "to_share",
]
