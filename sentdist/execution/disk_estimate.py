"""How much a plan will write into its store: pure estimates, so that a disk that is too small is found before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sentdist.learning.bank_shape import bank_bytes
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.unroll import Plan
from sentdist.sizes import disk_size
from sentdist.stages.context import Context
from sentdist.stages.planning.worker_memory import EncoderSize, size_of

WEIGHT_BYTES = 4  # float32
CHECKPOINT_BYTES = 16  # of each parameter: weight, AdamW's two moments, and the best weight so far
CHECKPOINTS = 3  # of each training at work: two are kept while a third is written
SENTENCE_BYTES = 190  # of a corpus, with its index and its tokens
SMALL_STAGE_BYTES = 2_000_000  # scores with their items, a card, a tokenizer


@dataclass(frozen=True, kw_only=True)
class DiskEstimate:
    """Bytes that a plan writes. encoders: their weights, whose size is known. checkpoints: of trainings at work, gone when they end.
    others: banks and corpora, whose sentences may repeat."""

    encoders: int
    checkpoints: int
    others: int

    @property
    def least(self) -> int:
        return self.encoders + self.checkpoints

    @property
    def likely(self) -> int:
        return self.least + self.others

    def line(self, free: int | None) -> str:
        """The estimate as a sentence, beside what is free (None where a store does not say)."""
        kept = f"It adds about {disk_size(self.encoders + self.others)} to the store"
        meanwhile = f" and, while it trains, up to {disk_size(self.checkpoints)} of checkpoints" if self.checkpoints else ""
        beside = "" if free is None else f"; {disk_size(free)} free{': too little' if self.likely > free else ''}"
        return f"{kept}{meanwhile}{beside}."

    def warning(self, free: int | None) -> str | None:
        """What to say before work starts that may not fit."""
        if free is None or self.likely <= free:
            return None
        return f"{self.line(free)} It may stop on the way: what is finished is kept, and submitted again it goes on."


def disk_estimate(plan: Plan, context: Context, missing: frozenset[str], *, at_once: int = 1) -> DiskEstimate:
    """What the stages with these keys write. at_once: trainings that are at work, and keep checkpoints, at the same time."""
    stages = [stage for stage in plan.stages if stage.key in missing]
    sizes = encoder_sizes(stages, context)
    parameters = sorted((sizes[stage.encoder].num_parameters for stage in stages if isinstance(stage, Train)), reverse=True)
    return DiskEstimate(
        encoders=WEIGHT_BYTES * sum(parameters),
        checkpoints=CHECKPOINT_BYTES * CHECKPOINTS * sum(parameters[:at_once]),
        others=sum(bytes_beside_weights(stage, plan, sizes) for stage in stages),
    )


def encoder_sizes(stages: Iterable[Stage], context: Context) -> dict[EncoderSpec, EncoderSize]:
    """The sizes of the encoders that these stages train, or fill banks with."""
    encoders = {stage.encoder if isinstance(stage, Train) else stage.encoder.encoder for stage in stages if isinstance(stage, Train | Bank)}
    return {encoder: size_of(encoder, context) for encoder in encoders}


def bytes_of(stage: Stage, plan: Plan, sizes: Mapping[EncoderSpec, EncoderSize]) -> int:
    """What a stage leaves in the store. sizes: as `encoder_sizes`."""
    weights = WEIGHT_BYTES * sizes[stage.encoder].num_parameters if isinstance(stage, Train) else 0
    return weights + bytes_beside_weights(stage, plan, sizes)


def search_disk_estimate(planned: PlannedSearch, context: Context, left: Mapping[str, int], *, at_once: int = 1) -> DiskEstimate:
    """What a search writes: its finalists as a plan does, and the encoder of each trial that comes to its end, by expectation.

    left: trials of each method that are still to be begun, as far as there is an end of them; of rungs nothing stays.
    """
    finalists = planned.plan([(method, planned.first(method)) for method in planned.methods])
    missing = frozenset(stage.key for stage in finalists.stages) - context.store.get_all(finalists.stages).keys()
    estimate = disk_estimate(finalists, context, missing, at_once=at_once)
    halving = planned.search.halving
    ends = 1.0 if halving is None else halving.keep ** (len(halving.rungs) - 1)
    trials = 0.0
    for method, number in left.items():
        encoder = planned.train(method, planned.first(method)).encoder
        num_parameters = size_of(encoder, context).num_parameters
        trials += number * (SMALL_STAGE_BYTES + ends * WEIGHT_BYTES * num_parameters)
    return replace(estimate, others=estimate.others + round(trials))


def bytes_beside_weights(stage: Stage, plan: Plan, sizes: Mapping[EncoderSpec, EncoderSize]) -> int:
    """What a stage writes beside an encoder's weights and checkpoints. sizes: of the encoders of banks."""
    match stage:
        case Bank():
            return bank_bytes(stage.num_sentences(plan.rows), sizes[stage.encoder.encoder].width, stage.dtype)
        case CorpusStage():
            return plan.rows[stage.key] * stage.num_columns * SENTENCE_BYTES
        case Train() | Targets() | Scores():
            return SMALL_STAGE_BYTES
    raise TypeError(f"nobody said what the stage {stage.kind} writes")
