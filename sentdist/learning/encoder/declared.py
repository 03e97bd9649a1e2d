"""Read what a checkpoint folder declares (pooling, prompts, tokenizer, lengths) and whether it is supported. Does not import torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sentdist.errors import EncoderError, brief
from sentdist.families import POOLINGS, Family, configured, family_of, name_of
from sentdist.files import read_json, reading

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


REMEDY = "Point to the folder that has config.json, the weights and the tokenizer files, or fetch it again."
# Files of a hub checkpoint that describe it: some kilobytes.
DECLARATIONS = [
    "config.json", "tokenizer_config.json", "special_tokens_map.json", "sentence_*_config.json", "modules.json", "*/config.json",
    "config_sentence_transformers.json",
    "adapter_config.json", "*/adapter_config.json",
]  # fmt: skip
CONFIG_OF_PROMPTS = "config_sentence_transformers.json"
# Encoders on the hub whose prompt sentence-transformers exclude from the mean, regardless of their files.
INSTRUCTORS = ("hkunlp/instructor-base", "hkunlp/instructor-large", "hkunlp/instructor-xl")
# Files of sentence-transformers with a transformer's longest sentence and its case; the first that exists counts.
OF_SENTENCES = tuple(
    f"sentence_{family}_config.json" for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Keys of modules that sentence-transformers write since version 6; version 5 fails on them.
SINCE_VERSION_6 = (
    "transformer_task", "modality_config", "processing_kwargs", "unpad_inputs", "module_input_name", "module_output_name",
    "embedding_dimension", "pooling_mode",
)  # fmt: skip
POOLING_FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "lasttoken": "pooling_mode_lasttoken"}
# Classes of tokenizers that know no mask token but that of the files.
CLASSES_WITHOUT_MASK = ("PreTrainedTokenizerFast", "TokenizersBackend", "T5Tokenizer", "T5TokenizerFast")


def declared_pooling(folder: Path) -> str | None:
    """Return the pooling that a sentence-transformers folder declares; None for a plain checkpoint; EncoderError if it is not supported."""
    found = modules(folder)
    kinds = [_kind(module) for module in found[1:]]
    if _is_normalized(found):  # cosine does not see it
        kinds.pop()
    if not found:
        return None
    mode = _pooling_mode(folder, found)
    pooling = next((known.name for known in POOLINGS.values() if known.in_folder and known.modules == (tuple(kinds), mode)), None)
    unlike = None if pooling is None else unlike_ours(folder, pooling)
    if pooling is None or unlike is not None:
        raise EncoderError(
            where=f"encoder {folder}/modules.json",
            found=unlike or f"modules {' > '.join(kinds)} with pooling {mode!r}",
            expected=", ".join(known.in_folder for known in POOLINGS.values() if known.in_folder),
            remedy="Name a pooling yourself to use only the transformer of this checkpoint.",
        )
    return pooling


def ends_in_normalize(folder: Path) -> bool:
    """Whether a sentence-transformers folder gives embeddings of length 1: its last module is Normalize."""
    return _is_normalized(modules(folder))


def unlike_ours(folder: Path, pooling: str) -> str | None:
    """Describe how a folder's dense layer or mean of layers differs from that of `pooling`; None if it has none or it is the same."""
    for module in modules(folder):
        kind, config = _kind(module), json_object(folder / module["path"] / "config.json")
        if kind == "Dense":
            activation, sizes = str(config.get("activation_function")), [config.get(name) for name in ("in_features", "out_features")]
            known = POOLINGS[pooling]
            has_size = known.gives_dense or sizes[0] == sizes[1]  # one that is dropped at test leaves the width
            if not activation.endswith(f".{known.dense.activation}") or not has_size or config.get("use_residual"):
                around = " and a residual connection" if config.get("use_residual") else ""
                return f"a dense layer of {sizes[0]} to {sizes[1]} with {activation}{around}"
        if kind == "WeightedLayerPooling" and config.get("layer_start") != 1:
            return f"a mean of layers from {config.get('layer_start')} on"
    return None


def dense_width(folder: Path) -> int | None:
    """Return the output width of a sentence-transformers folder's dense layer; None if it has none, or several."""
    configs = [json_object(folder / module["path"] / "config.json") for module in modules(folder) if _kind(module) == "Dense"]
    width = configs[0].get("out_features") if len(configs) == 1 else None
    return width if isinstance(width, int) else None


def modules(folder: Path) -> list[dict[str, str]]:
    """Return "type" and "path" of each module in modules.json; empty without the file."""
    path = folder / "modules.json"
    found = _json(path, default=[])
    if not isinstance(found, list) or not all(
        isinstance(module, dict) and isinstance(module.get("type"), str) and isinstance(module.get("path"), str) for module in found
    ):
        raise EncoderError(where=str(path), found=brief(found), expected="a list of modules with type and path", remedy=REMEDY)
    return found


def _is_normalized(found: list[dict[str, str]]) -> bool:
    return len(found) > 1 and _kind(found[-1]) == "Normalize"


def _kind(module: dict[str, str]) -> str:
    return module["type"].rsplit(".", 1)[-1]


def json_object(path: Path) -> dict[str, object]:
    """Return the JSON object in a file; empty if the file does not exist."""
    values = _json(path, default={})
    if not isinstance(values, dict):
        raise EncoderError(where=str(path), found=brief(values), expected="a JSON object", remedy=REMEDY)
    return values


def of_sentences(folder: Path) -> dict[str, object]:
    """Return a folder's sentence settings for sentence-transformers, "max_seq_length" and "do_lower_case"; empty without any."""
    return json_object(next((folder / name for name in OF_SENTENCES if os.path.lexists(folder / name)), folder / OF_SENTENCES[0]))


def named_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """Return a folder's prompts for sentence-transformers, name to text, and the default name; EncoderError if they are not texts."""
    values, where = json_object(folder / CONFIG_OF_PROMPTS), str(folder / CONFIG_OF_PROMPTS)
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(text is None or isinstance(text, str) for text in prompts.values()):
        raise EncoderError(where=f"{where}: prompts", found=brief(prompts), expected="names with their texts", remedy=REMEDY)
    if default is not None and not isinstance(default, str):
        raise EncoderError(where=f"{where}: default_prompt_name", found=brief(default), expected="a name, or null", remedy=REMEDY)
    return {name: text or "" for name, text in prompts.items()}, default


def leaves_prompt_out(folder: Path, checkpoint: str) -> bool:
    """Whether sentence-transformers exclude the prompt from pooling, never so with the last token. checkpoint: as the user named it."""
    configs = [json_object(folder / module["path"] / "config.json") for module in modules(folder) if _kind(module) == "Pooling"]
    asks = any(config.get("include_prompt") is False for config in configs)
    return (asks or checkpoint in INSTRUCTORS) and _pooling_mode(folder, modules(folder)) != "lasttoken"


def keep_prompts(folder: Path, copy: Path, *, checkpoint: str) -> None:
    """Make sentence-transformers use and pool prompts with `copy` as with `folder`; EncoderError as `named_prompts`.

    checkpoint: the user's name of `folder`; behaviour that depends on the name is written into the copy.
    """
    prompts, default = named_prompts(folder)
    if named_prompts(copy) != (prompts, default):
        _change(copy / CONFIG_OF_PROMPTS, {"prompts": prompts, "default_prompt_name": default})
    if checkpoint in INSTRUCTORS and declared_pooling(copy) == declared_pooling(folder):
        for module in modules(copy):
            if _kind(module) == "Pooling":
                _change(copy / module["path"] / "config.json", {"include_prompt": False})


def prompts_left_out(folder: Path) -> str:
    """Return a sentence on prompts that sentence-transformers add, always or on request, and sentdist does not; "" without any."""
    prompts, default = named_prompts(folder)
    texts = {name: text for name, text in prompts.items() if text}
    if not texts:
        return ""
    if default in texts:
        return f"sentence-transformers put {brief(texts[default])} before every sentence; here none is added: write it before them."
    shown = ", ".join(f"{name} {brief(text)}" for name, text in list(texts.items())[:2])
    more = ", …" if len(texts) > 2 else ""
    return f"it has prompts for sentence-transformers ({shown}{more}); here none is added: write yours before the sentences."


def ranks_otherwise(folder: Path) -> str:
    """Return the similarity of sentence-transformers for these embeddings if it ranks them differently from cosines; else ""."""
    name = json_object(folder / CONFIG_OF_PROMPTS).get("similarity_fn_name")
    return str(name) if name in ("dot", "euclidean", "manhattan") and not (name != "manhattan" and ends_in_normalize(folder)) else ""


def most_tokens(folder: Path) -> int | None:
    """Return the maximum tokens of a sentence by the folder's files; None if they do not specify it. See also `most_tokens_of_loaded`."""
    config = json_object(folder / "config.json")
    declared = of_sentences(folder).get("max_seq_length")
    declared = declared or json_object(folder / "tokenizer_config.json").get("model_max_length")
    positions = configured(config, "num_positions")
    return tokens_within(family_of(config), positions=positions, padding=config.get("pad_token_id", 1), declared=declared)


def tokens_within(family: Family, *, positions: int | None, padding: object, declared: object) -> int | None:
    """Return the maximum tokens of a sentence: as declared, at most the positions; the family's pretraining length if both are missing."""
    if positions is not None and family.positions == "table_behind_padding":
        positions -= 1 + (padding if isinstance(padding, int) else 0)
    limits = [declared] if family.positions == "distances" else [positions, declared]
    lengths = (int(limit) for limit in limits if isinstance(limit, int | float) and 1 <= limit < 1 << 31)  # XLNet has -1 positions
    return min(lengths, default=family.most_tokens)


def lacks_mask_token(folder: Path) -> bool:
    """Whether the tokenizer's files specify no mask token; False if that depends on the tokenizer's class."""
    config = json_object(folder / "tokenizer_config.json")
    # Newer files hold all of it; of older ones transformers reads this beside them.
    further = {} if "added_tokens_decoder" in config else json_object(folder / "special_tokens_map.json")
    if config.get("mask_token") or further.get("mask_token"):
        return False
    return "mask_token" in config or config.get("tokenizer_class") in CLASSES_WITHOUT_MASK


def num_tokens(folder: Path) -> int | None:
    """Return the size of the tokenizer with added tokens; None if its files do not list them, as with sentencepiece. The class may add a
    few.
    """
    if os.path.lexists(folder / "tokenizer.json"):
        values = json_object(folder / "tokenizer.json")
        model, added = values.get("model"), values.get("added_tokens")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        words = [entry[0] for entry in vocabulary if isinstance(entry, list)] if isinstance(vocabulary, list) else vocabulary  # of Unigram
        if not isinstance(words, dict | list):
            return None
        further = [one["content"] for one in added if isinstance(one, dict) and "content" in one] if isinstance(added, list) else []
        return len({*words, *further})
    path = folder / "vocab.txt"
    if not os.path.lexists(path):
        return len(json_object(folder / "vocab.json")) or None
    with reading(path, expected="a token a line", remedy=REMEDY, kind=EncoderError), path.open(encoding="utf-8") as lines:
        return len({line.rstrip("\n") for line in lines})


def check_has_embeddings(num_tokens: int, num_embeddings: int, *, where: str) -> None:
    """Raise EncoderError for a tokenizer with tokens that have no word embedding."""
    if num_tokens > num_embeddings:
        raise EncoderError(
            where=where,
            found=f"a tokenizer of {num_tokens} tokens and {num_embeddings} word embeddings",
            expected="an embedding for every token",
            remedy="The tokenizer belongs to another model: put the model's tokenizer files into the folder.",
        )


def write_classic(folder: Path, max_length: int | None) -> None:
    """Rewrite a sentence-transformers folder in the layout from before version 6, which version 6 and text-embeddings-inference read, too.

    max_length: tokens of a sentence; None: as the folder declares.
    """
    found = modules(folder)
    for module in found:
        module["type"] = f"sentence_transformers.models.{_kind(module)}"
    _write(folder / "modules.json", found)
    for module in found[1:]:
        path = folder / module["path"] / "config.json"
        config = json_object(path)
        if _kind(module) == "Pooling" and "pooling_mode" in config:
            config |= {flag: config["pooling_mode"] == mode for mode, flag in POOLING_FLAGS.items()}
        if "embedding_dimension" in config:
            config["word_embedding_dimension"] = config["embedding_dimension"]
        if config:
            _write(path, _without_new_keys(config))
    sentences, tokenizer = _without_new_keys(of_sentences(folder)), json_object(folder / "tokenizer_config.json")
    if (length := max_length or most_tokens(folder)) is not None:
        sentences["max_seq_length"] = tokenizer["model_max_length"] = length
    if tokenizer.get("tokenizer_class") == "TokenizersBackend":  # transformers 5 alone knows the name; the other one both versions
        tokenizer = {"model_input_names": ["input_ids", "attention_mask"]} | tokenizer | {"tokenizer_class": "PreTrainedTokenizerFast"}
    if isinstance(tokenizer.get("extra_special_tokens"), list):  # also known to transformers 5 alone
        tokenizer["additional_special_tokens"] = tokenizer.pop("extra_special_tokens")
    _write(folder / OF_SENTENCES[0], {"do_lower_case": False} | sentences)
    _write(folder / "tokenizer_config.json", tokenizer)


def _without_new_keys(config: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in config.items() if name not in SINCE_VERSION_6}


def _change(path: Path, values: dict[str, object]) -> None:
    _write(path, json_object(path) | values)


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False), encoding="utf-8")


def modules_without_weights(folder: Path) -> list[str]:
    """Return the paths of modules with own weights but no safetensors file."""
    paths = [module["path"] for module in modules(folder)[1:] if _kind(module) in ("Dense", "WeightedLayerPooling")]
    return [path for path in paths if not os.path.lexists(folder / path / "model.safetensors")]


def _pooling_mode(folder: Path, found: list[dict[str, str]]) -> str | None:
    for module in found:
        if module["type"].endswith("Pooling") and not module["type"].endswith("LayerPooling"):
            config = json_object(folder / module["path"] / "config.json")
            legacy = [name for name, chosen in config.items() if name.startswith("pooling_mode_") and chosen]
            mode = config.get("pooling_mode") or ",".join(legacy).replace("pooling_mode_", "").replace("_tokens", "").replace("_token", "")
            return ",".join(map(str, mode)) if isinstance(mode, list) else str(mode)
    return None


def _json(path: Path, *, default: object) -> object:
    return read_json(path, remedy=REMEDY, kind=EncoderError) if os.path.lexists(path) else default


MODEL_TYPE = "nomic_bert"
# Nomic's name -> transformers'. Positions are left out: without scaling both compute the table of 2,048.
SAME_AS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "embd_pdrop": "hidden_dropout_prob",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
}
# Nomic's name -> what transformers' class always computes.
FIXED: dict[str, object] = {
    "activation_function": "swiglu",
    "prenorm": False,
    "parallel_block": False,
    "causal": False,
    "use_rms_norm": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
}


def other_word(config: Mapping[str, object]) -> str | None:
    """Return the first key of a config.json whose value differs from what is always computed; None if there is none."""
    return next((name for name, value in FIXED.items() if config.get(name, value) != value), None)


def check_released_words(config: PreTrainedConfig, folder: Path) -> None:
    """Raise EncoderError if sizes under Nomic's names differ from those computed; call it before changing the configuration."""
    if config.model_type != MODEL_TYPE:
        return
    computed = {name: getattr(config, other) for name, other in SAME_AS.items()}
    computed["rotary_emb_base"] = config.rope_parameters["rope_theta"]
    for name, value in computed.items():
        found = getattr(config, name, value)
        if found != value:
            raise EncoderError(
                where=f"encoder {folder}/config.json: {name}",
                found=f"{found!r}, which transformers reads under another name and computes as {value!r}",
                expected="the architecture of nomic-embed-text-v1",
                remedy="Take that one or v1.5; where sizes differ, write them under transformers' names: "
                + ", ".join(dict.fromkeys(SAME_AS.values()))
                + ".",
            )


ADAPTERS = "adapter_config.json"
_ANOTHER = "Use another checkpoint, e.g. a BERT, MPNet or ModernBERT."


class Refusal(NamedTuple):
    """What is wrong with a checkpoint, and the remedy."""

    found: str
    remedy: str = _ANOTHER


def check_can_embed(folder: Path, *, where: str) -> None:
    """Raise EncoderError for a checkpoint whose files show that its embeddings would be wrong here."""
    refusal = why_refused(json_object(folder / "config.json")) or _of_adapters(folder)
    if refusal is not None:
        raise EncoderError(
            where=where, found=refusal.found, expected="an encoder that embeds each sentence independently", remedy=refusal.remedy
        )


def why_refused(config: Mapping[str, object]) -> Refusal | None:
    """Return what is wrong with an encoder of this config.json, else None. Missing keys have the family's defaults."""
    family = name_of(config)
    if reason := family_of(config).refused:
        return Refusal(f"a {family}: {reason}")
    if family == "mobilebert" and config.get("trigram_input", True):
        return Refusal("a mobilebert with trigram_input, whose last token reads the padding")
    if family == "big_bird" and config.get("attention_type", "block_sparse") != "original_full":
        return Refusal(
            "a big_bird with attention in blocks, which depend on the longest sentence of a batch",
            'Write "attention_type": "original_full" into a copy of its config.json; the weights are the same.',
        )
    if family == "xmod" and config.get("default_language") is None:
        return Refusal(
            "an xmod without default_language, which selects one of its adapters",
            f'Write "default_language": "en_XX", or another of {brief(config.get("languages", []))}, into a copy of its config.json.',
        )
    if family == "opt" and config.get("word_embed_proj_dim", config.get("hidden_size")) != config.get("hidden_size"):
        return Refusal(f"an opt whose embeddings have word_embed_proj_dim={config['word_embed_proj_dim']}, not the width of its layers")
    return _of_positions(family, config) or _of_own_code(family, config)


def _of_positions(family: str, config: Mapping[str, object]) -> Refusal | None:
    kind = config.get("position_embedding_type")
    if kind in (None, "absolute") or not family_of(config).has_one_kind_of_positions:
        return None
    return Refusal(
        f"a {family} with position_embedding_type={brief(kind)}, which transformers computes as if it were absolute",
        "Use a checkpoint of a family in transformers, e.g. jinaai/jina-embeddings-v3-hf for jina-embeddings-v3.",
    )


def _of_own_code(family: str, config: Mapping[str, object]) -> Refusal | None:
    if family == "new":
        return Refusal(
            'the model_type "new", whose code comes with the checkpoint and never runs here',
            "Use the same weights with transformers' model_type gte, e.g. alibaba-nlp-community/gte-multilingual-base.",
        )
    if family == MODEL_TYPE and (name := other_word(config)) is not None:
        return Refusal(
            f"a {family} with {name}={brief(config[name])}, which transformers computes as {FIXED[name]!r}",
            "Use nomic-embed-text-v1 or v1.5.",
        )
    return None


def _of_adapters(folder: Path) -> Refusal | None:
    """Refuse adapters beside the weights, or in subfolders for a family that uses them."""
    places = [folder / ADAPTERS]
    if json_object(folder / "config.json").get("model_type") == "jina_embeddings_v3":
        places = [*places, *sorted(folder.glob(f"*/{ADAPTERS}"))]
    found = next((path for path in places if os.path.lexists(path)), None)
    if found is None:
        return None
    return Refusal(
        f"adapters ({found.relative_to(folder)}), which are not read: embeddings would be the base model's",
        "Load it with peft, merge the adapter of your task (`merge_and_unload`) and save; for the base alone save it without adapters.",
    )
