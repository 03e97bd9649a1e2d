"""What a training asks of its encoder, as far as planning can know it: layers, heads, positions, pooling, and full batches."""

from __future__ import annotations

from sentdist.errors import RecipeError
from sentdist.families import with_decoder
from sentdist.plan.resolver import Pin
from sentdist.plan.runtime import Runtime
from sentdist.plan.sections import EncoderSection
from sentdist.plan.specs import EncoderSpec, Regularizers, Training
from sentdist.plan.stages import Train

MOST_LEARNED_WITH = 0.1


def check_checkpoint(section: EncoderSection, pin: Pin) -> None:
    """Refuse a checkpoint that is more than an encoder, and more layers than it has, as far as planning can know them."""
    if pin.has_decoder:
        raise with_decoder(RecipeError, where="encoder.checkpoint", found=section.checkpoint)
    num_layers = pin.num_layers
    if section.layers is not None and num_layers is not None and section.layers > num_layers:
        raise RecipeError(
            where="encoder.layers",
            found=f"{section.layers}, where {section.checkpoint} has {num_layers} layers",
            expected=f"1 to {num_layers}",
            remedy="Lower it, or leave it out to keep all layers.",
        )


def check_pooling(section: EncoderSection, declared: str | None) -> None:
    """Refuse the default pooling, the mean, for a checkpoint that declares another one."""
    if declared not in (None, section.pooling):
        raise RecipeError(
            where="encoder.pooling",
            found=f"nothing, and {section.checkpoint} says that it was made with {declared}",
            expected="a pooling to be named where it is not the mean",
            remedy=f"Add encoder.pooling={declared}, or mean to take its sentences' mean all the same.",
        )


def check_length(field: str, max_length: int | None, pin: Pin) -> None:
    """No sentence is longer than the encoder's table of positions, or than it declares; where planning can know that."""
    if max_length is not None and pin.most_tokens is not None and max_length > pin.most_tokens:
        raise RecipeError(
            where=field,
            found=f"{max_length:,}, where {pin.name} takes {pin.most_tokens:,} tokens",
            expected=f"3 to {pin.most_tokens:,}",
            remedy="Lower it, or take an encoder with more positions.",
        )


def rate_remarks(training: Training, *, where: str) -> list[str]:
    """What there is to say of a learning rate with which nothing is learned: 2e5 is easily written for 2e-5."""
    if training.learning_rate <= MOST_LEARNED_WITH:
        return []
    return [
        f"{where}: learning_rate {training.learning_rate:g} is far above what trains encoders (1e-6 to 1e-3): "
        "AdamW moves each weight by about as much a step."
    ]


def check_training(training: Training, regularizers: Regularizers, runtime: Runtime, pin: Pin, *, where: str) -> None:
    """As far as planning can know it, the encoder takes so long sentences, has heads that can be dropped, layers of its own where
    each learns at a rate of its own, and layers that can be computed again where that is asked for."""
    if runtime.recompute_layers and not pin.may_recompute_layers:
        raise RecipeError(
            where=f"{where}: runtime.recompute_layers",
            found=f"true for {pin.name}, whose layers transformers cannot compute again",
            expected="false",
            remedy="Set runtime.recompute_layers=false; runtime.micro_batch saves memory, too.",
        )
    if regularizers.drophead and not pin.may_drop_heads:
        raise RecipeError(
            where=f"{where}: regularizers.drophead",
            found=f"{regularizers.drophead:g} for {pin.name}, whose sentences are padded",
            expected="0",
            remedy="Leave drophead out, or take an encoder that runs without padding, as BERT, RoBERTa, MPNet and ModernBERT do.",
        )
    check_length(f"{where}: training.max_length", training.max_length, pin)
    if training.layer_decay != 1.0 and pin.shares_layers:
        raise RecipeError(
            where=f"{where}: training.layer_decay",
            found=f"{training.layer_decay:g} for {pin.name}, whose layers share their weights",
            expected="1",
            remedy="Set layer_decay: 1 there, or take an encoder whose layers are its own.",
        )


def check_batch(training: Training, runtime: Runtime, num_rows: int, *, where: str) -> None:
    """Every worker has another candidate, and the corpus at least one batch."""
    workers = runtime.most_workers
    if training.batch_size // workers < 2:
        raise RecipeError(
            where=f"{where}: training.batch_size", found=f"{training.batch_size} rows for {workers} workers",
            expected="at least two each (a single row has no other candidate)", remedy="Enlarge the batch or use fewer workers.",
        )  # fmt: skip
    if num_rows < training.batch_size:
        raise RecipeError(
            where=f"{where}: training.batch_size", found=f"{training.batch_size} rows a batch, {num_rows} in the corpus",
            expected="at least one full batch", remedy="Lower the batch size or give more data.",
        )  # fmt: skip


def check_encoder_of_start(own: EncoderSpec, start: Train | None, *, where: str) -> None:
    """Refuse what a start has settled already: its architecture and weights are taken as they are, only the pooling may be another.

    Raises:
        RecipeError: naming the field that would have no effect.
    """
    if start is None:
        return
    for field in ("checkpoint", "revision", "initialization", "layers"):
        found, settled = getattr(own, field), getattr(start.encoder, field)
        if found != settled:
            raise RecipeError(
                where=f"{where}.encoder.{field}",
                found=f"{found} beside a start that has {settled}: it has no effect",
                expected="what training starts from",
                remedy=f"Give it to the method that start names, or leave {field} out.",
            )
