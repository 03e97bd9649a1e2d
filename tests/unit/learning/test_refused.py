"""Checkpoints whose embeddings would be wrong are refused, with what to do, by loading and while planning alike; and rightly so."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from sentdist.errors import EncoderError
from sentdist.families import FAMILIES, FLAT_FAMILIES, families_where, family_of
from sentdist.learning.encoder.declared import tokens_within, why_refused
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_encoders import SENTENCES, tiny_encoder, word_tokenizer

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 40}
FUNNEL = {"architectures": ["FunnelModel"], "block_sizes": [1, 1], "d_model": 32, "d_inner": 64, "n_head": 4, "d_head": 8}
# What one would write, and what is said of it.
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "convolutions": ({"model_type": "convbert"}, "a convbert: its convolutions read what pads a sentence"),
    "trigrams": ({"model_type": "mobilebert"}, "a mobilebert with trigram_input"),
    "blocks": ({"model_type": "big_bird", "attention_type": "block_sparse"}, "original_full"),
    "blocks by default": ({"model_type": "big_bird"}, "original_full"),
    "a language": ({"model_type": "xmod", "languages": ["en_XX", "de_DE"]}, "without default_language.*'de_DE'"),
    "another width": ({"model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512}, "word_embed_proj_dim=512"),
    "distances": ({"model_type": "bert", "position_embedding_type": "relative_key"}, "a bert with position_embedding_type='relative_key'"),
    "Jina v2": ({"model_type": "bert", "position_embedding_type": "alibi"}, "computes as if it were absolute"),
    "Jina v3's code": ({"model_type": "xlm-roberta", "position_embedding_type": "rotary"}, "jinaai/jina-embeddings-v3-hf"),
    "GTE's code": ({"model_type": "new", "position_embedding_type": "rope"}, "model_type gte"),
    "Nomic v2": ({"model_type": "nomic_bert", "activation_function": "gelu"}, "activation_function='gelu'.*'swiglu'"),
    "many kinds of input": ({"model_type": "embedding_gemma2"}, "images and sound"),
}
COMPUTED: dict[str, dict[str, object]] = {
    "nothing": {},
    "one token at a time": {"model_type": "mobilebert", "trigram_input": False},
    "whole attention": {"model_type": "big_bird", "attention_type": "original_full"},
    "a language": {"model_type": "xmod", "default_language": "en_XX"},
    "one width": {"model_type": "opt", "hidden_size": 768},
    "a table": {"model_type": "bert", "position_embedding_type": "absolute"},
    "a word that its family never read": {"model_type": "gte", "position_embedding_type": "rope"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_loading_and_planning_say_the_same(name: str, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    config, reported = REFUSED[name]
    folder = tmp_path / "encoder"
    folder.mkdir()
    for file in tiny_encoder_dir.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError, match=reported) as loading:
        SentenceEncoder.load(folder)
    with pytest.raises(EncoderError, match=reported) as planning:
        FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")
    assert planning.value.where.startswith("encoder.checkpoint") and planning.value.remedy == loading.value.remedy


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_right_is_not_refused(name: str) -> None:
    assert why_refused(COMPUTED[name]) is None


@pytest.mark.parametrize("family", sorted(FLAT_FAMILIES))
def test_no_flat_family_is_refused_as_it_is(family: str) -> None:
    assert why_refused(AutoConfig.for_model(family).to_dict()) is None


@pytest.mark.parametrize("place", ["adapter_config.json", "text-matching/adapter_config.json"])
def test_adapters_are_not_left_out_without_a_word(place: str, tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "encoder", "jina_embeddings_v3")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_text("{}")
    with pytest.raises(EncoderError, match=rf"adapters \({place}\), which are not read.*merge_and_unload"):
        SentenceEncoder.load(folder)
    with pytest.raises(EncoderError, match=r"adapters \("):
        FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")


def test_a_copy_of_adapters_beside_whole_weights_is_no_matter(tmp_path: Path) -> None:
    """As beside e5-mistral's."""
    folder = tiny_encoder(tmp_path / "encoder", "mistral")
    (folder / "lora").mkdir()
    (folder / "lora/adapter_config.json").write_text("{}")
    assert SentenceEncoder.load(folder).is_flat


def difference_beside_padding(family: str, settings: dict[str, object]) -> float:
    """Between the states of a sentence alone and beside a longer one, relative to their size; of transformers' own model."""
    config = AutoConfig.for_model(family, vocab_size=60, pad_token_id=0, **settings)
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.2)
    ids = torch.tensor([[1, 5, 6, 7, 2] + 11 * [0]])
    with torch.no_grad():
        alone = model(input_ids=ids[:, :5], attention_mask=torch.ones(1, 5)).last_hidden_state
        beside = model(input_ids=ids, attention_mask=(ids > 0).long()).last_hidden_state[:, :5]
    return float((alone - beside).norm() / alone.norm())


TWIN = {
    "convbert": SMALL | {"embedding_size": 32},
    "fnet": SMALL,
    "funnel": FUNNEL,
    "yoso": SMALL,
    "mobilebert": SMALL | {"embedding_size": 32, "true_hidden_size": 32, "intra_bottleneck_size": 32, "use_bottleneck": False},
}


@pytest.mark.parametrize("family", TWIN)
def test_transformers_gives_other_states_beside_padding(family: str) -> None:
    """Else a refusal has had its day. The others need lengths of their own to run at all, or draw by chance."""
    assert family == "mobilebert" or FAMILIES[family].refused
    assert difference_beside_padding(family, TWIN[family]) > 0.01


@pytest.mark.parametrize("family", ["bert", "mpnet", "longformer", "deberta-v2", "roformer"])
def test_it_does_not_for_those_that_are_taken(family: str) -> None:
    assert why_refused({"model_type": family}) is None
    assert difference_beside_padding(family, SMALL | ({"attention_window": 4} if family == "longformer" else {})) < 1e-5


@pytest.mark.parametrize("family", families_where(lambda one: one.has_one_kind_of_positions))
def test_transformers_no_longer_reads_another_kind_of_positions(family: str) -> None:
    settings: dict[str, object] = {**SMALL, "vocab_size": 60, "position_embedding_type": "relative_key"}
    weights = AutoModel.from_config(AutoConfig.for_model(family, **settings)).state_dict()
    assert not [name for name in weights if "distance" in name]
    assert why_refused({"model_type": family, "position_embedding_type": "relative_key"}) is not None


@pytest.mark.parametrize("family", sorted({*families_where(lambda one: one.positions == "table_behind_padding"), "bert"} - {"lilt"}))
def test_the_longest_sentence_has_a_position_and_a_longer_one_has_none(family: str) -> None:
    """LiLT's layout needs sizes of its own to run; its table is numbered by RoBERTa's function."""
    own: dict[str, object] = {"longformer": {"attention_window": 4}, "xmod": {"languages": ["en_XX"], "default_language": "en_XX"}}.get(
        family, {}
    )
    own |= {"entity_vocab_size": 10, "entity_emb_size": 8} if family == "luke" else {}
    config = AutoConfig.for_model(family, vocab_size=60, pad_token_id=1, **SMALL, **own)
    model = AutoModel.from_config(config).eval()
    longest = tokens_within(family_of({"model_type": family}), positions=40, padding=1, declared=None)
    assert longest is not None
    with torch.no_grad():
        model(input_ids=torch.full((1, longest), 5), attention_mask=torch.ones(1, longest))
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, longest + 1), 5), attention_mask=torch.ones(1, longest + 1))


def test_every_family_of_the_table_is_one_that_transformers_has() -> None:
    for family in FAMILIES:
        assert AutoConfig.for_model(family).model_type == family


def test_an_encoder_without_a_table_of_positions_takes_what_its_tokenizer_takes(tmp_path: Path) -> None:
    """XLNet says -1."""
    AutoModel.from_config(AutoConfig.for_model("xlnet", vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=64)).save_pretrained(
        tmp_path
    )
    word_tokenizer().save_pretrained(tmp_path)
    encoder = SentenceEncoder.load(tmp_path).eval()
    assert encoder.max_length == 40
    with torch.no_grad():
        together = encoder(encoder.tokenize(SENTENCES))
        alone = torch.cat([encoder(encoder.tokenize([sentence])) for sentence in SENTENCES])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_no_code_of_a_folder_runs_also_where_somebody_says_yes(
    file: str, tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers asks in a terminal whether it may."""
    folder = Path(shutil.copytree(tiny_encoder_dir, tmp_path / "encoder"))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}
    tokenizer = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    (folder / file).write_text(json.dumps(config if file == "config.json" else tokenizer))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    with contextlib.suppress(EncoderError):
        SentenceEncoder.load(folder)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("checkpoint", ["minilm-l6", "folder"])
def test_planning_takes_no_revision_of_what_has_only_one(checkpoint: str, tiny_encoder_dir: Path) -> None:
    name = str(tiny_encoder_dir) if checkpoint == "folder" else checkpoint
    with pytest.raises(EncoderError) as caught:
        FileResolver().encoder(name, revision="../../x", where="encoder.checkpoint")
    assert "../../x" in caught.value.found
