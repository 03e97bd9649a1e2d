"""What the JSON files of an encoder's folder declare, read once as a `Checkpoint`. Does not import torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from sentdist.errors import EncoderError, brief
from sentdist.families import POOLINGS, Family, Pooling, configured, family_of, name_of
from sentdist.files import read_json, read_json_object

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
ADAPTERS = "adapter_config.json"
# Classes of tokenizers that know no mask token but that of the files.
CLASSES_WITHOUT_MASK = ("PreTrainedTokenizerFast", "TokenizersBackend", "T5Tokenizer", "T5TokenizerFast")


class Module(NamedTuple):
    """A module of sentence-transformers: its class, folder and config.json."""

    kind: str
    folder: Path
    config: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """An encoder's folder. Values of files that it lacks are empty."""

    folder: Path
    config: Mapping[str, object]  # config.json
    tokenizer: Mapping[str, object]  # tokenizer_config.json, with the special tokens of older folders
    modules: tuple[Module, ...]  # of modules.json, the transformer first; empty for a plain checkpoint
    sentences: Mapping[str, object]  # "max_seq_length" and "do_lower_case" of sentence-transformers
    prompts: Mapping[str, str]  # of sentence-transformers, name -> text
    default_prompt: str | None  # its name
    similarity: str | None  # function of sentence-transformers: "cosine", "dot" …

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read the folder's JSON files; EncoderError if one is damaged."""
        of_sentences = next((name for name in OF_SENTENCES if os.path.lexists(folder / name)), OF_SENTENCES[0])
        tokenizer = json_object(folder / "tokenizer_config.json")
        if "added_tokens_decoder" not in tokenizer:  # newer files hold all of it; of older ones transformers reads this beside them
            tokenizer = json_object(folder / "special_tokens_map.json") | tokenizer
        whole = json_object(folder / CONFIG_OF_PROMPTS)
        prompts, default, similarity = whole.get("prompts") or {}, whole.get("default_prompt_name"), whole.get("similarity_fn_name")
        if not isinstance(prompts, dict) or not all(text is None or isinstance(text, str) for text in prompts.values()):
            raise EncoderError(
                where=f"{folder / CONFIG_OF_PROMPTS}: prompts", found=brief(prompts), expected="names with their texts", remedy=REMEDY
            )
        return cls(
            folder=folder,
            config=json_object(folder / "config.json"),
            tokenizer=tokenizer,
            modules=_modules(folder),
            sentences=json_object(folder / of_sentences),
            prompts={name: text or "" for name, text in prompts.items()},
            default_prompt=None if default is None else str(default),
            similarity=None if similarity is None else str(similarity),
        )

    @property
    def family(self) -> Family:
        return family_of(self.config)

    @property
    def is_normalized(self) -> bool:
        """Whether sentence-transformers give embeddings of length 1: the last module is Normalize."""
        return len(self.modules) > 1 and self.modules[-1].kind == "Normalize"

    @property
    def pooling_mode(self) -> str | None:
        """The mode of the module Pooling, under its old or new key."""
        for module in self.modules_of("Pooling"):
            flags = [name.removeprefix("pooling_mode_") for name in module.config if name.startswith("pooling_mode_")]
            chosen = [flag.removesuffix("_tokens").removesuffix("_token") for flag in flags if module.config[f"pooling_mode_{flag}"]]
            mode = module.config.get("pooling_mode") or chosen
            return ",".join(map(str, mode)) if isinstance(mode, list) else str(mode)
        return None

    @cached_property
    def pooling(self) -> str | None:
        """The pooling that the folder declares; None for a plain checkpoint; EncoderError for modules that are not supported."""
        kinds = tuple(module.kind for module in self.modules[1 : -1 if self.is_normalized else None])  # cosine does not see Normalize
        known = (one for one in POOLINGS.values() if one.in_folder and one.modules == (kinds, self.pooling_mode))
        pooling = next((one.name for one in known if self.computes_like(one)), None)
        if self.modules and pooling is None:
            shown = ", ".join(f"{module.kind} {brief(dict(module.config))}" for module in self.modules[1:])
            raise EncoderError(
                where=f"encoder {self.folder}/modules.json",
                found=f"the modules {shown}",
                expected=", ".join(one.in_folder for one in POOLINGS.values() if one.in_folder),
                remedy="Name a pooling yourself to use only the transformer of this checkpoint.",
            )
        return pooling

    @property
    def dense_width(self) -> int | None:
        """The output width of its dense layer; None if it has none, or several."""
        dense = self.modules_of("Dense")
        width = dense[0].config.get("out_features") if len(dense) == 1 else None
        return width if isinstance(width, int) else None

    @property
    def most_tokens(self) -> int | None:
        """The maximum tokens of a sentence by the files alone; None if they do not specify it."""
        declared = self.sentences.get("max_seq_length") or self.tokenizer.get("model_max_length")
        positions = configured(self.config, "num_positions")
        return tokens_within(self.family, positions=positions, padding=self.config.get("pad_token_id", 1), declared=declared)

    @property
    def lacks_mask_token(self) -> bool:
        """Whether the tokenizer's files specify no mask token; False if that depends on the tokenizer's class."""
        is_told = "mask_token" in self.tokenizer or self.tokenizer.get("tokenizer_class") in CLASSES_WITHOUT_MASK
        return is_told and not self.tokenizer.get("mask_token")

    @property
    def prompts_left_out(self) -> str:
        """A sentence on prompts that sentence-transformers add, always or on request, and sentdist does not; "" without any."""
        texts = {name: text for name, text in self.prompts.items() if text}
        if not texts:
            return ""
        if self.default_prompt in texts:
            default = brief(texts[self.default_prompt])
            return f"sentence-transformers put {default} before every sentence; here none is added: write it before them."
        shown = ", ".join(f"{name} {brief(text)}" for name, text in list(texts.items())[:2])
        more = ", …" if len(texts) > 2 else ""
        return f"it has prompts for sentence-transformers ({shown}{more}); here none is added: write yours before the sentences."

    @property
    def ranks_otherwise(self) -> str:
        """The similarity of sentence-transformers for these embeddings if it ranks them differently from cosines; else ""."""
        ranks = self.similarity == "manhattan" or (self.similarity in ("dot", "euclidean") and not self.is_normalized)
        return str(self.similarity) if ranks else ""

    def modules_of(self, kind: str) -> list[Module]:
        """Return its modules of this class."""
        return [module for module in self.modules if module.kind == kind]

    def computes_like(self, pooling: Pooling) -> bool:
        """Whether its dense layer and its mean of layers, if any, are of the kind that this pooling has."""
        for module in self.modules_of("Dense"):
            is_activated = str(module.config.get("activation_function")).endswith(f".{pooling.dense.activation}")
            # a layer that is dropped at test leaves the width
            has_size = pooling.gives_dense or module.config.get("in_features") == module.config.get("out_features")
            if not is_activated or not has_size or module.config.get("use_residual"):
                return False
        return all(module.config.get("layer_start") == 1 for module in self.modules_of("WeightedLayerPooling"))

    def leaves_prompt_out(self, name: str) -> bool:
        """Whether sentence-transformers exclude the prompt from pooling, never so with the last token. name: as the user gave it."""
        asks = any(module.config.get("include_prompt") is False for module in self.modules_of("Pooling"))
        return (asks or name in INSTRUCTORS) and self.pooling_mode != "lasttoken"

    def check_can_embed(self, *, where: str) -> None:
        """Raise EncoderError if the files show that embeddings would be wrong here."""
        refusal = self._refusal()
        if refusal is not None:
            raise EncoderError(
                where=where, found=refusal[0], expected="an encoder that embeds each sentence independently", remedy=refusal[1]
            )

    def _refusal(self) -> tuple[str, str] | None:
        """Return what is wrong and the remedy."""
        name, positions = name_of(self.config), self.config.get("position_embedding_type")
        if self.family.refused:
            return f"a {name}: {self.family.refused}", "Use another checkpoint, e.g. a BERT, MPNet or ModernBERT."
        if self.family.has_one_kind_of_positions and positions not in (None, "absolute"):
            return (
                f"a {name} with position_embedding_type={brief(positions)}, which transformers computes as if it were absolute",
                "Use a checkpoint of a family in transformers, e.g. jinaai/jina-embeddings-v3-hf for jina-embeddings-v3.",
            )
        of_tasks = self.folder.glob(f"*/{ADAPTERS}") if name == "jina_embeddings_v3" else ()
        found = next((path for path in (self.folder / ADAPTERS, *of_tasks) if os.path.lexists(path)), None)
        if found is None:
            return None
        return (
            f"adapters ({found.relative_to(self.folder)}), which are not read: embeddings would be the base model's",
            "Load it with peft, merge the adapter of your task (`merge_and_unload`) and save; for the base alone save it without adapters.",
        )


def _modules(folder: Path) -> tuple[Module, ...]:
    path = folder / "modules.json"
    found: Any = read_json(path, remedy=REMEDY, kind=EncoderError) if os.path.lexists(path) else []
    try:
        return tuple(
            Module(one["type"].rsplit(".", 1)[-1], folder / one["path"], json_object(folder / one["path"] / "config.json")) for one in found
        )
    except (TypeError, KeyError, AttributeError):
        raise EncoderError(where=str(path), found=brief(found), expected="a list of modules with type and path", remedy=REMEDY) from None


def json_object(path: Path) -> dict[str, object]:
    """Return the JSON object in a file; empty if the file does not exist."""
    return read_json_object(path, expected="a JSON object", remedy=REMEDY, kind=EncoderError) if os.path.lexists(path) else {}


def tokens_within(family: Family, *, positions: int | None, padding: object, declared: object) -> int | None:
    """Return the maximum tokens of a sentence: as declared, at most the positions; the family's pretraining length if both are missing."""
    if positions is not None and family.positions == "table_behind_padding":
        positions -= 1 + (padding if isinstance(padding, int) else 0)
    limits = [declared] if family.positions == "distances" else [positions, declared]
    lengths = (int(limit) for limit in limits if isinstance(limit, int | float) and 1 <= limit < 1 << 31)  # XLNet has -1 positions
    return min(lengths, default=family.most_tokens)
