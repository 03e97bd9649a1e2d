"""Forecast the GPU time of a plan as parameters × tokens over an assumed speed, and compare it with finished trainings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sentdist.corpora.kind import CorpusStage
from sentdist.errors import RecipeError, counted, did_you_mean, duration
from sentdist.machine import GPUS
from sentdist.recipe.specs import EncoderSpec, LexicalSpec
from sentdist.recipe.stage import Stage, as_number, longest_path
from sentdist.recipe.stages import Bank, Scores, Targets, Train
from sentdist.recipe.unroll import Plan
from sentdist.stages.planning.worker_memory import encoder_size, sentences_at_a_time, sentences_of_a_worker
from sentdist.store.record import Record

TERA = 1e12
PEAKS = {name: kind.peak for name, kind in GPUS.items() if kind.peak is not None}
# Share of the peak that training on sentences of about twenty tokens sustains: an assumption, not a measurement. Long sentences and large
# encoders reach more, small encoders and float32 less.
UTILISATION = 0.12
TOKENS = 20  # of a sentence of NLI and STS, special ones included
FAQ_TOKENS = 60  # of a question or an answer of an FAQ: answers have 33 to 114 words in FAQIR, StackFAQ and COUGH
FORWARD, BACKWARD = 2, 4  # operations per parameter and token
STOPPED_SHARE = 0.1  # of an epoch, the assumed length of a training that stops early by its loss

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
    """Some GPUs of one kind."""

    name: str
    count: int
    peak: float  # TFLOP/s of one

    @property
    def speed(self) -> float:
        """Operations per second that one GPU is assumed to sustain."""
        return UTILISATION * self.peak * TERA

    def hours(self, operations: float) -> float:
        """Return the hours that one GPU takes for these operations."""
        return operations / self.speed / 3600

    @classmethod
    def named(cls, given: str) -> Devices:
        """Parse `8xH100`, or `H100` for one; raise RecipeError for an unknown GPU or none."""
        count, name = re.fullmatch(r"(?:(\d+)x)?(.*)", given.strip(), re.IGNORECASE).groups()  # type: ignore[union-attr]
        known = next((known for known in PEAKS if known.lower() == name.replace(" ", "").lower()), None)
        if known is None or count == "0":
            raise RecipeError(
                where="--on", found=given, expected=f"COUNTxGPU, for example 8xH100, with GPU one of {', '.join(PEAKS)}",
                remedy="Name one GPU or more." if known else did_you_mean(name.upper(), PEAKS, "Name a similar one."),
            )  # fmt: skip
        return cls(name=known, count=int(count or 1), peak=PEAKS[known])


@dataclass(frozen=True, kw_only=True)
class DeviceForecast:
    """Cost of the remaining stages."""

    devices: Devices
    operations: float  # floating-point, of all stages
    longest: float  # operations of the longest path of stages that depend on each other

    @property
    def gpu_hours(self) -> float:
        return self.devices.hours(self.operations)

    @property
    def seconds(self) -> float:
        """Seconds with all GPUs busy; at least what one GPU takes for the longest path of stages."""
        return max(self.operations / self.devices.count, self.longest) / self.devices.speed

    @property
    def line(self) -> str:
        """The forecast and its assumptions as a sentence."""
        one = self.devices
        work = f"{self.gpu_hours:.1f} GPU hours" if self.gpu_hours >= 0.1 else f"{duration(3600 * self.gpu_hours)} of one GPU"
        return (
            f"On {one.count} {one.name}: about {work}, {duration(self.seconds)} if all are busy, one training per GPU. Assumed, not "
            f"measured: {FORWARD + BACKWARD} FLOP per parameter and token ({FORWARD + BACKWARD + FORWARD} in micro-batches), "
            f"{one.speed / TERA:.0f} TFLOP/s per GPU ({UTILISATION:.0%} of {one.peak:g}), {TOKENS} tokens per sentence ({FAQ_TOKENS} in "
            "FAQ training data, counted in a user file). Not included: start-up, dev scores and downloads."
        )


def device_forecast(plan: Plan, devices: Devices, parameters: Parameters, *, missing: Iterable[str] | None = None) -> DeviceForecast:
    """Forecast the stages with the keys `missing` (None: all); corpora use no GPU and count nothing."""
    left = {stage.key for stage in plan.stages} if missing is None else set(missing)
    operations = {stage.key: operations_of(stage, plan, parameters) if stage.key in left else 0.0 for stage in plan.stages}
    longest = longest_path(plan.stages, lambda stage: operations[stage.key])
    return DeviceForecast(devices=devices, operations=sum(operations.values()), longest=longest)


def operations_of(stage: Stage, plan: Plan, parameters: Parameters) -> float:
    """Return the floating-point operations of a stage.

    Training counts forward and backward, micro-batches forward once more; banks, scores and frozen encoders count forward only.

    Raises:
        TypeError: a kind of stage that plans do not contain.
    """
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
    raise TypeError(f"operations of the stage {stage.kind} are not implemented")


def parameters_by(configuration: Callable[[EncoderSpec], Mapping[str, object]]) -> Parameters:
    """Return a function that counts parameters: by an encoder's config.json, else as published for its name, else as BERT-base."""

    def found(encoder: EncoderSpec) -> float:
        values = configuration(encoder)
        published = next((millions for name, millions in PUBLISHED.items() if name in encoder.checkpoint.lower()), None)
        if values or published is None or encoder.layers is not None:
            return encoder_size(values, layers=encoder.layers).num_parameters
        return published * 1e6

    return found


@dataclass(frozen=True, kw_only=True)
class ForecastCheck:
    """Finished trainings: seconds that were forecast for one GPU, and seconds × workers that they took."""

    stages: int
    forecast_s: float
    taken_s: float
    on_gpu: bool

    def line(self, devices: Devices) -> str:
        """Return the check as a sentence; "" before a training is finished."""
        if not self.stages or not self.forecast_s:
            return ""
        where = "" if self.on_gpu else " (without a GPU: this shows how much slower these machines are, not the error of the forecast)"
        ratio = self.taken_s / self.forecast_s
        times = f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"
        return (
            f"Finished: {counted(self.stages, 'training')}, forecast {duration(self.forecast_s)} on one {devices.name}, took "
            f"{duration(self.taken_s)} × workers, {times} times as long{where}."
        )


def forecast_check(plan: Plan, devices: Devices, parameters: Parameters, records: Mapping[str, Record]) -> ForecastCheck:
    """Compare the forecast with the records of finished trainings, by key, for the sentences that they trained on."""
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
    """Tokens per sentence, cut at `longest`: counted where planning has read the corpus, else assumed (more for an FAQ)."""
    tokens = float(FAQ_TOKENS if corpus is not None and corpus.training_fold is not None else TOKENS)
    if corpus is not None:
        tokens = plan.tokens.get(corpus.key, tokens)
    return tokens if longest is None else min(tokens, longest)
