"""`sentdist export`: a folder that sentence-transformers load; what cannot be exported leaves nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.families import POOLINGS
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, INSTRUCTORS, keep_prompts, leaves_prompt_out, named_prompts
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.learning.relation_file import Relations, has_relations, write_relations
from sentdist.plan.specs import EncoderUse
from tests.support.tiny_encoders import SENTENCES, normalized_encoder


def _call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def _by_sentence_transformers(folder: Path) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(list(SENTENCES)))


@pytest.mark.parametrize("pooling", ["mean", "cls", "first_last"])
def test_a_plain_checkpoint_gets_its_pooling_and_a_card(pooling: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    answer = _call("export", tiny_encoder_dir, "--to", tmp_path / "out", "--pooling", pooling)
    assert answer.exit_code == 0, answer.output
    expected = encode(SentenceEncoder.load(tiny_encoder_dir, pooling=pooling), SENTENCES)
    np.testing.assert_allclose(_by_sentence_transformers(tmp_path / "out"), expected, atol=2e-6)
    assert "the weights are those of the base model" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("own_card", "language"),
    [
        (None, None),
        ("---\nlanguage: tr\n---\n# Tiny\n", ["tr"]),
        ("---\nlanguage: [tr, de]\n---\n", ["tr", "de"]),
        ("---\nlanguage: [tr\n---\n", None),
    ],
)
def test_the_card_of_an_untouched_folder_names_no_hub_page_no_training_and_only_its_own_language(
    own_card: str | None, language: list[str] | None, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_encoder_dir, tmp_path / "tinybert")
    if own_card is not None:
        (tmp_path / "tinybert" / "README.md").write_text(own_card)
    monkeypatch.chdir(tmp_path)
    assert _call("export", "tinybert", "--to", "out").exit_code == 0
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.language == language and card.data.base_model is None and card.data.library_name == "sentence-transformers"
    assert "| base model | tinybert |" in card.text and "a [sentence-transformers](https://www.SBERT.net) model. It maps" in card.text
    for invented in ("huggingface.co/tinybert", "finetuned", "Language:** en"):
        assert invented not in card.text
    assert _by_sentence_transformers(tmp_path / "out").shape == (len(SENTENCES), 32)


def test_what_was_trained_is_copied_with_its_card_and_relations(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    trained = tmp_path / "trained"
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    torch.nn.init.normal_(next(encoder.model.parameters()), std=0.3)
    encoder.save(trained, card=EncoderCard(base_model="tiny", objective="relational"))
    write_relations(trained, Relations(names=("twin",), vectors=np.ones((1, 32), dtype=np.float32)))
    (trained / "record.json").write_text(json.dumps({"key": "abc"}))
    assert _call("export", trained, "--to", tmp_path / "out").exit_code == 0
    np.testing.assert_allclose(_by_sentence_transformers(tmp_path / "out"), encode(encoder.eval(), SENTENCES), atol=2e-6)
    assert "relational" in (tmp_path / "out" / "README.md").read_text()
    assert has_relations(tmp_path / "out")
    assert not (tmp_path / "out" / "record.json").exists()


# What sentence-transformers 5 takes; at another key it fails. Of the flags text-embeddings-inference reads those of cls and mean.
FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
BEFORE_6 = {
    "Pooling": {"word_embedding_dimension", "include_prompt", *(f"pooling_mode_{flag}" for flag in FLAGS)},
    "WeightedLayerPooling": {"word_embedding_dimension", "layer_start", "num_hidden_layers"},
    "Dense": {"in_features", "out_features", "bias", "activation_function"},
    "Normalize": set(),
}


@pytest.mark.parametrize("pooling", ["mean", "cls_mlp", "first_last", "last_token"])
def test_an_export_has_the_layout_that_older_versions_and_servers_read(pooling: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = SentenceEncoder.load(normalized_encoder(tiny_encoder_dir, tmp_path / "base"), pooling=pooling, max_length=20).eval()
    encoder.save(tmp_path / "trained", card=EncoderCard(base_model="tiny", objective="info_nce"))
    SentenceTransformer(str(tmp_path / "trained"), device="cpu").save(str(tmp_path / "saved_by_6"))
    for name in ("trained", "saved_by_6"):
        out = tmp_path / f"{name}_out"
        assert _call("export", tmp_path / name, "--to", out).exit_code == 0
        first, *others = json.loads((out / "modules.json").read_text())
        assert first["type"] == "sentence_transformers.models.Transformer"
        for module in others:
            package, _, kind = module["type"].rpartition(".")
            config = json.loads((out / module["path"] / "config.json").read_text())
            assert package == "sentence_transformers.models" and config.keys() <= BEFORE_6[kind]
            if kind == "Pooling":
                modes = [config[f"pooling_mode_{flag}"] for flag in ("cls_token", "mean_tokens", "lasttoken")]
                assert modes == [POOLINGS[pooling].reduction.mode == mode for mode in ("cls", "mean", "lasttoken")]
                assert config["word_embedding_dimension"] == 32
        assert json.loads((out / "sentence_bert_config.json").read_text()) == {"do_lower_case": False, "max_seq_length": 20}
        tokenizer = json.loads((out / "tokenizer_config.json").read_text())
        assert (tokenizer["tokenizer_class"], tokenizer["model_max_length"]) == ("PreTrainedTokenizerFast", 20)
        ours = encode(encoder, SENTENCES)
        np.testing.assert_allclose(_by_sentence_transformers(out), ours / np.linalg.norm(ours, axis=1, keepdims=True), atol=2e-6)


def test_an_encoder_of_length_1_stays_one(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Whoever searches by dot products with the base model goes on so with what is trained of it."""
    base = normalized_encoder(tiny_encoder_dir, tmp_path / "base")
    encoder = SentenceEncoder.load(base).eval()
    encoder.save(tmp_path / "trained", card=EncoderCard(base_model="tiny", objective="info_nce"))
    ours = encode(encoder, SENTENCES)
    lengths = np.linalg.norm(ours, axis=1, keepdims=True)
    assert lengths.min() > 1.5, "losses and cosines read what pooling gives"
    for number, options in enumerate(((), ("--pooling", "cls"))):
        answer = _call("export", tmp_path / "trained", "--to", tmp_path / f"out{number}", *options)
        assert answer.exit_code == 0 and "its embeddings have length 1, as those of `encode --normalize`" in answer.output
        np.testing.assert_allclose(np.linalg.norm(_by_sentence_transformers(tmp_path / f"out{number}"), axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(_by_sentence_transformers(tmp_path / "out0"), ours / lengths, atol=2e-6)


PROMPTS = {"prompts": {"query": "two birds ", "document": "a garden "}, "default_prompt_name": "query"}


@pytest.fixture
def prompted(tiny_encoder_dir: Path, tmp_path: Path) -> Path:
    """A plain checkpoint beside whose weights prompts are declared."""
    shutil.copytree(tiny_encoder_dir, tmp_path / "prompted")
    (tmp_path / "prompted" / CONFIG_OF_PROMPTS).write_text(json.dumps(PROMPTS))
    return tmp_path / "prompted"


def test_an_encoder_that_is_exported_as_it_is_keeps_its_prompts(prompted: Path, tmp_path: Path) -> None:
    assert _call("export", prompted, "--to", tmp_path / "cls", "--pooling", "cls").exit_code == 0
    assert _call("export", tmp_path / "cls", "--to", tmp_path / "copied").exit_code == 0
    assert _call("export", tmp_path / "cls", "--to", tmp_path / "mean", "--pooling", "mean").exit_code == 0
    for name, pooling in (("cls", "cls"), ("copied", "cls"), ("mean", "mean")):
        assert named_prompts(tmp_path / name) == (PROMPTS["prompts"], "query")
        use = EncoderUse(checkpoint=str(prompted), pooling=pooling, prompt="two birds ")
        expected = LoadedEncoder.load(use, "cpu").embed(list(SENTENCES))
        np.testing.assert_allclose(_by_sentence_transformers(tmp_path / name), expected, atol=2e-6)


def test_what_was_trained_without_prompts_has_none(prompted: Path, tmp_path: Path) -> None:
    """Those of its base would stand before sentences as they never did in training, and the default one before all."""
    trained = SentenceEncoder.load(prompted)
    trained.save(tmp_path / "trained", card=EncoderCard(base_model="tiny", objective="info_nce", prompts="none, in training"))
    assert _call("export", tmp_path / "trained", "--to", tmp_path / "out").exit_code == 0
    assert not any(named_prompts(tmp_path / "out")[0].values())
    np.testing.assert_allclose(_by_sentence_transformers(tmp_path / "out"), encode(trained.eval(), SENTENCES), atol=2e-6)
    assert "| prompts | none, in training |" in (tmp_path / "out" / "README.md").read_text()


def test_a_copy_pools_prompts_as_the_encoder_that_the_library_knows_by_name(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    SentenceEncoder.load(tiny_encoder_dir).save(tmp_path / "one", card=EncoderCard(base_model="tiny", objective=None))
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    keep_prompts(tmp_path / "one", tmp_path / "copy", checkpoint=INSTRUCTORS[0])
    assert leaves_prompt_out(tmp_path / "copy", "copy") and not leaves_prompt_out(tmp_path / "one", "one")


def test_without_the_onnx_packages_the_extra_is_named(tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    answer = _call("export", tiny_encoder_dir, "--to", tmp_path / "out", "--format", "onnx")
    assert answer.exit_code == 2
    assert "pip install 'sentdist[onnx]'" in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{encoder}", "--to", "{full}"), "there already"),
        (("{encoder}", "--to", "{full}/a/b"), "no folder for it"),
        (("{encoder}", "--to", "{full}/new", "--format", "gguf"), "one of sentence-transformers, onnx"),
        (("./nowhere", "--to", "{full}/new"), "no such folder"),
        (("{encoder}", "--to", "{full}/new", "--pooling", "none"), "one of mean, cls"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(arguments: tuple[str, ...], words: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    answer = _call("export", *(argument.format(encoder=tiny_encoder_dir, full=tmp_path) for argument in arguments))
    assert answer.exit_code == 2, answer.output
    assert words in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
