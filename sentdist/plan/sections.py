"""The sections of a recipe: encoder, selection, evaluation, targets, folds, and a method."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sentdist.frozen import MOST_LETTERS, NAME, ONE_LINE, Frozen
from sentdist.plan.corpora.relations import LinksSection
from sentdist.plan.objectives import AnyObjective
from sentdist.plan.specs import Precision, Probes, Regularizers, Shape, Stopping, Training, View
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.poolings import PoolingName

Name = Annotated[str, Field(pattern=NAME, max_length=MOST_LETTERS)]
Title = Annotated[str, Field(pattern=ONE_LINE)]  # one line, no control characters: tables and figures show it
Override = None | bool | int | float | str


class EncoderSection(Frozen):
    """The pretrained checkpoint that training starts from."""

    checkpoint: str = "minilm-l6"  # a packaged name (`sentdist models`), a folder, or a hub id
    revision: str | None = None  # of a hub checkpoint; a packaged one and a folder pin themselves
    pooling: PoolingName = "mean"  # how the states of tokens become one embedding
    initialization: Literal["pretrained", "random"] = "pretrained"  # random: only the architecture and the tokenizer are taken
    layers: Annotated[int, Field(ge=1)] | None = None  # the first so many transformer layers; None: all


class SelectionSection(Frozen):
    """Which dev task chooses the checkpoint, and how often it is scored. `stsb-dev+sickr-dev`: the mean of several; a group of tasks beside
    others counts as one of them."""

    task: str  # `stsb-dev`, or several joined by +
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of an epoch, between two dev scores
    limit: Annotated[int, Field(ge=10)] | None = None  # of each task's pairs or queries, the same ones each time
    view: View = View()  # how embeddings are read for the dev score

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks, one by one."""
        return tuple(task for name in self.task.split("+") for task in TASK_GROUPS.get(name, (name,)))


class EvaluationSection(Frozen):
    """Which tasks score an encoder."""

    tasks: Annotated[tuple[str, ...], Field(min_length=1)]  # names or groups (`sentdist tasks`), or KIND=SOURCE of your own
    links: LinksSection | None = None  # also rank the tails of triples that a relational corpus has held out
    max_length: Annotated[int, Field(ge=3)] | None = None  # tokens; None: as many as the encoder can take, which dev tasks always have
    precision: Precision = "fp32"  # of the products while sentences are encoded; dev tasks have that of training
    probes: Probes | None = None  # of every method's encoder, on the sentences of its corpus


class TargetsSection(Frozen):
    """Who tags the sentences of a corpus, and how many words are looked for: for auxiliary tasks and probes."""

    tagger: str = "nltk"  # NLTK's, or "module:function" that gives a list of (word, tag) for each sentence
    num_words: Annotated[int, Field(ge=1)] = 20_000


class FoldsSection(Frozen):
    """Cross-validation over the queries of a retrieval corpus."""

    num: Annotated[int, Field(ge=3, le=1000)] = 5
    seed: int = 0
    by: Literal["query", "answer"] = "query"  # answer: queries that share a relevant answer stay in one fold


class Method(Frozen):
    """One row of the result table. Without an objective it is the untouched checkpoint, or another method's encoder read in another way."""

    title: Title | None = None  # its row in tables; None: its name
    objective: AnyObjective | None = None  # what is minimized; None: nothing is trained
    lexical: Literal["word_overlap", "bm25"] | None = None  # no encoder at all: the floor of a table
    encoder: dict[str, Override] = Field(default_factory=dict)  # what differs from the recipe's own encoder section
    of: str | None = None  # the method whose encoder is scored again, in this row's view
    view: View = View()  # how embeddings are read when they are scored
    corpus: str | None = None  # a name under corpora; None: the recipe's corpus
    start: str | None = None  # the method whose encoder training continues from
    bank: str | None = None  # the method that trains the entropy encoders of an objective with regulators
    phis: tuple[float, ...] | None = None  # one entropy encoder each
    shapes: tuple[Shape, ...] = ()  # of the rows of a corpus of kind own that this method is for; left out for others; (): for all
    bank_dtype: Literal["float16", "float32"] = "float16"  # in which a bank is kept
    training: dict[str, Override] = Field(default_factory=dict)  # what differs from the recipe's own training section
    regularizers: Regularizers = Regularizers()  # dropouts while it trains
    stopping: Stopping | None = None  # by the training loss; None: all epochs
    seed: int | None = None  # one training, with what it starts from, for all of the recipe's seeds: a pre-training, a first stage
    select: bool = True  # keep the best checkpoint by the recipe's selection task; False keeps the last weights
    reported: bool = True  # False: only an input of other methods

    @property
    def inputs(self) -> dict[str, str]:
        """The methods whose encoders it needs, by the field that names them."""
        named = {"start": self.start, "bank": self.bank, "of": self.of}
        return {field: name for field, name in named.items() if name is not None}


# The sections of a recipe of which a method can change fields, in a mapping of that name.
CHANGED_BY_METHODS: dict[str, type[Frozen]] = {"encoder": EncoderSection, "training": Training}
