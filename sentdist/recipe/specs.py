"""Values that recipes and stages share: encoders, training settings, folds, tasks, views, probes and user files."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from sentdist.families import PoolingName
from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import Weight


class RelationWeight(Frozen):
    """The weight of a relation in a relational score."""

    relation: str
    weight: Weight


class WeightGrid(Frozen):
    """Weights to try for one relation while the others keep theirs; the report plots the score over them."""

    relation: str
    weights: Annotated[tuple[Weight, ...], Field(min_length=2)]


Directions = Literal["one", "max_both"]


class RelationalScoring(Frozen):
    """Pairs scored by sum over relations of w · cos(h_i + r, h_j) instead of cos(h_i, h_j) (RSE, arXiv 2212.08802).

    In retrieval the query is always the head: one direction, independent of `directions`.
    """

    later_fields: ClassVar[tuple[str, ...]] = ("combine",)

    weights: Annotated[tuple[RelationWeight, ...], Field(min_length=1)]  # in a recipe also a mapping: relation to weight
    normalized: bool = True  # weights divided by their sum, as the released code does
    directions: Directions = "max_both"  # the paper scores one direction, its code takes the maximum of both
    curve: WeightGrid | None = None
    # best: score each weighted relation alone and report the best per task, as RSE does for USEB; the choice is made on the scored data.
    combine: Literal["sum", "best"] = "sum"

    @field_validator("weights", mode="before", json_schema_input_type=tuple[RelationWeight, ...] | dict[str, Weight])
    @classmethod
    def _one_spelling(cls, value: object) -> object:
        """Convert a mapping to pairs sorted by name, so that equal weights have equal keys."""
        if isinstance(value, dict):
            return tuple({"relation": relation, "weight": value[relation]} for relation in sorted(value, key=str))
        return value

    @model_validator(mode="after")
    def _weights_count(self) -> RelationalScoring:
        names = [weight.relation for weight in self.weights]
        if len(set(names)) != len(names):
            raise ValueError(f"weights: found {', '.join(names)}; expected each relation once")
        if not any(weight.weight for weight in self.weights):
            raise ValueError("weights: found no weight above 0; expected at least one, such as entailment: 1.0")
        if self.combine == "best" and ({*self.by_name.values()} != {1.0} or self.curve is not None or len(names) < 2):
            raise ValueError("combine: best scores each relation alone; expected two or more of weight 1, and no curve")
        return self

    @property
    def by_name(self) -> dict[str, float]:
        return {weight.relation: weight.weight for weight in self.weights}

    @property
    def alone(self) -> Iterator[RelationalScoring]:
        """A scoring for each relation by itself."""
        for weight in self.weights:
            yield RelationalScoring(weights=(weight,), normalized=self.normalized, directions=self.directions)

    @property
    def relations(self) -> Iterator[str]:
        """The names of all relations used, that of the curve included."""
        yield from self.by_name
        if self.curve is not None:
            yield self.curve.relation


Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
Part = Literal["tags", "words"]
Shape = Literal["pairs", "triplets", "graded", "faq"]  # of the rows of a user file; faq: of records of 0.4
Role = Literal["anchor", "positive", "negative", "score", "group", "split"]  # of a column of a user file


class EncoderSpec(Frozen):
    """A pretrained checkpoint and how its token vectors become one embedding."""

    later_fields: ClassVar[tuple[str, ...]] = ("layers",)

    checkpoint: str  # a packaged name (minilm-l6), a hub id, or the name of a folder whose content `revision` pins
    revision: str
    pooling: PoolingName = "mean"
    initialization: Literal["pretrained", "random"] = "pretrained"  # random: only architecture and tokenizer are used
    layers: Annotated[int, Field(ge=1)] | None = None  # keep only the first layers of the transformer; None: all


TextRole = Literal["sentence", "query", "document"]  # of a text in a task; each role has a prompt


class TaskPrompts(Frozen):
    """Prefixes of the texts of tasks: queries, documents, and sentences of tasks without these."""

    sentence: str = ""
    query: str = ""
    document: str = ""


@dataclass(frozen=True, kw_only=True)
class AskedPrompts:
    """`TaskPrompts` as requested: the name of a prompt of the encoder, or a text; None: the encoder's default."""

    sentence: str | None = None
    query: str | None = None
    document: str | None = None

    def or_else(self, other: AskedPrompts) -> AskedPrompts:
        """Return these prompts, and the other's where none is requested."""
        return replace(other, **{name: prompt for name, prompt in vars(self).items() if prompt is not None})


@dataclass(frozen=True, kw_only=True)
class EncoderUse:
    """A finished encoder and how to use it, as the user gives it: not pinned, so not part of a stage."""

    checkpoint: str  # a folder, a packaged name or a hub id
    revision: str | None = None
    pooling: str | None = None  # None: as the checkpoint declares
    max_length: int | None = None  # tokens; None: as the checkpoint declares
    precision: str = "fp32"
    normalize: bool = False
    prompts: AskedPrompts = AskedPrompts()  # as requested
    prompt: str = ""  # prefix of each sentence


class LexicalSpec(Frozen):
    """A baseline without an encoder: shared words, or BM25 (retrieval only)."""

    name: Literal["word_overlap", "bm25"]


class Training(Frozen):
    """How an encoder is optimized. Every field changes the result; `runtime` has the settings that do not."""

    later_fields: ClassVar[tuple[str, ...]] = ("freeze_encoder",)

    batch_size: Annotated[int, Field(ge=2)] = 64  # rows of the global batch, over all workers
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 1  # passes over the rows
    learning_rate: Annotated[float, Field(gt=0.0, le=1e38)] = 2e-5  # peak, after the warm-up; at most what float32 holds
    schedule: Literal["linear", "constant"] = "linear"  # of the learning rate after the warm-up: decay to 0, or constant
    warmup_fraction: Fraction = 0.1  # of the schedule
    schedule_stretch: Annotated[float, Field(ge=1.0)] = 1.0  # length of the schedule / training steps; above 1 it does not reach its end
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01  # of AdamW, not for biases and norms
    clip_norm: Annotated[float, Field(gt=0.0)] = 1.0  # maximum norm of the whole gradient
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # factor on the learning rate from each transformer layer to the one below
    max_length: Annotated[int, Field(ge=3)] = 75  # tokens, special ones included
    precision: Precision = "fp32"  # of matrix products; weights, sums and the optimizer stay in float32
    unique_sentences: bool = True  # no sentence twice in a batch: it would be its own negative
    # Train only the parameters of the objective; the encoder and its pooling layer stay fixed. Dropout stays active (`regularizers` turns
    # it off), as in the code of the STS regression paper, which leaves the frozen encoder in training mode.
    freeze_encoder: bool = False

    def steps_per_epoch(self, num_rows: int) -> int:
        """Return the number of full batches in `num_rows` rows."""
        return num_rows // self.batch_size


class Regularizers(Frozen):
    """Dropouts during training; None keeps the rate of the checkpoint."""

    attention_dropout: Fraction | None = None
    hidden_dropout: Fraction | None = None
    drophead: Fraction = 0.0

    @property
    def works(self) -> tuple[str, ...]:
        """Citation keys of the methods in use."""
        return (*(("dropattention",) if self.attention_dropout else ()), *(("drophead",) if self.drophead else ()))


class Stopping(Frozen):
    """Early stopping on the training loss, in the two readings of RCL's "has not decreased for 3 steps"."""

    reading: Literal["step", "interval"] = "interval"  # the loss of single optimizer steps, or its mean over an interval
    patience: Annotated[int, Field(ge=1)] = 3
    interval_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of an epoch

    @model_validator(mode="after")
    def _interval_is_used(self) -> Stopping:
        if self.reading == "step" and self.interval_fraction != 0.1:
            raise ValueError("interval_fraction has no effect when reading is 'step'; leave it out")
        return self


class Fold(Frozen):
    """One round of a cross-validation over queries: the test fold is `number`, the dev fold the next one, the rest trains."""

    later_fields: ClassVar[tuple[str, ...]] = ("by",)

    number: Annotated[int, Field(ge=0)]
    num_folds: Annotated[int, Field(ge=3)] = 5
    seed: int = 0
    # answer: queries that share a relevant answer stay in one fold; query: the answer of a test query may be a training positive.
    by: Literal["query", "answer"] = "query"


class OwnRows(Frozen):
    """How a user file is read and split: its format, its columns, and which of its rows are held out."""

    encoding: str | None = None
    separator: str | None = None  # of records of 0.4
    has_header: bool | None = None  # of records of 0.4
    shape: Shape
    columns: tuple[str, ...]
    group: str | None = None
    split: str | None = None
    low: float | None = None  # lowest value of the scale of its scores
    high: float | None = None  # highest value
    dev: float  # share of the rows, drawn by group with `seed`, at most `most` rows
    test: float  # likewise
    seed: int
    most: int
    near: float | None  # similarity from which texts are near-duplicates, which stay in one split; None: not checked
    num_linking: int  # the first texts of a row, by which rows are linked
    sides: str  # digest of the split of all rows


class View(Frozen):
    """How an encoder's embeddings are used for scores."""

    # [first, end) of the channels, or the part that the objective auxiliary assigns to tags or words; None: all. A plan replaces a part by
    # numbers once it knows the encoder's width, so that both spellings have one key.
    channels: tuple[int, int] | Part | None = None
    postprocess: Literal["none", "center", "whiten"] = "none"  # with statistics of the scored sentences
    relations: RelationalScoring | None = None

    @model_validator(mode="after")
    def _relations_fit_embeddings(self) -> View:
        if self.relations is not None and (self.channels is not None or self.postprocess != "none"):
            raise ValueError("relations: found beside channels or postprocess; expected whole embeddings, with which relations are trained")
        return self


class Probes(Frozen):
    """Linear probes for tags and words from each part of an embedding, scored on held-out sentences."""

    channels: tuple[int, int] | None = None  # number for tags, for words; None: in the ratio 128 : 640
    num_sentences: Annotated[int, Field(ge=16)] = 4000  # of the corpus, drawn with the seed; a quarter is held out
    num_words: Annotated[int, Field(ge=1)] = 500  # the most frequent of the vocabulary
    seed: int = 0


Share = Annotated[float, Field(gt=0.0, lt=0.5)]


def _as_name(value: object) -> object:
    """Convert integers to text: the values of JSON arrays are named by number, and YAML reads these as numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _known_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(f"found '{name}'; expected an encoding that Python knows, such as utf-8, utf-16 or cp1252") from None
    return name


ColumnName = Annotated[str, BeforeValidator(_as_name, json_schema_input_type=str | int)]


class HeldOutSection(Frozen):
    """Which rows are held out if the file has no column `split`: whole groups of rows that share texts."""

    # Share of the rows. auto: of fewer than 2,000 rows 15 %, else 10 %; 0: no dev rows.
    dev: Literal["auto"] | Annotated[float, Field(ge=0.0, lt=0.5)] = "auto"
    test: Literal["auto"] | Share = "auto"  # share of the rows; auto: of fewer than 2,000 rows 30 %, else 10 %
    seed: int = 0
    most: Annotated[int, Field(ge=5)] = 1000  # maximum number of rows for dev, and for test
    near: Literal["auto"] | Annotated[float, Field(gt=0.0, le=1.0)] | None = "auto"  # auto: 0.8 for at most 50,000 texts, else null


class OwnFileSection(Frozen):
    """A user file."""

    file: Annotated[str, Field(min_length=1)]  # a path, a name below the data root, or a data set of the hub
    revision: str | None = None  # of a hub data set
    shape: Shape | None = None  # of its rows; a plan writes it, so that the names of its tasks follow from the recipe
    columns: dict[Role, ColumnName | tuple[ColumnName, ...]] | None = None  # the column of each role; null: by usual names
    encoding: Annotated[str, AfterValidator(_known_encoding)] | None = None  # of text; null: UTF-8
    held_out: HeldOutSection = HeldOutSection()
