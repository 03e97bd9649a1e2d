"""How long a plan takes on GPUs that nobody here has tried: parameters × tokens over an assumed speed; and how far that was off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sentdist.errors import RecipeError, counted, did_you_mean, duration
from sentdist.machine import GPUS
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.specs import EncoderSpec, LexicalSpec
from sentdist.plan.stage import Stage, as_number, longest_path
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.plan.unroll import Plan
from sentdist.stages.planning.worker_memory import encoder_size, sentences_at_a_time, sentences_of_a_worker
from sentdist.store.record import Record

TERA = 1e12
PEAKS = {name: kind.peak for name, kind in GPUS.items() if kind.peak is not None}
# Share of the peak that training on sentences of some twenty tokens keeps up: an assumption, not a measurement. Long sentences and large
# encoders reach more, small encoders and float32 less.
UTILISATION = 0.12
TOKENS = 20  # of a sentence of NLI and STS, special ones included
FAQ_TOKENS = 60  # of a question or an answer of an FAQ: answers have 33 to 114 words in FAQIR, StackFAQ and COUGH
FORWARD, BACKWARD = 2, 4  # operations a parameter and token
STOPPED_SHARE = 0.1  # of an epoch, after which early stopping by the training loss is taken to have come

# Millions of parameters, as published, of checkpoints whose config.json is fetched only later.
PUBLISHED = {
    "bert-base": 110,
    "bert-large": 335,
    "roberta-base": 125,
    "roberta-large": 355,
    "jina-embeddings-v2-base": 137,
    "nomic-embed-text-v1": 137,
}

Parameters = Callable[[EncoderSpec], float]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Some GPUs of one kind. peak: TFLOP/s of one."""

    name: str
    count: int
    peak: float

    @property
    def speed(self) -> float:
        """Operations a second that one of them is assumed to keep up."""
        return UTILISATION * self.peak * TERA

    def hours(self, operations: float) -> float:
        """Hours that one of them takes for so many operations."""
        return operations / self.speed / 3600

    @classmethod
    def named(cls, given: str) -> Devices:
        """`8xH100`, or `H100` for one. Raises RecipeError for a GPU that the table lacks."""
        count, name = re.fullmatch(r"(?:(\d+)x)?(.*)", given.strip(), re.IGNORECASE).groups()  # type: ignore[union-attr]
        known = next((known for known in PEAKS if known.lower() == name.replace(" ", "").lower()), None)
        if known is None or count == "0":
            raise RecipeError(
                where="--on", found=given, expected=f"COUNTxGPU, such as 8xH100, GPU one of {', '.join(PEAKS)}",
                remedy="Name one GPU or more." if known else did_you_mean(name.upper(), PEAKS, "Name one that is alike."),
            )  # fmt: skip
        return cls(name=known, count=int(count or 1), peak=PEAKS[known])


@dataclass(frozen=True, kw_only=True)
class DeviceForecast:
    """What the stages that are left come to. operations: floating-point, of all; longest: of those that must follow each other."""

    devices: Devices
    operations: float
    longest: float

    @property
    def gpu_hours(self) -> float:
        return self.devices.hours(self.operations)

    @property
    def seconds(self) -> float:
        """Seconds on all GPUs together, if all are always at work; not less than one GPU takes for the longest path of stages."""
        return max(self.operations / self.devices.count, self.longest) / self.devices.speed

    @property
    def line(self) -> str:
        """The forecast as a sentence, with what was assumed."""
        one = self.devices
        work = f"{self.gpu_hours:.1f} GPU hours" if self.gpu_hours >= 0.1 else f"{duration(3600 * self.gpu_hours)} of one GPU"
        return (
            f"On {one.count} {one.name}: about {work}, {duration(self.seconds)} if all are at work, one training on one GPU. Assumed, not "
            f"measured: {FORWARD + BACKWARD} FLOP a parameter and token ({FORWARD + BACKWARD + FORWARD} in micro-batches), "
            f"{one.speed / TERA:.0f} TFLOP/s a GPU ({UTILISATION:.0%} of {one.peak:g}), {TOKENS} tokens a sentence ({FAQ_TOKENS} of FAQs "
            "that are trained on; of your own file what its texts come to); without starts, dev scores and downloads."
        )


def device_forecast(plan: Plan, devices: Devices, parameters: Parameters, *, missing: Iterable[str] | None = None) -> DeviceForecast:
    """Forecast the stages with these keys; None: all. Corpora, which take no GPU, count nothing."""
    left = {stage.key for stage in plan.stages} if missing is None else set(missing)
    operations = {stage.key: operations_of(stage, plan, parameters) if stage.key in left else 0.0 for stage in plan.stages}
    longest = longest_path(plan.stages, lambda stage: operations[stage.key])
    return DeviceForecast(devices=devices, operations=sum(operations.values()), longest=longest)


def operations_of(stage: Stage, plan: Plan, parameters: Parameters) -> float:
    """Floating-point operations of a stage: forward and backward of each token in training, the forward pass once more where micro-batches
    compute it again; forward alone in banks and scores, and through an encoder that is frozen. Raises TypeError for what no plan has."""
    match stage:
        case Train():
            runtime = plan.recipe.runtime
            in_parts = sentences_at_a_time(stage, runtime) < sentences_of_a_worker(stage, runtime)
            each = FORWARD + BACKWARD + (FORWARD if in_parts else 0)
            each = FORWARD if stage.training.freeze_encoder else each
            share = 1.0 if stage.stopping is None else STOPPED_SHARE / stage.training.epochs
            tokens = _tokens(stage.training.max_length, stage.corpus, plan)
            return each * share * parameters(stage.encoder) * stage.num_sentences(plan.rows) * tokens
        case Bank():
            tokens = _tokens(stage.max_length, stage.corpus, plan)
            return FORWARD * parameters(stage.encoder.encoder) * stage.num_sentences(plan.rows) * tokens
        case Scores(encoder=LexicalSpec()) | CorpusStage() | Targets():  # no encoder
            return 0.0
        case Scores(encoder=(Train() | EncoderSpec()) as encoder):
            spec = encoder.encoder if isinstance(encoder, Train) else encoder
            return FORWARD * parameters(spec) * stage.num_sentences(plan.rows) * _tokens(stage.max_length, None, plan)
    raise TypeError(f"nobody said how much the stage {stage.kind} computes")


def parameters_by(configuration: Callable[[EncoderSpec], Mapping[str, object]]) -> Parameters:
    """Parameters from an encoder's config.json; by its name, as published, where that is not here yet; else those of BERT-base."""

    def found(encoder: EncoderSpec) -> float:
        values = configuration(encoder)
        published = next((millions for name, millions in PUBLISHED.items() if name in encoder.checkpoint.lower()), None)
        if values or published is None or encoder.layers is not None:
            return encoder_size(values, layers=encoder.layers).num_parameters
        return published * 1e6

    return found


@dataclass(frozen=True, kw_only=True)
class ForecastCheck:
    """Finished stages: seconds that were forecast for one GPU, and seconds × workers that they took."""

    stages: int
    forecast_s: float
    taken_s: float
    on_gpu: bool

    def line(self, devices: Devices) -> str:
        """The check as a sentence; "" before anything is finished."""
        if not self.stages or not self.forecast_s:
            return ""
        where = "" if self.on_gpu else " (without a GPU: this says how much slower these machines are, not how far the forecast was off)"
        ratio = self.taken_s / self.forecast_s
        times = f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"
        return (
            f"Of what is finished, {counted(self.stages, 'training')}: forecast {duration(self.forecast_s)} on one {devices.name}, took "
            f"{duration(self.taken_s)} of workers, {times} times as long{where}."
        )


def forecast_check(plan: Plan, devices: Devices, parameters: Parameters, records: Mapping[str, Record]) -> ForecastCheck:
    """Hold the forecast against the records of finished trainings, by key: as many sentences as were really trained on."""
    done = [stage for stage in plan.stages if isinstance(stage, Train) and stage.key in records]
    forecast_s = taken_s = 0.0
    for stage in done:
        record = records[stage.key]
        planned = record.number("num_steps_planned") or 1.0
        share = (record.number("num_steps") or planned) / planned
        by_stopping = 1.0 if stage.stopping is None else STOPPED_SHARE / stage.training.epochs
        forecast_s += operations_of(stage, plan, parameters) / by_stopping * share / devices.speed
        taken_s += record.seconds * (as_number(record.runtime.get("workers")) or 1.0)
    on_gpu = bool(done) and all(as_number(records[stage.key].runtime.get("gpus_per_worker")) for stage in done)
    return ForecastCheck(stages=len(done), forecast_s=forecast_s, taken_s=taken_s, on_gpu=on_gpu)


def _tokens(longest: int | None, corpus: CorpusStage | None, plan: Plan) -> float:
    """Tokens of a sentence, where planning has not read the corpus by experience; those of an FAQ are longer. longest: where sentences are
    cut."""
    tokens = float(FAQ_TOKENS if corpus is not None and corpus.training_fold is not None else TOKENS)
    if corpus is not None:
        tokens = plan.tokens.get(corpus.key, tokens)
    return tokens if longest is None else min(tokens, longest)
