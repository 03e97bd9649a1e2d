"""Write an encoder as a folder that sentence-transformers and transformers load, with its model card.

The folder holds what is used at test: the head of `cls_mlp` and `mean_dense` as a Dense module, none for `cls_mlp_train_only`.
A Normalize module comes last if the base checkpoint has one, so that dot products work as with the base.
`SentenceEncoder` itself never normalizes: losses and cosines read the pooled embeddings.
It is written by sentence-transformers 6.2, then converted to the layout that older versions read, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from huggingface_hub.repocard import metadata_load
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, modeling_utils
from yaml import YAMLError

from sentdist.families import POOLINGS
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, INSTRUCTORS, OF_SENTENCES, Checkpoint, json_object
from sentdist.learning.encoder.pooling import PoolingHead


def language_of(folder: Path) -> tuple[str, ...]:
    """Return the languages on the card in an encoder's folder; empty without any, or if the card cannot be read."""
    try:
        found = (metadata_load(folder / "README.md") or {}).get("language")
    except (OSError, ValueError, YAMLError):
        return ()
    return tuple(one for one in (found if isinstance(found, list) else [found]) if isinstance(one, str))


def write_folder(
    path: Path,
    *,
    model: PreTrainedModel,
    pooler: nn.Module | None,
    tokenizer: PreTrainedTokenizerBase,
    pooling: str,
    head: PoolingHead | None,
    max_length: int,
    normalize: bool,
    base_model: str,
    language: Sequence[str],
) -> None:
    """Write the folder `path`: weights (float32 safetensors), configuration, tokenizer, modules and sentence-transformers' model card.

    pooler: the model's unused pooler, restored so that AutoModel finds every weight it expects.
    """
    # seconds to import, and needed only when something is saved
    from sentence_transformers import SentenceTransformer, SentenceTransformerModelCardData
    from sentence_transformers.base.modules.transformer import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    with TemporaryDirectory() as plain:
        _save_plain(Path(plain), model, pooler, tokenizer, all_layers=POOLINGS[pooling].layers is not None)
        transformer = Transformer(plain, model_kwargs={"dtype": torch.float32}, max_seq_length=max_length)
    transformer.model.config._name_or_path = base_model
    saved = SentenceTransformer(
        modules=[transformer, *_pooling_modules(model, pooling, head), *([Normalize()] if normalize else [])],
        device="cpu",
        similarity_fn_name="cosine",
        model_card_data=SentenceTransformerModelCardData(language=list(language), local_files_only=True, generate_widget_examples=False),
    )
    with no_wrappers():
        saved.save_pretrained(str(path))
    write_classic(path, max_length)


def _save_plain(
    folder: Path, model: PreTrainedModel, pooler: nn.Module | None, tokenizer: PreTrainedTokenizerBase, *, all_layers: bool
) -> None:
    state = dict(model.state_dict())
    if pooler is not None:
        state |= {f"pooler.{name}": weight for name, weight in pooler.state_dict().items()}
    before = model.config.output_hidden_states
    model.config.output_hidden_states = all_layers  # sentence-transformers reads it to hand all layers to WeightedLayerPooling
    try:
        with no_wrappers():
            model.save_pretrained(folder, state_dict=state)
    finally:
        model.config.output_hidden_states = before
    tokenizer.save_pretrained(folder)


@contextmanager
def no_wrappers() -> Iterator[None]:
    """Let transformers save models as they are; it would import DeepSpeed to look for its wrapper, in 2.3 s."""
    unwrap = modeling_utils.unwrap_model
    modeling_utils.unwrap_model = lambda model, recursive=False: model
    try:
        yield
    finally:
        modeling_utils.unwrap_model = unwrap


def _pooling_modules(model: PreTrainedModel, pooling: str, head: PoolingHead | None) -> list[nn.Module]:
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    width, num_layers = int(model.config.hidden_size), int(model.config.num_hidden_layers)
    known, modules = POOLINGS[pooling], list[nn.Module]()
    if known.layers is not None:
        weights = torch.zeros(num_layers)
        for number in known.layers(num_layers):
            weights[number - 1] += 1.0
        modules.append(
            WeightedLayerPooling(
                width, num_hidden_layers=num_layers, layer_start=1, layer_weights=nn.Parameter(weights, requires_grad=False)
            )
        )
    modules.append(Pooling(width, pooling_mode=known.reduction.mode))
    if known.gives_dense:
        assert head is not None, "the encoder is constructed with its head"
        dense = Dense(width, head.dense.out_features, bias=head.dense.bias is not None, activation_function=head.activation)
        dense.linear.load_state_dict(head.dense.state_dict())
        modules.append(dense)
    return modules


# Keys of modules that sentence-transformers write since version 6; version 5 fails on them.
SINCE_VERSION_6 = (
    "transformer_task", "modality_config", "processing_kwargs", "unpad_inputs", "module_input_name", "module_output_name",
    "embedding_dimension", "pooling_mode",
)  # fmt: skip
POOLING_FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "lasttoken": "pooling_mode_lasttoken"}


def write_classic(folder: Path, max_length: int | None) -> None:
    """Rewrite a sentence-transformers folder in the layout from before version 6, which version 6 and text-embeddings-inference read, too.

    max_length: tokens of a sentence; None: as the folder declares.
    """
    found = Checkpoint.open(folder)
    kinds = [
        {**module, "type": f"sentence_transformers.models.{known.kind}"}
        for module, known in zip(json.loads((folder / "modules.json").read_text()), found.modules, strict=True)
    ]
    _write(folder / "modules.json", kinds)
    for module in found.modules[1:]:
        config = dict(module.config)
        if module.kind == "Pooling" and "pooling_mode" in config:
            config |= {flag: config["pooling_mode"] == mode for mode, flag in POOLING_FLAGS.items()}
        if "embedding_dimension" in config:
            config["word_embedding_dimension"] = config["embedding_dimension"]
        if config:
            _write(module.folder / "config.json", _without_new_keys(config))
    sentences, tokenizer = _without_new_keys(found.sentences), json_object(folder / "tokenizer_config.json")
    if (length := max_length or found.most_tokens) is not None:
        sentences["max_seq_length"] = tokenizer["model_max_length"] = length
    if tokenizer.get("tokenizer_class") == "TokenizersBackend":  # transformers 5 alone knows the name; the other one both versions
        tokenizer = {"model_input_names": ["input_ids", "attention_mask"]} | tokenizer | {"tokenizer_class": "PreTrainedTokenizerFast"}
    if isinstance(tokenizer.get("extra_special_tokens"), list):  # also known to transformers 5 alone
        tokenizer["additional_special_tokens"] = tokenizer.pop("extra_special_tokens")
    _write(folder / OF_SENTENCES[0], {"do_lower_case": False} | sentences)
    _write(folder / "tokenizer_config.json", tokenizer)


def keep_prompts(folder: Path, copy: Path, *, name: str) -> None:
    """Make sentence-transformers use and pool prompts with `copy` as with `folder`; name: the user's, on which behaviour may depend."""
    of, copied = Checkpoint.open(folder), Checkpoint.open(copy)
    if (copied.prompts, copied.default_prompt) != (of.prompts, of.default_prompt):
        prompts = {"prompts": dict(of.prompts), "default_prompt_name": of.default_prompt}
        _write(copy / CONFIG_OF_PROMPTS, json_object(copy / CONFIG_OF_PROMPTS) | prompts)
    if name in INSTRUCTORS and copied.pooling == of.pooling:
        for module in copied.modules_of("Pooling"):
            _write(module.folder / "config.json", {**module.config, "include_prompt": False})


def _without_new_keys(config: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in config.items() if name not in SINCE_VERSION_6}


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False), encoding="utf-8")
