"""All kinds of stages except corpora: targets, trainings and rungs, banks, scores, overlaps, cached embeddings, tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.corpora import CORPORA, AnyCorpus
from sentdist.frozen import Frozen
from sentdist.recipe.objectives import AnyObjective, phi_of, uses_bank, uses_hard_negatives, uses_targets
from sentdist.recipe.specs import EncoderSpec, LexicalSpec, Precision, Probes, Regularizers, Stopping, TaskPrompts, Training, View
from sentdist.recipe.stage import Processes, Purpose, Stage, slug
from sentdist.tasks.kinds import DevTask, ScoredTask
from sentdist.tasks.task import Task

# English by WordPiece: 4.1 to 5.4 in 12 of 13 data sets, mostly 4.6. Characters of other scripts take more bytes, and more of a token.
BYTES_PER_TOKEN = 4.6
SPECIAL_TOKENS = 2


@dataclass(frozen=True, kw_only=True)
class CorpusSizes:
    """Sizes that planning has found."""

    rows: dict[str, int] = field(default_factory=dict)  # training rows by key of the corpus; texts by name of a task on a user file
    tokens: dict[str, float] = field(default_factory=dict)  # mean tokens per sentence before truncation, by key of the corpus, if known


def tokens_in(num_bytes: float) -> float:
    """Estimate the number of tokens of a text from its bytes in UTF-8, for an unknown tokenizer."""
    return SPECIAL_TOKENS + num_bytes / BYTES_PER_TOKEN


OF_THE_DATA = ("kind", "source", "revision", "split", "role", "fold", "fold_role")  # neither the name nor the limit


class Selection(Frozen):
    """Score dev tasks at intervals and keep the weights with the best mean score."""

    later_fields: ClassVar[tuple[str, ...]] = ("further_tasks", "parts")

    task: DevTask
    view: View = View()
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of the training rows of an epoch
    further_tasks: tuple[DevTask, ...] = ()
    # Sizes of consecutive groups of tasks; the mean of each group counts as one score, as USEB averages its two Twitter sets before it
    # averages tasks. (): each task counts as one.
    parts: tuple[int, ...] = ()

    @property
    def tasks(self) -> tuple[DevTask, ...]:
        return (self.task, *self.further_tasks)

    @property
    def places(self) -> Iterator[range]:
        """The indices of the tasks of each part."""
        first = 0
        for size in self.parts or (1,) * len(self.tasks):
            yield range(first, first + size)
            first += size

    @property
    def name(self) -> str:
        """The tasks joined by + as in a recipe, groups expanded."""
        return "+".join(task.name for task in self.tasks)


def chosen_and_scored(selection: Selection | None, tasks: Sequence[ScoredTask]) -> tuple[str, ...]:
    """Return the names of the scored tasks whose data also chose the weights, under any name and with any limit."""
    chose = () if selection is None else [_data_of(task) for task in selection.tasks]
    return tuple(task.name for task in tasks if _data_of(task) in chose)


def _data_of(task: ScoredTask) -> tuple[object, ...]:
    return tuple(getattr(task, field, None) for field in OF_THE_DATA)


class Targets(Stage):
    """Shares of tags and words of every unique sentence of a corpus."""

    kind: ClassVar[str] = "targets"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = "targets"
    built_by: ClassVar[Processes | None] = "shards"

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
        """Columns of the corpus that are used: an objective may ignore hard negatives."""
        corpus = self.corpus
        return corpus.num_columns if uses_hard_negatives(self.objective) else min(corpus.num_columns, 1 + corpus.num_positives)

    @property
    def dev_tasks(self) -> tuple[DevTask, ...]:
        """The tasks that choose the weights; none if the last ones are kept."""
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
        """The complete training: itself; see `Rung.whole`."""
        return self


class Rung(Stage):
    """A training up to a share of its steps: its dev scores so far, and a checkpoint to continue from.

    It ends at the first dev score at or after that share, and has the inputs of the training. It may continue from a lower rung, which is
    no input because it does not change the result.
    """

    kind: ClassVar[str] = "rung"
    revision: ClassVar[int] = 1
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
        """The complete training."""
        return self.of


class Bank(Stage):
    """Embeddings of every unique sentence of a corpus by one frozen encoder (dropout off)."""

    kind: ClassVar[str] = "bank"
    revision: ClassVar[int] = 1
    purpose: ClassVar[Purpose] = "training"
    speed_of: ClassVar[str | None] = "bank"
    built_by: ClassVar[Processes | None] = "shards"

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
    max_length: Annotated[int, Field(ge=3)] | None = None  # tokens; None: the encoder's maximum
    precision: Precision = "fp32"
    view: View = View()
    probes: Probes | None = None
    targets: Targets | None = None  # of the probes
    prompts: TaskPrompts = TaskPrompts()  # of the texts of tasks, not of the sentences of probes

    @model_validator(mode="after")
    def _probes_look_for_targets(self) -> Scores:
        if (self.probes is None) != (self.targets is None):
            raise ValueError("probes go with targets")
        return self

    def num_sentences(self, rows: Mapping[str, int]) -> int:
        return sum(task.num_texts(rows) for task in self.tasks)

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
        is_folder = (self.encoder.revision or "").startswith("sha256:")  # a training of the store, or any other folder
        return slug(f"{self.encoder.checkpoint}{layers}{'' if is_folder else '-untouched'}")


class Overlap(Stage):
    """Texts of test sets in a training corpus or in the dev set that chooses checkpoints; read by reports only."""

    kind: ClassVar[str] = "overlap"
    # 1: pairs of paraphrases and candidates were compared as single sentences;
    # 2: disguised, contained and slightly changed texts were missed; 3: those of labels and clusters, and rarer disguises
    revision: ClassVar[int] = 4

    of: AnyCorpus | DevTask
    tasks: tuple[ScoredTask, ...]
    near: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8  # Jaccard similarity from which two texts are near-duplicates

    @property
    def label(self) -> str:
        return slug(self.of.name if isinstance(self.of, Task) else self.of.label)


class Encoded(Stage):
    """Embeddings of test sentences, cached between evaluations of an encoder by `sentdist evaluate`."""

    kind: ClassVar[str] = "encoded"
    revision: ClassVar[int] = 1

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
    """Token ids of the sentences of a corpus, made by the first training that needs them.

    Not in plans: they know checkpoints, many of which share one tokenizer.
    """

    kind: ClassVar[str] = "tokens"
    revision: ClassVar[int] = 1

    corpus: AnyCorpus
    tokenizer: str  # digest
    max_length: Annotated[int, Field(ge=3)]

    @property
    def label(self) -> str:
        return slug(f"{self.corpus.label}-{self.max_length}")


_KINDS: tuple[type[Stage], ...] = (*CORPORA, Targets, Train, Rung, Bank, Scores, Encoded, Overlap, Tokens)
STAGES: dict[str, type[Stage]] = {stage.kind: stage for stage in _KINDS}


def to_share(train: Train, share: float) -> Train | Rung:
    """Return the stage of a training up to a share of its steps: a rung, or the training itself for share 1."""
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
