"""Load configuration, tokenizer and weights of a checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

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
from sentdist.files import read_json, reading
from sentdist.kernels.flat_attention import FLAT_ATTENTION, register_flat_attention
from sentdist.learning.encoder.declared import (
    OF_SENTENCES,
    REMEDY,
    check_released_words,
    dense_width,
    modules,
    of_sentences,
    tokens_within,
    unlike_ours,
)


@contextmanager
def without_bars() -> Iterator[None]:
    """Disable transformers' progress bars inside; restores the process's setting."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


@contextmanager
def without_reports() -> Iterator[None]:
    """Disable transformers' report of unused weights inside, where leaving them out is intended."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
_HIDDEN_DROPOUTS = ("hidden_dropout_prob", "hidden_dropout", "dropout", "dropout_rate")
MODEL_SUFFIXES = (".json", ".safetensors", ".bin", ".txt", ".model")
MOST = {
    "hidden_size": 100_000,
    "num_hidden_layers": 1_000,
    "num_attention_heads": 10_000,
    "vocab_size": 10_000_000,
    "intermediate_size": 1_000_000,
}
EXPECTED = "a folder that AutoModel and AutoTokenizer of transformers can load"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint folder; EncoderError if it has none, or one without words."""
    check_files(folder)
    with _reading(folder, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if of_sentences(folder).get("do_lower_case"):
            _read_in_lower_case(tokenizer)
    # Without tokenizer files transformers 5 makes one to which all words are unknown.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise EncoderError(
            where=f"encoder {folder}",
            found="no tokenizer (a vocabulary of special tokens only)",
            expected="tokenizer.json, or the vocabulary files of its tokenizer",
            remedy="Put the model's tokenizer files beside its weights.",
        )
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
    with _reading(folder, "model"), without_bars(), without_reports() if is_part else nullcontext():
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
    """Adapt families with own attention code here; transformers lets most families use any attention. The imports take a while."""
    if family.own_code == "t5":
        from sentdist.kernels.flat_models import make_ready

        make_ready(model, is_flat=is_flat)
    if family.own_code == "mpnet" and is_flat:
        from sentdist.kernels.flat_models import lay_flat

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
    """Load the configuration of a checkpoint folder; EncoderError if there is none, or one with a size that no encoder has."""
    check_files(folder)
    with _reading(folder, "configuration"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)  # the default asks in a terminal whether to run code
        for name, most in MOST.items():
            value = getattr(config, name, None)
            if isinstance(value, int) and not 0 < value <= most:
                raise ValueError(f"{name} is {brief(value)}, not in 1 to {most:,}")
    check_released_words(config, folder)
    # A checkpoint's own code never runs here; encoders trained from it do not refer to it.
    vars(config).pop("auto_map", None)
    return config


def check_files(folder: Path) -> None:
    """Raise EncoderError for files that libraries report badly: pipes and devices, which block forever, and truncated JSON.

    An unreadable tokenizer.json may otherwise be skipped for older files beside it.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix in MODEL_SUFFIXES and not path.is_dir():
            with reading(path, expected=EXPECTED, remedy=REMEDY, kind=EncoderError):
                pass
        if path.name in ("config.json", "tokenizer.json", "tokenizer_config.json", "modules.json"):
            read_json(path, expected=EXPECTED, remedy=REMEDY, kind=EncoderError)


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


def saved_head(folder: Path, pooling: str) -> dict[str, Tensor] | None:
    """Return the Dense module of a sentence-transformers folder as {"dense.weight", "dense.bias"}, the latter if present.

    None without a Dense module or if the pooling has no dense layer; EncoderError if the layer of `pooling` computes something else.
    """
    known = POOLINGS[pooling]
    weights = _module_weights(folder, "Dense", what="a dense layer") if known.has_head else None
    if weights is None:
        return None
    width = dense_width(folder)
    if width is None:
        raise EncoderError(
            where=f"encoder {folder}: dense layer",
            found="several in modules.json, or one whose config.json has no out_features",
            expected="one dense layer with a known width",
            remedy=f"Name the pooling {known.without_head} to leave it out, or export the encoder again.",
        )
    if "linear.weight" not in weights or weights["linear.weight"].shape[0] != width:
        raise EncoderError(
            where=f"encoder {folder}: dense layer",
            found=f"weights {brief({name: tuple(weight.shape) for name, weight in weights.items()})}",
            expected=f"linear.weight to the width {width} of its config.json (out_features)",
            remedy="Weights and config.json belong to different layers: fetch the folder again, or export the encoder again.",
        )
    if (unlike := unlike_ours(folder, pooling)) is not None:
        raise EncoderError(
            where=f"encoder {folder}: pooling {pooling}",
            found=unlike,
            expected=f"one with {known.dense.activation}",
            remedy=f"Name the pooling that the folder was made with, or {known.without_head} to leave the layer out.",
        )
    return {name.replace("linear.", "dense."): weight for name, weight in weights.items()}


def check_layer_weights(folder: Path, pooling: str) -> None:
    """Raise EncoderError if a folder's layer weights, which sentence-transformers can train, differ from the mean of layers of `pooling`.

    Nothing is compared without weights in the folder, or if the pooling reads only the last layer.
    """
    layers = POOLINGS[pooling].layers
    found = None if layers is None else _module_weights(folder, "WeightedLayerPooling", what="a mean of layers")
    if layers is None or found is None:
        return
    weights = found.get("layer_weights", torch.zeros(1)).float()
    ours = torch.zeros(len(weights))
    ours[[number - 1 for number in layers(len(weights))]] = 1.0
    shares, ours = weights / weights.sum(), ours / ours.sum()
    if not torch.allclose(shares, ours, atol=1e-4):
        raise EncoderError(
            where=f"encoder {folder}: the mean of layers that modules.json declares",
            found=f"weights {', '.join(f'{share:.3g}' for share in shares.tolist())} of the layers",
            expected=f"those of {pooling}: {', '.join(f'{share:.3g}' for share in ours.tolist())}",
            remedy="Name another pooling to use only the transformer of this checkpoint.",
        )


def _module_weights(folder: Path, kind: str, *, what: str) -> dict[str, Tensor] | None:
    """Return the weights of the first module of that kind in a sentence-transformers folder; None without one."""
    for module in modules(folder):
        if module["type"].rsplit(".", 1)[-1] == kind:
            file = folder / module["path"] / "model.safetensors"
            if not os.path.lexists(file):
                file = file.with_name("pytorch_model.bin")
            with reading(file, expected=f"the weights of {what}", remedy=REMEDY, kind=EncoderError):
                return load_file(file) if file.suffix == ".safetensors" else torch.load(file, map_location="cpu", weights_only=True)
    return None


def most_tokens_of_loaded(folder: Path, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Like `most_tokens`, with transformers' defaults where the files have no value: 512 if that is no length either.

    EncoderError if the declared value is no number of tokens.
    """
    declared = of_sentences(folder).get("max_seq_length") or tokenizer.model_max_length
    if not isinstance(declared, int | float) or declared < 1:
        raise EncoderError(
            where=str(folder / OF_SENTENCES[0]), found=f"max_seq_length {brief(declared)}", expected="a number of tokens", remedy=REMEDY
        )
    positions = int(getattr(config, "max_position_embeddings", 512))
    family = family_of(config.to_dict())
    return tokens_within(family, positions=positions, padding=config.pad_token_id, declared=declared) or 512
