"""The values that stages are made of: encoder, training, selection, task, view."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from sentdist.families import PoolingName
from sentdist.frozen import Frozen
from sentdist.objectives.objective_spec import Weight


class RelationWeight(Frozen):
    """How much a relation counts in a relational score."""

    relation: str
    weight: Weight


class WeightGrid(Frozen):
    """Weights that one relation takes in turn while the others keep theirs: the score over them is a curve in the report."""

    relation: str
    weights: Annotated[tuple[Weight, ...], Field(min_length=2)]


Directions = Literal["one", "max_both"]


class RelationalScoring(Frozen):
    """Pairs scored by sum over relations of w · cos(h_i + r, h_j) instead of cos(h_i, h_j) (RSE, arXiv 2212.08802).

    Of retrieval the query is the head: one direction, whatever `directions` says of pairs.
    """

    later_fields: ClassVar[tuple[str, ...]] = ("combine",)

    weights: Annotated[tuple[RelationWeight, ...], Field(min_length=1)]  # in a recipe also a mapping: relation to weight
    normalized: bool = True  # weights divided by their sum, as the released code does
    directions: Directions = "max_both"  # the paper scores one direction, its code takes the greater of both
    curve: WeightGrid | None = None
    # best: each relation that is weighted by itself, the best of them counts for each task, as RSE reports USEB; what is best is seen on
    # the very data that are scored.
    combine: Literal["sum", "best"] = "sum"

    @field_validator("weights", mode="before", json_schema_input_type=tuple[RelationWeight, ...] | dict[str, Weight])
    @classmethod
    def _one_spelling(cls, value: object) -> object:
        """A mapping as pairs, in the order of names: equal weights have equal keys."""
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
        if self.combine == "best" and any(weight.weight != 1.0 for weight in self.weights):
            raise ValueError("weights: found weights other than 1 beside combine best, which takes each relation alone; expected 1 of each")
        if self.combine == "best" and (self.curve is not None or len(names) < 2):
            raise ValueError("combine: best has no effect on one relation, and no curve; expected two relations or more, and no curve")
        return self

    @property
    def by_name(self) -> dict[str, float]:
        return {weight.relation: weight.weight for weight in self.weights}

    @property
    def alone(self) -> Iterator[RelationalScoring]:
        """Each relation by itself."""
        for weight in self.weights:
            yield RelationalScoring(weights=(weight,), normalized=self.normalized, directions=self.directions)

    @property
    def relations(self) -> Iterator[str]:
        """All relations that are named."""
        yield from self.by_name
        if self.curve is not None:
            yield self.curve.relation


Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
Part = Literal["tags", "words"]
Shape = Literal["pairs", "triplets", "graded", "faq"]  # of the rows of a person's own file


class EncoderSpec(Frozen):
    """A pretrained checkpoint and how its token vectors become one embedding."""

    later_fields: ClassVar[tuple[str, ...]] = ("layers",)

    checkpoint: str  # a packaged name (minilm-l6), a hub id, or the name of a folder whose content `revision` pins
    revision: str
    pooling: PoolingName = "mean"
    initialization: Literal["pretrained", "random"] = "pretrained"  # random: only the architecture and the tokenizer are taken
    layers: Annotated[int, Field(ge=1)] | None = None  # the first so many transformer layers; None: all


@dataclass(frozen=True, kw_only=True)
class EncoderUse:
    """Which finished encoder is used, and how, as a person says it: not yet pinned, so no part of a stage.

    checkpoint: a folder, a packaged name or a hub id. pooling, max_length: None takes what the checkpoint declares.
    prompt: the text that stands before each sentence.
    """

    checkpoint: str
    revision: str | None = None
    pooling: str | None = None
    max_length: int | None = None
    precision: str = "fp32"
    normalize: bool = False
    prompt: str = ""


TextRole = Literal["sentence", "query", "document"]  # of a text in a task, by which it has its prompt


class TaskPrompts(Frozen):
    """What stands before the texts of tasks, "" for nothing: queries and documents, and the sentences of tasks that have none of these."""

    sentence: str = ""
    query: str = ""
    document: str = ""


@dataclass(frozen=True, kw_only=True)
class AskedPrompts:
    """`TaskPrompts` as a person asks for them: the name of a prompt of the encoder, or a text; None: what the encoder takes by itself.
    options: by what they are asked for."""

    sentence: str | None = None
    query: str | None = None
    document: str | None = None
    options: tuple[str, str, str] = ("--prompt", "--query-prompt", "--document-prompt")

    @property
    def by_role(self) -> dict[TextRole, tuple[str | None, str]]:
        """What is asked for, and by which option."""
        sentence, query, document = self.options
        return {"sentence": (self.sentence, sentence), "query": (self.query, query), "document": (self.document, document)}


class LexicalSpec(Frozen):
    """A floor without an encoder: shared words, or BM25 (retrieval only)."""

    name: Literal["word_overlap", "bm25"]


class Training(Frozen):
    """How an encoder is optimized. Every field changes the result; how the work is spread does not stand here."""

    later_fields: ClassVar[tuple[str, ...]] = ("freeze_encoder",)

    batch_size: Annotated[int, Field(ge=2)] = 64  # rows of the global batch, over all workers
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 1  # times that each row is read
    learning_rate: Annotated[float, Field(gt=0.0, le=1e38)] = 2e-5  # at its highest, after the warm-up; float32 holds no more
    schedule: Literal["linear", "constant"] = "linear"  # of the learning rate after the warm-up: down to 0, or as it is
    warmup_fraction: Fraction = 0.1  # of the schedule
    schedule_stretch: Annotated[float, Field(ge=1.0)] = 1.0  # length of the schedule in steps trained; above 1 it does not come to its end
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01  # of AdamW, not for biases and norms
    clip_norm: Annotated[float, Field(gt=0.0)] = 1.0  # of the whole gradient
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # of the learning rate, from each transformer layer to the one below
    max_length: Annotated[int, Field(ge=3)] = 75  # tokens, special ones included
    precision: Precision = "fp32"  # of the products; weights, sums and the optimizer stay in float32
    unique_sentences: bool = True  # no sentence twice in a batch: it would be its own negative
    # Train the objective's own parameters alone: the encoder, its pooling layer included, stays as it starts. Its dropouts act nevertheless
    # (`regularizers` turns them off), as in the STS regression paper's code, which leaves the frozen encoder in training mode.
    freeze_encoder: bool = False

    def steps_per_epoch(self, num_rows: int) -> int:
        """Full batches in so many rows."""
        return num_rows // self.batch_size


class Regularizers(Frozen):
    """Dropouts during training; None keeps what the checkpoint was made with."""

    attention_dropout: Fraction | None = None
    hidden_dropout: Fraction | None = None
    drophead: Fraction = 0.0

    @property
    def works(self) -> tuple[str, ...]:
        """Keys of the works that those in use are of."""
        return (*(("dropattention",) if self.attention_dropout else ()), *(("drophead",) if self.drophead else ()))


class Stopping(Frozen):
    """Early stopping on the training loss, in the two readings of RCL's "has not decreased for 3 steps"."""

    reading: Literal["step", "interval"] = "interval"  # of single optimizer steps, or of the mean over an interval
    patience: Annotated[int, Field(ge=1)] = 3
    interval_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of an epoch

    @model_validator(mode="after")
    def _interval_is_used(self) -> Stopping:
        if self.reading == "step" and self.interval_fraction != 0.1:
            raise ValueError("interval_fraction has no effect when reading is 'step'; leave it out")
        return self


class Fold(Frozen):
    """One round of a cross-validation over queries: the test fold is `number`, the dev fold the next one, the rest trains.

    by: "answer" keeps queries that share a relevant answer in one fold; by "query" one's answer may be another's training positive.
    """

    later_fields: ClassVar[tuple[str, ...]] = ("by",)

    number: Annotated[int, Field(ge=0)]
    num_folds: Annotated[int, Field(ge=3)] = 5
    seed: int = 0
    by: Literal["query", "answer"] = "query"


class OwnRows(Frozen):
    """What decides which rows are read out of a person's own file, and which of them are held out: how it is written, what its columns are.

    low, high: the scale of its scores. dev, test: shares of the rows, `most` rows each at most, drawn by group with `seed`.
    near: similarity from which texts are near-duplicates, which stay on one side; None: they are not looked for.
    num_linking: texts of a row, from its first, by which rows are linked. sides: digest of the rows' sides.
    """

    encoding: str | None = None
    separator: str | None = None
    has_header: bool | None = None
    shape: Shape
    columns: tuple[str, ...]
    group: str | None = None
    split: str | None = None
    low: float | None = None
    high: float | None = None
    dev: float
    test: float
    seed: int
    most: int
    near: float | None
    num_linking: int
    sides: str


class Task(Frozen):
    """Pairs with graded likeness, or questions with documents, pinned: a test set, or what chooses checkpoints."""

    later_fields: ClassVar[tuple[str, ...]] = ("own", "limit")

    name: str
    kind: Literal["sts", "retrieval"]
    source: str
    revision: str
    split: str | None = None
    aggregation: Literal["all", "mean", "wmean"] = "all"
    document_field: Literal["answer", "question", "question_answer"] = "answer"
    fold: Fold | None = None
    fold_role: Literal["dev", "test"] | None = None
    own: OwnRows | None = None  # the source is a person's own file, `split` the side of its rows
    limit: Annotated[int, Field(ge=10)] | None = None  # of its pairs or queries, drawn once for good; None: all


class View(Frozen):
    """How an encoder's embeddings are read when they are scored."""

    # First and behind-last channel, or the part that the objective auxiliary gives to tags or to words; None: all. A plan writes numbers
    # for a part as soon as it knows the encoder's width, so that both have one key.
    channels: tuple[int, int] | Part | None = None
    postprocess: Literal["none", "center", "whiten"] = "none"  # statistics of the sentences that are scored
    relations: RelationalScoring | None = None

    @model_validator(mode="after")
    def _relations_fit_embeddings(self) -> View:
        if self.relations is not None and (self.channels is not None or self.postprocess != "none"):
            raise ValueError(
                "relations: found beside channels or postprocess; expected whole embeddings, for relations are trained with them"
            )
        return self


class Probes(Frozen):
    """What linear models can read of tags and words out of each part of an embedding, on sentences held out."""

    channels: tuple[int, int] | None = None  # of tags, of words; None: 128 : 640 of the width
    num_sentences: Annotated[int, Field(ge=16)] = 4000  # of the corpus, drawn with the seed; a quarter is held out
    num_words: Annotated[int, Field(ge=1)] = 500  # the most frequent of the vocabulary
    seed: int = 0


Share = Annotated[float, Field(gt=0.0, lt=0.5)]


def _as_name(value: object) -> object:
    """1 is "1": columns of a file without a header are called by their numbers, and YAML reads these as numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _known_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise PydanticCustomError(  # its message is what was expected
            "unknown_encoding", "an encoding that Python knows, such as utf-8, utf-16, cp1252 or shift-jis"
        ) from None
    return name


ColumnName = Annotated[str, BeforeValidator(_as_name, json_schema_input_type=str | int)]


class HeldOutSection(Frozen):
    """Which rows are held out, where the file has no column `split`: whole groups of rows that share texts.

    auto: of fewer than 2,000 rows 15 % for dev and 30 % for test, of more 10 % each. dev 0: none.
    """

    dev: Literal["auto"] | Annotated[float, Field(ge=0.0, lt=0.5)] = "auto"
    test: Literal["auto"] | Share = "auto"
    seed: int = 0
    most: Annotated[int, Field(ge=5)] = 1000  # rows of the file for dev, and for test
    near: Literal["auto"] | Annotated[float, Field(gt=0.0, le=1.0)] | None = "auto"  # auto: 0.8 among at most 50,000 texts, else null


class OwnFileSection(Frozen):
    """A path, or a name below the data root, or a data set of the hub. What is null is recognised."""

    file: Annotated[str, Field(min_length=1)]
    revision: str | None = None  # of a hub data set
    shape: Shape | None = None
    columns: tuple[ColumnName, ...] | None = (
        None  # of the texts: anchor, positive, and any number of negatives; of graded pairs the score as third
    )
    group: ColumnName | None = None  # a column: rows of one value stay on one side
    encoding: Annotated[str, AfterValidator(_known_encoding)] | None = None
    separator: str | None = None
    header: bool | None = None
    held_out: HeldOutSection = HeldOutSection()
