"""What an encoder and its tokenizer declare is used: pooling, length, prompts; what does not fit is refused while planning."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import yaml
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.errors import EncoderError
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.recipe.stage import Json
from sentdist.stages.resolve import FileResolver
from tests.support.tiny_data import tiny_values, write_data
from tests.support.tiny_encoders import declares_cls, tiny_encoder

COMMIT = "c" * 40


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> dict[str, Path]:
    """Data, an encoder that declares cls, and one that declares nothing."""
    root = tmp_path_factory.mktemp("declared")
    return {"data": write_data(root / "data"), "cls": declares_cls(tiny_encoder_dir, root / "cls"), "plain": tiny_encoder_dir}


POSITIONS = [  # family, positions, id of padding, declared length, tokens that it takes
    ("bert", 512, 0, None, 512), ("roberta", 514, 1, None, 512), ("mpnet", 514, 1, 384, 384), ("xlm-roberta", 514, 1, 8192, 512),
    ("bert", None, 0, 128, 128), ("bert", None, 0, None, None),
]  # fmt: skip


def test_an_encoder_takes_what_it_declares_and_has_positions_for(tmp_path: Path) -> None:
    for family, positions, padding, declared, tokens in POSITIONS:
        config = {"model_type": family, "max_position_embeddings": positions, "pad_token_id": padding}
        (tmp_path / "config.json").write_text(json.dumps(config))
        for file, key in {"sentence_bert_config.json": "max_seq_length", "tokenizer_config.json": "model_max_length"}.items():
            (tmp_path / file).write_text(json.dumps({key: declared or 10**30}))
            assert Checkpoint.open(tmp_path).most_tokens == tokens, (family, file)
            (tmp_path / file).unlink()


def test_a_recipe_names_a_pooling_that_is_not_the_mean_and_no_length_without_positions(folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = declares_cls(folders["plain"], tmp_path / "encoder")
    (encoder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 30}))
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_values(encoder)))
    words = ("plan", tmp_path / "tiny.yaml", "--data", folders["data"], "--store", tmp_path / "store")
    unnamed = call(*words)
    assert unnamed.exit_code == 2 and "Add encoder.pooling=cls" in unnamed.stderr
    for pooling in ("cls", "mean"):
        assert call(*words, "--set", f"encoder.pooling={pooling}").exit_code == 0
    for field in ("training.max_length", "evaluation.max_length"):
        assert call(*words, "--set", "encoder.pooling=cls", "--set", f"{field}=30").exit_code == 0
        refused = call(*words, "--set", "encoder.pooling=cls", "--set", f"{field}=31")
        assert refused.exit_code == 2 and f"{field}: found 31, but encoder takes at most 30" in refused.stderr, refused.output


@pytest.mark.parametrize(
    ("family", "changes", "field"),
    [
        ("albert", {"training": {"batch_size": 8, "max_length": 20, "layer_decay": 0.5}}, "training.layer_decay"),
        ("deberta-v2", {"methods": {"m": {"objective": {"name": "info_nce"}, "regularizers": {"drophead": 0.2}}}, "baseline": None}, "regularizers.drophead"),
        ("albert", {"runtime": {"recompute_layers": True}}, "runtime.recompute_layers"),
    ],
)  # fmt: skip
def test_what_a_family_of_encoders_cannot_do_is_refused_while_planning(
    family: str, changes: dict[str, Json], field: str, tmp_path: Path
) -> None:
    """Not by the first training, which may come hours later."""
    data = write_data(tmp_path / "data")
    for name, code in ((family, 2), ("bert", 0)):
        (tmp_path / "r.yaml").write_text(yaml.safe_dump(tiny_values(tiny_encoder(tmp_path / name, name), **changes)))
        answer = call("plan", tmp_path / "r.yaml", "--data", data, "--store", tmp_path / "store")
        assert answer.exit_code == code and (f"{field}: found" in answer.output and family in answer.output) == (code == 2), answer.output


def _hub_that(monkeypatch: pytest.MonkeyPatch, answer: str | Exception) -> list[str]:
    """A hub that gives this folder, or this error, for every name; the names that it was asked for."""
    asked: list[str] = []

    def snapshot_download(name: str, *, revision: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        assert revision == COMMIT and "config.json" in allow_patterns
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not in the cache")
        return str(answer)

    def model_info(self: object, name: str, *, revision: str, timeout: float) -> None:
        asked.append(name)
        if isinstance(answer, Exception):
            raise answer

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    return asked


def test_a_hub_checkpoint_is_asked_of_the_hub_once_and_a_hub_that_does_not_answer_leaves_a_note(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, resolver = _hub_that(monkeypatch, str(folders["cls"])), FileResolver()
    assert resolver.encoder("owner/name", revision=COMMIT, where="encoder").width == 32
    assert resolver.declared_pooling("owner/name", revision=COMMIT) == "cls"
    assert asked == ["owner/name"] and resolver.notes == [] and resolver.folders == {}, "workers look for it at the hub, too"
    _hub_that(monkeypatch, OSError("no network"))
    resolver = FileResolver()
    assert resolver.encoder("owner/name", revision=COMMIT, where="encoder.checkpoint").width is None
    assert resolver.declared_pooling("owner/name", revision=COMMIT) is None
    (note,) = resolver.notes
    assert note.startswith("encoder.checkpoint: owner/name: no answer from the hub") and "OSError: no network" in note
    with pytest.raises(EncoderError, match="no network"):
        FileResolver(needs_hub=True).declared_pooling("owner/name", revision=COMMIT)
    _hub_that(monkeypatch, huggingface_hub.errors.HFValidationError("no name"))
    with pytest.raises(EncoderError) as unknown:
        FileResolver().encoder("owner/name", revision=COMMIT, where="encoder.checkpoint")
    assert unknown.value.where == "encoder.checkpoint: owner/name"
    for revision in (None, "main", "abc123"):
        with pytest.raises(EncoderError, match="40 hex digits"):
            FileResolver().encoder("owner/name", revision=revision, where="encoder")


PROMPTS = {"prompts": {"query": "query: ", "document": ""}}


def test_prompts_that_are_not_added_are_reported(folders: dict[str, Path], tmp_path: Path) -> None:
    """Embeddings of trainings and scores differ from sentence-transformers'."""
    shutil.copytree(folders["cls"], tmp_path / "encoder")
    for values, said in (
        (PROMPTS, "it has prompts for sentence-transformers (query 'query: ')"),
        (PROMPTS | {"default_prompt_name": "query"}, "sentence-transformers put 'query: ' before every sentence"),
        ({"prompts": {"query": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"}, ""),
    ):
        (tmp_path / "encoder/config_sentence_transformers.json").write_text(json.dumps(values))
        resolver = FileResolver()
        resolver.encoder(str(tmp_path / "encoder"), revision=None, where="encoder.checkpoint")
        assert said in " ".join(resolver.notes) and bool(resolver.notes) == bool(said)


def test_sentences_are_read_in_lower_case_where_the_folder_asks_for_it(folders: dict[str, Path], tmp_path: Path) -> None:
    """As sentence-transformers read them, whatever the tokenizer's files say; written in capitals they had other embeddings, or none."""
    folder = tmp_path / "encoder"
    shutil.copytree(folders["cls"], folder)
    values = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(values | {"normalizer": None}))
    (folder / "sentence_roberta_config.json").write_text(json.dumps({"max_seq_length": 7, "do_lower_case": True}))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 32, "pooling_mode": "cls"}))
    ours = sentdist.Encoder(folder)
    assert ours.loaded.max_length == 7
    sentences = ["A Man SINGS", "the dog runs"]
    theirs = SentenceTransformer(str(folder), device="cpu").encode(sentences)
    np.testing.assert_allclose(ours.encode(sentences), theirs, atol=1e-6)
    np.testing.assert_array_equal(ours.encode("A Man SINGS"), ours.encode("a man sings"))
    ours.export(tmp_path / "exported")
    np.testing.assert_array_equal(sentdist.Encoder(tmp_path / "exported").encode(sentences), ours.encode(sentences))
