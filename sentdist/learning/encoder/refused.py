"""Checkpoints that would be loaded and whose embeddings would be wrong, by what their files say. Without torch: planning asks, too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sentdist.errors import EncoderError, brief
from sentdist.families import family_of, name_of
from sentdist.learning.encoder.declared import json_object
from sentdist.learning.encoder.nomic import FIXED, MODEL_TYPE, other_word

ADAPTERS = "adapter_config.json"
_ANOTHER = "Take another checkpoint, such as a BERT's, MPNet's or ModernBERT's."


class Refusal(NamedTuple):
    """What is wrong with a checkpoint, and what to do."""

    found: str
    remedy: str = _ANOTHER


def check_can_embed(folder: Path, *, where: str) -> None:
    """EncoderError for a checkpoint whose files say that its embeddings would be wrong here."""
    refusal = why_refused(json_object(folder / "config.json")) or _of_adapters(folder)
    if refusal is not None:
        raise EncoderError(
            where=where, found=refusal.found, expected="an encoder whose embedding of a sentence is its own alone", remedy=refusal.remedy
        )


def why_refused(config: Mapping[str, object]) -> Refusal | None:
    """What is wrong with an encoder of this config.json; None where nothing is. What a file leaves out is the family's default."""
    family = name_of(config)
    if reason := family_of(config).refused:
        return Refusal(f"a {family}: {reason}")
    if family == "mobilebert" and config.get("trigram_input", True):
        return Refusal("a mobilebert with trigram_input, whose last token reads what pads a sentence")
    if family == "big_bird" and config.get("attention_type", "block_sparse") != "original_full":
        return Refusal(
            "a big_bird with attention in blocks, which depend on the longest sentence of a batch",
            'Write "attention_type": "original_full" into a copy of its config.json; it has the same weights.',
        )
    if family == "xmod" and config.get("default_language") is None:
        return Refusal(
            "an xmod without default_language, which has an adapter for each language and cannot know which",
            f'Write "default_language": "en_XX", or another of {brief(config.get("languages", []))}, into a copy of its config.json.',
        )
    if family == "opt" and config.get("word_embed_proj_dim", config.get("hidden_size")) != config.get("hidden_size"):
        return Refusal(f"an opt whose vectors have word_embed_proj_dim={config['word_embed_proj_dim']}, not the width of its layers")
    return _of_positions(family, config) or _of_own_code(family, config)


def _of_positions(family: str, config: Mapping[str, object]) -> Refusal | None:
    kind = config.get("position_embedding_type")
    if kind in (None, "absolute") or not family_of(config).has_one_kind_of_positions:
        return None
    return Refusal(
        f"a {family} with position_embedding_type={brief(kind)}, which transformers computes as if it were absolute",
        "Take a checkpoint that transformers has as a family of its own, such as jinaai/jina-embeddings-v3-hf for jina-embeddings-v3.",
    )


def _of_own_code(family: str, config: Mapping[str, object]) -> Refusal | None:
    if family == "new":
        return Refusal(
            'the model_type "new", whose code came with the checkpoint and never runs here',
            "Take the same weights as transformers has them, with the model_type gte, such as alibaba-nlp-community/gte-multilingual-base.",
        )
    if family == MODEL_TYPE and (name := other_word(config)) is not None:
        return Refusal(
            f"a {family} with {name}={brief(config[name])}, which transformers computes as {FIXED[name]!r}",
            "Take nomic-embed-text-v1 or v1.5.",
        )
    return None


def _of_adapters(folder: Path) -> Refusal | None:
    """Adapters beside the weights; in folders of their own where a family is made for them."""
    places = [folder / ADAPTERS]
    if json_object(folder / "config.json").get("model_type") == "jina_embeddings_v3":
        places = [*places, *sorted(folder.glob(f"*/{ADAPTERS}"))]
    found = next((path for path in places if os.path.lexists(path)), None)
    if found is None:
        return None
    return Refusal(
        f"adapters ({found.relative_to(folder)}), which are not read: embeddings would be the base model's",
        "Load it with peft, merge the adapter of your task (`merge_and_unload`) and save that; for the base alone save it without.",
    )
