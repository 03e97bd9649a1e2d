"""Load configuration, tokenizer and weights of a checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from tokenizers import normalizers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from sentdist.errors import EncoderError, brief, first_line
from sentdist.families import POOLINGS, Family, family_of, has_unread_decoder, why_padded, with_decoder
from sentdist.files import reading
from sentdist.kernels.flat_attention import FLAT_ATTENTION, register_flat_attention
from sentdist.learning.encoder.declared import REMEDY, Checkpoint, Module, tokens_within

_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
_HIDDEN_DROPOUTS = ("hidden_dropout_prob", "hidden_dropout", "dropout", "dropout_rate")
EXPECTED = "a folder that AutoModel and AutoTokenizer of transformers can load"


@contextmanager
def quiet(*, reports: bool = True) -> Iterator[None]:
    """Disable transformers' progress bars inside, and without `reports` its table of unused weights; restores the process's settings."""
    had_bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    if not reports:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint; EncoderError if it has none, or one without words."""
    with _reading(checkpoint.folder, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, trust_remote_code=False)
        if checkpoint.sentences.get("do_lower_case"):
            _read_in_lower_case(tokenizer)
        # Without tokenizer files transformers 5 makes one to which all words are unknown.
        if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
            raise ValueError("a vocabulary of special tokens only")
    return tokenizer


def _read_in_lower_case(tokenizer: PreTrainedTokenizerBase) -> None:
    """Lower-case like sentence-transformers where a folder asks for it, independent of the tokenizer's own files."""
    if not tokenizer.is_fast:
        raise ValueError("do_lower_case of sentence-transformers with a tokenizer that is not fast (of the library tokenizers)")
    own = tokenizer.backend_tokenizer.normalizer
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *([] if own is None else [own])])


def load_model(
    folder: Path,
    *,
    attention_dropout: float | None = None,
    hidden_dropout: float | None = None,
    initialization: str = "pretrained",
    layers: int | None = None,
) -> tuple[PreTrainedModel, str | None]:
    """Load the model in float32 with its dropout probabilities set; return it with the reason why it cannot run flat (None if it can).

    initialization: "pretrained", or "random" for the architecture alone, with weights from torch's generator.
    layers: keep the first so many transformer layers; None: all.
    """
    config = load_configuration(folder)
    family = family_of(config.to_dict())
    if has_unread_decoder(config.to_dict()):
        raise with_decoder(EncoderError, where=f"encoder {folder}", found=f"a {config.model_type}")
    if family.own_code == "t5" and not hasattr(config, "attention_dropout"):
        config.attention_dropout = config.dropout_rate
    _set_probability(config, _ATTENTION_DROPOUTS, attention_dropout, folder=folder, what="attention_dropout")
    _set_probability(config, _HIDDEN_DROPOUTS, hidden_dropout, folder=folder, what="hidden_dropout")
    if layers is not None:
        _keep_layers(config, layers, folder)
    reason = why_padded(config.to_dict())
    attention = {"attn_implementation": FLAT_ATTENTION} if reason is None else {}
    if reason is None:
        register_flat_attention()
    if initialization == "random":
        with _reading(folder, "architecture"):
            model = auto_class(config).from_config(config, dtype=torch.float32, **attention)
        _make_ready(model, family, is_flat=reason is None)
        return model, reason
    is_part = family.is_read_without_decoder or layers is not None
    with _reading(folder, "model"), quiet(reports=not is_part):
        model, report = auto_class(config).from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True, trust_remote_code=False, **attention
        )  # fmt: skip
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise EncoderError(
            where=f"encoder {folder}",
            found=f"no weights for {missing[0]} and {len(missing) - 1} others",
            expected=f"all weights of a {type(model).__name__}",
            remedy="The file holds another kind of model than its config.json declares; export the encoder again.",
        )
    if any(name.startswith("pooler.") for name in report["missing_keys"]):
        model.pooler = None
    _make_ready(model, family, is_flat=reason is None)
    return model, reason


def auto_class(config: PreTrainedConfig) -> type[AutoModel] | type[AutoModelForTextEncoding]:
    """Return the transformers class that loads the encoder of a configuration without its decoder."""
    return AutoModelForTextEncoding if family_of(config.to_dict()).is_read_without_decoder else AutoModel


def _make_ready(model: PreTrainedModel, family: Family, *, is_flat: bool) -> None:
    """Adapt families with own attention code here; transformers lets most families use any attention."""
    if family.own_code == "t5":  # one module for its word embeddings, and a probability for dropout in attention alone
        cast(Any, model).encoder.set_input_embeddings(model.shared)
        for module in model.modules():
            if hasattr(module, "relative_attention_num_buckets"):
                module.dropout = model.config.attention_dropout
    if family.own_code == "mpnet" and is_flat:
        from sentdist.kernels.flat_models import lay_flat  # imports the family's code

        lay_flat(model)


def _keep_layers(config: PreTrainedConfig, layers: int, folder: Path) -> None:
    held = int(getattr(config, "num_hidden_layers", 0))
    if not 1 <= layers <= held:
        raise EncoderError(
            where=f"encoder {folder}",
            found=f"{held} transformer layers, {layers} wanted",
            expected=f"encoder.layers from 1 to {held}",
            remedy="Lower encoder.layers, or leave it out to keep all.",
        )
    config.num_hidden_layers = layers


def _set_probability(config: PreTrainedConfig, names: tuple[str, ...], value: float | None, *, folder: Path, what: str) -> None:
    if value is None:
        return
    name = next((name for name in names if hasattr(config, name)), None)
    if name is None or not 0.0 <= value < 1.0:
        raise EncoderError(
            where=f"encoder {folder}: {what}",
            found=f"{value}",
            expected=f"a probability in [0, 1) that model type {config.model_type} knows",
            remedy="Leave it out to keep the checkpoint's own probabilities.",
        )
    setattr(config, name, float(value))


def load_configuration(folder: Path) -> PreTrainedConfig:
    """Load the configuration of a checkpoint folder; EncoderError if there is none."""
    with _reading(folder, "configuration"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)  # the default asks in a terminal whether to run code
    # A checkpoint's own code never runs here; encoders trained from it do not refer to it.
    vars(config).pop("auto_map", None)
    return config


@contextmanager
def _reading(folder: Path, what: str) -> Iterator[None]:
    """Raise errors of transformers, tokenizers and safetensors, which have no common base class, as EncoderError."""
    try:
        yield
    except EncoderError:
        raise
    except Exception as error:
        raise EncoderError(
            where=f"encoder {folder}",
            found=f"no readable {what} ({type(error).__name__}: {first_line(error)})",
            expected=EXPECTED,
            remedy=REMEDY,
        ) from error


def saved_head(checkpoint: Checkpoint, pooling: str) -> dict[str, Tensor] | None:
    """Return the Dense module of a sentence-transformers folder as {"dense.weight", "dense.bias"}, the latter if present.

    None without a Dense module or if the pooling has no dense layer; EncoderError if the layer of `pooling` computes something else.
    """
    known = POOLINGS[pooling]
    dense = checkpoint.modules_of("Dense") if known.has_head else []
    if not dense:
        return None
    weights = _weights_of(dense[0])
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    if not checkpoint.computes_like(known) or shapes.get("linear.weight", (None,))[0] != checkpoint.dense_width:
        raise EncoderError(
            where=f"encoder {checkpoint.folder}: dense layer",
            found=f"{len(dense)}, with {brief(dict(dense[0].config))} and weights {brief(shapes)}",
            expected=f"one with {known.dense.activation} as pooling {pooling} has, of the width in its config.json",
            remedy=f"Name the pooling that the folder was made with, or {known.without_head} to leave the layer out.",
        )
    return {name.replace("linear.", "dense."): weight for name, weight in weights.items()}


def check_layer_weights(checkpoint: Checkpoint, pooling: str) -> None:
    """Raise EncoderError if a folder's layer weights, which can be trained, differ from the mean of layers of `pooling`."""
    layers = POOLINGS[pooling].layers
    for module in checkpoint.modules_of("WeightedLayerPooling") if layers is not None else ():
        assert layers is not None
        weights = _weights_of(module).get("layer_weights", torch.zeros(1)).float()
        ours = torch.zeros(len(weights))
        ours[[number - 1 for number in layers(len(weights))]] = 1.0
        if not torch.allclose(weights / weights.sum(), ours / ours.sum(), atol=1e-4):
            raise EncoderError(
                where=f"encoder {checkpoint.folder}: the mean of layers that modules.json declares",
                found=f"weights {brief(weights.tolist())} of the layers",
                expected=f"those of {pooling}: {brief(ours.tolist())}",
                remedy="Name another pooling to use only the transformer of this checkpoint.",
            )


def _weights_of(module: Module) -> dict[str, Tensor]:
    file = module.folder / "model.safetensors"
    if not os.path.lexists(file):
        file = file.with_name("pytorch_model.bin")
    with reading(file, expected=f"the weights of {module.kind}", remedy=REMEDY, kind=EncoderError):
        return load_file(file) if file.suffix == ".safetensors" else torch.load(file, map_location="cpu", weights_only=True)


def most_tokens_of_loaded(checkpoint: Checkpoint, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Like `Checkpoint.most_tokens`, with transformers' defaults where the files have no value: 512 if that is no length either."""
    declared = checkpoint.sentences.get("max_seq_length") or tokenizer.model_max_length
    positions = int(getattr(config, "max_position_embeddings", 512))
    return tokens_within(checkpoint.family, positions=positions, padding=config.pad_token_id, declared=declared) or 512
