"""The sections of a recipe: encoder, selection, evaluation, targets, folds, method and runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sentdist.corpora.relations import LinksSection
from sentdist.families import PoolingName
from sentdist.frozen import MOST_LETTERS, NAME, ONE_LINE, Count, Frozen
from sentdist.machine import SHARES, is_share
from sentdist.recipe.objectives import AnyObjective, names_where, terms_of, uses_bank
from sentdist.recipe.specs import Precision, Probes, Regularizers, Shape, Stopping, Training, View
from sentdist.tasks.cards import TASK_GROUPS

Name = Annotated[str, Field(pattern=NAME, max_length=MOST_LETTERS)]
Title = Annotated[str, Field(pattern=ONE_LINE)]  # one line, no control characters: tables and figures show it
Override = None | bool | int | float | str


def _each_once(values: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(values)) != len(values):
        raise ValueError(f"found {list(values)}; expected each value once")
    return values


EachOnce = AfterValidator(_each_once)


class EncoderSection(Frozen):
    """The pretrained checkpoint that training starts from."""

    checkpoint: str = "minilm-l6"  # a packaged name (`sentdist list encoders`), a folder, or a hub id
    revision: str | None = None  # of a hub checkpoint; packaged ones and folders are pinned by their content
    pooling: PoolingName = "mean"  # how token states become one embedding
    initialization: Literal["pretrained", "random"] = "pretrained"  # random: only architecture and tokenizer are used
    layers: Annotated[int, Field(ge=1)] | None = None  # keep only the first layers of the transformer; None: all


class SelectionSection(Frozen):
    """Which dev task chooses the checkpoint, and how often it is scored."""

    task: str  # `stsb-dev`, or several joined by +, whose mean counts; a group beside other tasks counts as one task
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of an epoch, between two dev scores
    limit: Annotated[int, Field(ge=10)] | None = None  # pairs or queries used of each task, the same ones each time
    view: View = View()  # how embeddings are read for the dev score

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks, one by one."""
        return tuple(task for name in self.task.split("+") for task in TASK_GROUPS.get(name, (name,)))


class EvaluationSection(Frozen):
    """Which tasks score an encoder."""

    tasks: Annotated[tuple[str, ...], Field(min_length=1)]  # names or groups (`sentdist list tasks`), or KIND=SOURCE of your own
    links: LinksSection | None = None  # also rank the tails of triples that a relational corpus has held out
    max_length: Annotated[int, Field(ge=3)] | None = None  # tokens; None: the encoder's maximum, which dev tasks always use
    precision: Precision = "fp32"  # of matrix products when encoding; dev tasks use the precision of training
    probes: Probes | None = None  # of every method's encoder, on the sentences of its corpus


class TargetsSection(Frozen):
    """Tags and words of the sentences of a corpus: for auxiliary tasks and probes."""

    tagger: str = "nltk"  # NLTK's, or "module:function" that returns a list of (word, tag) for each sentence
    num_words: Annotated[int, Field(ge=1)] = 20_000  # size of the vocabulary


class FoldsSection(Frozen):
    """Cross-validation over the queries of a retrieval corpus."""

    num: Annotated[int, Field(ge=3, le=1000)] = 5
    seed: int = 0
    by: Literal["query", "answer"] = "query"  # answer: queries that share a relevant answer stay in one fold


class Method(Frozen):
    """One row of the result table; without an objective an untouched checkpoint, or another method's encoder in another view."""

    title: Title | None = None  # its row in tables; None: its name
    objective: AnyObjective | None = None  # what is minimized; None: nothing is trained
    lexical: Literal["word_overlap", "bm25"] | None = None  # a baseline from words alone, without an encoder
    encoder: dict[str, Override] = Field(default_factory=dict)  # changes to the recipe's encoder section
    of: str | None = None  # the method whose encoder is scored again, in this row's view
    view: View = View()  # how embeddings are used for scores
    corpus: str | None = None  # a name under corpora; None: the recipe's corpus
    start: str | None = None  # the method whose encoder training continues from
    bank: str | None = None  # the method that trains the entropy encoders of an objective with regulators
    phis: Annotated[tuple[float, ...], Field(min_length=1), EachOnce] | None = None  # one entropy encoder each
    shapes: tuple[Shape, ...] = ()  # row shapes of a corpus of kind own that this method is for; dropped for others; (): for all
    bank_dtype: Literal["float16", "float32"] = "float16"  # data type of stored banks
    training: dict[str, Override] = Field(default_factory=dict)  # changes to the recipe's training section
    regularizers: Regularizers = Regularizers()  # dropouts during training
    stopping: Stopping | None = None  # by the training loss; None: all epochs
    seed: int | None = None  # train once with this seed (its start too), for all seeds of the recipe: a pre-training, a first stage
    select: bool = True  # keep the best checkpoint by the recipe's selection task; False keeps the last weights
    reported: bool = True  # False: only an input of other methods

    @property
    def inputs(self) -> dict[str, str]:
        """The methods whose encoders this one needs, by the field that names them."""
        named = {"start": self.start, "bank": self.bank, "of": self.of}
        return {field: name for field, name in named.items() if name is not None}

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.of is not None and (self.objective is not None or self.start is not None or self.encoder):
            raise ValueError("of: scores the encoder of another method; expected neither objective, start nor encoder beside it")
        if self.lexical is not None and (self.objective is not None or self.of is not None or self.encoder):
            raise ValueError("lexical: is a row without an encoder; expected neither objective, of nor encoder beside it")
        if self.objective is None:
            self._check_defaults(OF_A_TRAINING, "has no effect on the untouched checkpoint; leave it out or give an objective")
        elif uses_bank(self.objective) and self.bank is None:
            raise ValueError("bank: found nothing; expected the name of the method that trains the entropy encoders")
        elif not uses_bank(self.objective):
            self._check_defaults(OF_A_BANK, f"has no effect without the objective {names_where(bank=True)}; leave it out")
        terms = [] if self.objective is None else list(terms_of(self.objective))
        if terms and not any(term.needs.alone for term in terms):
            raise ValueError(f"objective: found {terms[0].name} alone; expected it with another objective, as a term of a sum")
        return self

    def _check_defaults(self, fields: tuple[str, ...], message: str) -> None:
        for field in fields:
            if getattr(self, field) != type(self).model_fields[field].get_default(call_default_factory=True):
                raise ValueError(f"{field}: {message}")


def inputs_of(name: str, methods: Mapping[str, Method]) -> set[str]:
    """Return a method and all methods whose encoders it needs, directly or not."""
    found, further = set(), {name}
    while further:
        found |= further
        further = {other for one in further for other in methods[one].inputs.values()} - found
    return found


OF_A_BANK = ("bank", "phis", "bank_dtype")
OF_A_TRAINING = (*OF_A_BANK, "training", "corpus", "stopping", "seed", "start", "regularizers", "select")

# The sections of a recipe whose fields a method can change, in a mapping with the name of the section.
CHANGED_BY_METHODS: dict[str, type[Frozen]] = {"encoder": EncoderSection, "training": Training}


class Runtime(Frozen):
    """How a plan runs: workers, memory, devices. Nothing here changes results; the parity tests check that."""

    engine: Literal["deepspeed", "torch"] = "deepspeed"  # holds and updates the weights; both give the same numbers
    workers: Count | tuple[Count, Count] = 1  # per training; [min, max]: elastic, as many as the cluster has
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0  # reserved; also the number of threads of a worker
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU per worker if there are enough, unless gpus_per_worker is set
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0.0  # reserved; below 1: a fraction of a GPU and of its memory
    gpu_type: str | None = None  # on a cluster: only GPUs of this type as Ray names it (A100, H100, L4, T4, …); None: any
    micro_batch: Annotated[int, Field(ge=1)] | None = None  # sentences per worker whose activations are in memory; None: all
    recompute_layers: bool = False  # keep only the input of each transformer layer and recompute the rest in the backward pass
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0  # ZeRO sharding of optimizer, gradients and weights over workers; 0: none
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None  # None: as many as the cluster can run at once
    max_failures: Annotated[int, Field(ge=0)] = 20  # how often a stage is built again after its process or host was lost
    checkpoint_every_s: Annotated[float, Field(gt=0)] = 120.0  # seconds between two checkpoints of a training
    log_every: Annotated[int, Field(ge=1)] = 5  # optimizer steps between two points of a learning curve
    tokens_per_batch: Annotated[int, Field(ge=512)] | None = None  # when encoding; None: 4,096 on a CPU, 32,768 on a GPU
    rows_per_shard: Annotated[int, Field(ge=1)] = 65536  # of a bank
    bank_in_object_store: bool = True  # under Ray: share banks through the object store instead of memory-mapped files

    @property
    def fewest_workers(self) -> int:
        """Minimum number of workers, with which a training can start or continue; they hold the largest shares of a batch."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def most_workers(self) -> int:
        """Maximum number of workers of a training."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]

    @property
    def gpus_asked(self) -> float | None:
        """GPUs per worker; None: as many as available, up to one."""
        if self.device == "cpu" or "gpus_per_worker" in self.model_fields_set:
            return self.gpus_per_worker
        return None if self.device == "auto" else 1.0

    @property
    def workers_may_change(self) -> bool:
        """Whether the number of workers is elastic."""
        return self.fewest_workers < self.most_workers

    def with_workers(self, workers: int) -> Self:
        """Return a copy with a fixed number of workers."""
        return self.model_copy(update={"workers": workers})

    def with_gpus(self, gpus_per_worker: float) -> Self:
        """Return a copy with the number of GPUs per worker set."""
        return self.model_copy(update={"gpus_per_worker": gpus_per_worker})

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.fewest_workers > self.most_workers:
            raise ValueError(f"workers: found [{self.fewest_workers}, {self.most_workers}]; expected [min, max]")
        if self.zero_stage and (self.workers_may_change or self.engine == "torch"):
            raise ValueError(f"zero_stage: found {self.zero_stage}; expected 0 with engine torch or an elastic number of workers")
        if not is_share(self.gpus_per_worker):
            raise ValueError(f"gpus_per_worker: found {self.gpus_per_worker:g}; expected {SHARES}; set runtime.gpus_per_worker=1")
        if self.most_workers > 1 and self.gpus_per_worker % 1:
            raise ValueError(
                f"gpus_per_worker: found {self.gpus_per_worker:g} with {self.most_workers} workers per training; "
                "expected a whole number, because NCCL does not let two workers of a training share a GPU"
            )
        is_named = "gpus_per_worker" in self.model_fields_set
        if is_named and (self.device, self.gpus_per_worker > 0) in (("cpu", True), ("cuda", False)):
            raise ValueError(f"device: found {self.device} with gpus_per_worker {self.gpus_per_worker:g}; leave one of them out")
        if self.gpu_type is not None and self.gpus_asked == 0:
            raise ValueError(f"gpu_type: found {self.gpu_type}, but no GPU is requested; leave it out, or leave out device")
        return self
