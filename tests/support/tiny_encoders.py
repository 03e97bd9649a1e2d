"""Checkpoints made on the spot: tiny random encoders with a small vocabulary, and one whose right answers are known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.models.t5 import T5Config, T5ForConditionalGeneration, T5Tokenizer

from sentdist.families import FAMILIES, OTHER
from sentdist.learning.encoder.pretrained import auto_class
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import no_wrappers

WORDS = [
    "a",
    "the",
    "man",
    "woman",
    "child",
    "dog",
    "cat",
    "bird",
    "house",
    "garden",
    "street",
    "music",
    "guitar",
    "food",
    "water",
    "red",
    "green",
    "old",
    "young",
    "small",
    "big",
    "eats",
    "drinks",
    "plays",
    "runs",
    "sleeps",
    "sings",
    "reads",
    "walks",
    "sees",
    "finds",
    "likes",
    "in",
    "on",
    "under",
    "near",
    "with",
    "and",
    "not",
    "never",
    "quickly",
    "slowly",
    "loudly",
    "today",
    "tomorrow",
    "one",
    "two",
    "three",
    "many",
]
SENTENCES = (
    "a man plays the guitar in the old house",
    "the dog runs quickly",
    "two birds",
    "a young woman reads near the green garden and a child sleeps on the big red street under many old houses today",
    "music",
    "the cat never sees the small bird in the garden",
    "a child drinks water and eats food with the old man",
    "one man walks slowly",
)
WIDTH = 32
MAX_POSITIONS = 40
# What makes a tiny encoder of a family one that runs: dropout where its default is none, scores without a bound, a language.
OWN_SETTINGS: dict[str, dict[str, object]] = {
    "albert": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "gemma2": {"attn_logit_softcapping": None},
    "xmod": {"languages": ["en_XX", "de_DE"], "default_language": "de_DE"},
}
HALVES_CALL = {  # what others call otherwise
    "hidden_size": "d_model", "intermediate_size": "d_ff", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers",
}  # fmt: skip


def tiny_encoder(folder: Path, family: str, *, seed: int = 0, **settings: object) -> Path:
    """Write a 2-layer random encoder of `family` (width 32, 4 heads, dropout 0.1) and its tokenizer into `folder`."""
    tokenizer = word_tokenizer(offset_positions=FAMILIES.get(family, OTHER).positions == "table_behind_padding")
    config = _tiny_config(family, tokenizer, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto_class(config).from_config(config)
        for name, weight in model.named_parameters():
            if weight.dim() > 1:  # larger than the usual 0.02: two layers then change the embeddings visibly
                torch.nn.init.normal_(weight, std=0.25 if "embedding" in name else 0.15)
    with no_wrappers():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_vectors(encoder: torch.nn.Module) -> None:
    """Move biases from 0 and norms' weights from 1, where a new encoder has them and a test would not see that one is left out."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator).mul(0.2).to(parameter.device))


def _tiny_config(family: str, tokenizer: PreTrainedTokenizerFast, **settings: object) -> PreTrainedConfig:
    common: dict[str, object] = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": MAX_POSITIONS,
    }
    if FAMILIES.get(family, OTHER).is_read_without_decoder:  # heads that are wider than the width, all together
        common.pop("max_position_embeddings")
        own = {"d_model": WIDTH, "d_kv": 12, "d_ff": 2 * WIDTH, "num_layers": 2, "num_heads": 4, "eos_token_id": 2}
        settings = {HALVES_CALL.get(name, name): value for name, value in settings.items()}
    elif family == "distilbert":
        own = {"dim": WIDTH, "hidden_dim": 2 * WIDTH, "n_layers": 2, "n_heads": 4}
    else:
        own = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
    if FAMILIES.get(family, OTHER).is_decoder:
        own |= {"num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}
        common["vocab_size"] = len(tokenizer) + 8  # their tokenizers add tokens of their own
    if family in ("electra", "albert"):
        own["embedding_size"] = WIDTH
    return AutoConfig.for_model(family, **common | own | OWN_SETTINGS.get(family, {}) | settings)


def word_tokenizer(*, offset_positions: bool = False, words: tuple[str, ...] = tuple(WORDS)) -> PreTrainedTokenizerFast:
    """One token a word, [CLS] and [SEP] around the sentence; RoBERTa's kind has its padding token at 1."""
    special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"] if offset_positions else ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocabulary = {token: index for index, token in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=MAX_POSITIONS - 2 if offset_positions else MAX_POSITIONS,
    )


def planted_encoder(folder: Path, *, words: tuple[str, ...] = tuple(WORDS)) -> Path:
    """Write a BERT whose mean-pooled embedding is known: the sentence's bag of words, standardized.

    One axis a token, no positions, and layers whose attention and feed-forward outputs are zero:
    every token state stays the layer norm of its axis, so the cosine of two sentences is a function of the words they share,
    with [CLS] and [SEP] shared by all.
    """
    tokenizer = word_tokenizer(words=words)
    width = 4 * -(-len(tokenizer) // 4)
    config = _tiny_config("bert", tokenizer, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.hidden_size = width
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        model.embeddings.word_embeddings.weight.copy_(torch.eye(len(tokenizer), width))
    with no_wrappers():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_writer(folder: Path) -> Path:
    """Write a random T5 of 2 layers over the words above into `folder`:
    it answers any sentence with words drawn by chance, and ends at [SEP]."""
    tokenizer = word_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        pad_token_id=0, decoder_start_token_id=0, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = T5ForConditionalGeneration(config)
    with no_wrappers():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def released_t5(folder: Path, *, dense_width: int = WIDTH, **settings: object) -> Path:
    """Write a random encoder as sentence-t5 and gtr-t5 are released: T5's own tokenizer, which puts no token before a sentence, Pooling,
    Dense without bias, and Normalize; dropout 0.1. With a decoder and a head beside its weights, as T5 1.1 has them."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -9.0), *((f"▁{word}", -3.0) for word in WORDS), ("s", -4.0)]
    tokenizer = T5Tokenizer(vocab=pieces, extra_ids=2, model_max_length=512)
    small = {"d_model": WIDTH, "d_kv": 12, "d_ff": 2 * WIDTH, "num_layers": 2, "num_heads": 4}
    config = T5Config(
        **{"vocab_size": len(tokenizer) + 8, **small, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, **settings}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = T5ForConditionalGeneration(config)
        for weight in model.parameters():
            torch.nn.init.normal_(weight, mean=1.0 if weight.dim() == 1 else 0.0, std=0.3)
        dense = Dense(WIDTH, dense_width, bias=False, activation_function=torch.nn.Identity())
    with no_wrappers():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
    _write_modules(folder, kinds)
    Pooling(WIDTH, pooling_mode="mean").save(str(folder / "1_Pooling"))
    dense.save(str(folder / "2_Dense"))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256, "do_lower_case": False}))
    return folder


def _write_modules(folder: Path, kinds: dict[str, str]) -> None:
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kinds[path]}"} for n, path in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for path in kinds:
        (folder / path).mkdir(exist_ok=True)


def declares_cls(encoder: Path, folder: Path) -> Path:
    """A copy of an encoder that says, as sentence-transformers has it, that it was made with the first token's vector."""
    shutil.copytree(encoder, folder)
    _write_modules(folder, {"": "Transformer", "1_Pooling": "Pooling"})
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    return folder


def normalized_encoder(encoder: Path, folder: Path) -> Path:
    """An encoder as a sentence-transformers folder that ends in Normalize."""
    whole = SentenceEncoder.load(encoder)
    whole.is_exported_normalized = True
    whole.save(folder, base_model="tiny")
    return folder
