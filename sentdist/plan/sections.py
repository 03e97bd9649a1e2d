"""The sections of a recipe: encoder, selection, evaluation, targets, folds, and a method."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sentdist.families import PoolingName
from sentdist.frozen import MOST_LETTERS, NAME, ONE_LINE, Count, Frozen
from sentdist.machine import SHARES, is_share
from sentdist.plan.corpora.relations import LinksSection
from sentdist.plan.objectives import AnyObjective
from sentdist.plan.specs import Precision, Probes, Regularizers, Shape, Stopping, Training, View
from sentdist.plan.tasks import TASK_GROUPS

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


class Runtime(Frozen):
    """How a plan is run: workers, memory, devices. Nothing here changes what is computed; the parity tests check that."""

    engine: Literal["deepspeed", "torch"] = "deepspeed"  # which keeps and moves the weights; both give the same numbers
    workers: Count | tuple[Count, Count] = 1  # of a training; [fewest, most]: as many as the cluster has, whatever joins or leaves
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0  # reserved; a worker computes with as many threads
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU for each worker where there are enough, unless gpus_per_worker says
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0.0  # reserved; below 1: a part of one, and of its memory
    gpu_type: str | None = None  # on a cluster: only GPUs that Ray calls so (A100, H100, L4, T4, …); None: any
    micro_batch: Annotated[int, Field(ge=1)] | None = None  # sentences a worker holds the activations of while training; None: all
    recompute_layers: bool = False  # keep what goes into each transformer layer, and compute the rest again in the backward pass
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0  # how much of the optimizer, gradients and weights is spread over workers; 0: none
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None  # None: what the cluster can run at once
    max_failures: Annotated[int, Field(ge=0)] = 1  # losses of process or host that a stage may take without getting on; after notice: 5
    checkpoint_every_s: Annotated[float, Field(gt=0)] = 120.0  # seconds between two checkpoints of a training
    log_every: Annotated[int, Field(ge=1)] = 5  # optimizer steps between two points of a learning curve
    tokens_per_batch: Annotated[int, Field(ge=512)] | None = None  # when encoding; None: what suits a CPU (4,096) or a GPU (32,768)
    rows_per_shard: Annotated[int, Field(ge=1)] = 65536  # of a bank
    bank_in_object_store: bool = True  # under Ray: share banks through the object store instead of memory-mapped files

    @property
    def fewest_workers(self) -> int:
        """Workers with which a training begins or goes on; their shares of a batch are the largest."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def most_workers(self) -> int:
        """Workers that a training takes where there is room for them."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]

    @property
    def gpus_asked(self) -> float | None:
        """GPUs for each worker; None: as many as there are, up to one."""
        if self.device == "cpu" or "gpus_per_worker" in self.model_fields_set:
            return self.gpus_per_worker
        return None if self.device == "auto" else 1.0

    @property
    def workers_may_change(self) -> bool:
        """Whether a training follows what the cluster has."""
        return self.fewest_workers < self.most_workers

    def with_workers(self, workers: int) -> Self:
        """The same with the number of workers as it was."""
        return self.model_copy(update={"workers": workers})

    def with_gpus(self, gpus_per_worker: float) -> Self:
        """The same with the device decided."""
        return self.model_copy(update={"gpus_per_worker": gpus_per_worker})

    @model_validator(mode="after")
    def _workers_may_change(self) -> Self:
        if self.fewest_workers > self.most_workers:
            raise ValueError(f"workers: found [{self.fewest_workers}, {self.most_workers}]; expected [fewest, most]")
        if self.workers_may_change and self.zero_stage:
            found = f"found [{self.fewest_workers}, {self.most_workers}] with zero_stage {self.zero_stage}"
            raise ValueError(
                f"workers: {found}; expected zero_stage 0, for what ZeRO 1 to 3 share out "
                "is of one number of workers. Set runtime.zero_stage=0, or one number"
            )
        return self

    @model_validator(mode="after")
    def _engine_shares_out(self) -> Self:
        if self.engine == "torch" and self.zero_stage:
            raise ValueError(
                f"zero_stage: found {self.zero_stage} with engine torch, where each worker keeps all; "
                "set runtime.engine=deepspeed, or leave zero_stage out"
            )
        return self

    @model_validator(mode="after")
    def _gpus_can_be_shared_out(self) -> Self:
        if not is_share(self.gpus_per_worker):
            raise ValueError(f"gpus_per_worker: found {self.gpus_per_worker:g}; expected {SHARES}; set runtime.gpus_per_worker=1")
        return self

    @model_validator(mode="after")
    def _device_and_gpus_agree(self) -> Self:
        is_named = "gpus_per_worker" in self.model_fields_set
        if is_named and (self.device, self.gpus_per_worker > 0) in (("cpu", True), ("cuda", False)):
            raise ValueError(f"device: found {self.device} with gpus_per_worker {self.gpus_per_worker:g}; leave one of them out")
        if self.gpu_type is not None and self.gpus_asked == 0:
            raise ValueError(f"gpu_type: found {self.gpu_type} where no GPU is asked for; leave it out, or leave the choice of the device")
        return self
