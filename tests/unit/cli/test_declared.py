"""What an encoder declares is used: how its token vectors become one embedding, and how many tokens it takes."""

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
from sentdist.learning.encoder.declared import most_tokens
from sentdist.stages.planning.resolve import FileResolver
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


def test_evaluate_and_compare_score_as_the_encoder_declares_and_say_so(folders: dict[str, Path], tmp_path: Path) -> None:
    where = ("--tasks", "stsb", "--data", folders["data"], "--store", tmp_path)
    scores = {}
    for name, more in {"declared": (), "cls": ("--pooling", "cls"), "mean": ("--pooling", "mean")}.items():
        reported = call("evaluate", folders["cls"], *more, *where)
        assert reported.exit_code == 0, reported.output
        assert f"pooling {'mean' if name == 'mean' else 'cls'}" in reported.output
        scores[name] = next(line.split()[2] for line in reported.output.splitlines() if "spearman" in line)
    assert scores["declared"] == scores["cls"] != scores["mean"]
    plain = call("evaluate", folders["plain"], *where)
    assert "pooling mean" in plain.output and scores["mean"] in plain.output
    assert "twice" in call("compare", folders["cls"], folders["cls"], "--other-pooling", "cls", *where).stderr
    both = call("compare", folders["cls"], folders["plain"], *where)
    assert both.exit_code == 0 and "pooling cls −" in both.output.replace("\n", " ") and "pooling mean" in both.output


@pytest.mark.parametrize(
    ("family", "positions", "padding", "declared", "tokens"),
    [
        ("bert", 512, 0, None, 512),
        ("roberta", 514, 1, None, 512),  # whose first two positions are of no token
        ("mpnet", 514, 1, 384, 384),
        ("xlm-roberta", 514, 1, 8192, 512),
        ("bert", None, 0, 128, 128),
        ("bert", None, 0, None, None),
    ],
)
def test_an_encoder_takes_what_it_declares_and_has_positions_for(
    family: str, positions: int | None, padding: int, declared: int | None, tokens: int | None, tmp_path: Path
) -> None:
    config = {"model_type": family, "max_position_embeddings": positions, "pad_token_id": padding}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for file, key in {"sentence_bert_config.json": "max_seq_length", "tokenizer_config.json": "model_max_length"}.items():
        (tmp_path / file).write_text(json.dumps({key: declared or 10**30}))
        assert most_tokens(tmp_path) == tokens
        (tmp_path / file).unlink()


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        ({}, "says that it was made with cls; expected a pooling to be named where it is not the mean. Add encoder.pooling=cls"),
        ({"pooling": "mean"}, ""),
        ({"pooling": "cls"}, ""),
    ],
)
def test_a_recipe_names_a_pooling_that_is_not_the_mean(
    folders: dict[str, Path], encoder: dict[str, str], said: str, tmp_path: Path
) -> None:
    values = tiny_values(folders["cls"])
    values["encoder"] = {"checkpoint": str(folders["cls"]), **encoder}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    reported = call("plan", tmp_path / "tiny.yaml", "--data", folders["data"], "--store", tmp_path / "store")
    assert (reported.exit_code, said in reported.stderr) == (2 if said else 0, True), reported.output


@pytest.mark.parametrize("field", ["training.max_length", "evaluation.max_length"])
@pytest.mark.parametrize("declared", [None, 30])
def test_a_length_that_the_encoder_has_no_positions_for_is_refused_while_planning(
    folders: dict[str, Path], field: str, declared: int | None, tmp_path: Path
) -> None:
    encoder, longest = declares_cls(folders["plain"], tmp_path / "encoder"), declared or 40
    if declared:
        (encoder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": declared}))
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_values(encoder)))
    words = ("plan", tmp_path / "tiny.yaml", "--data", folders["data"], "--store", tmp_path / "store", "--set", "encoder.pooling=cls")
    assert call(*words, "--set", f"{field}={longest}").exit_code == 0
    reported = call(*words, "--set", f"{field}={longest + 1}")
    assert reported.exit_code == 2 and f"{field}: found {longest + 1}, where encoder takes {longest} tokens" in reported.stderr, (
        reported.output
    )


@pytest.mark.parametrize(("family", "is_refused"), [("albert", True), ("bert", False)])
def test_a_rate_for_each_layer_needs_layers_of_their_own(family: str, is_refused: bool, tmp_path: Path) -> None:
    """Reported while planning: the first training may come hours later."""
    values = tiny_values(tiny_encoder(tmp_path / family, family), training={"batch_size": 8, "max_length": 20, "layer_decay": 0.5})
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(values))
    answer = call("plan", tmp_path / "r.yaml", "--data", write_data(tmp_path / "data"), "--store", tmp_path / "store")
    assert answer.exit_code == (2 if is_refused else 0), answer.output
    said = "methods.fine_tuned: training.layer_decay: found 0.5 for albert, whose layers share their weights; expected 1."
    assert (said in answer.output.replace("\n", " ")) == is_refused


@pytest.mark.parametrize(("family", "is_refused"), [("deberta-v2", True), ("mpnet", False)])
def test_heads_are_dropped_of_encoders_whose_sentences_lie_flat(family: str, is_refused: bool, tmp_path: Path) -> None:
    values = tiny_values(
        tiny_encoder(tmp_path / family, family), methods={"m": {"objective": {"name": "info_nce"}, "regularizers": {"drophead": 0.2}}}
    )
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(values | {"baseline": None}))
    answer = call("plan", tmp_path / "r.yaml", "--data", write_data(tmp_path / "data"), "--store", tmp_path / "store")
    assert answer.exit_code == (2 if is_refused else 0), answer.output
    said = "methods.m: regularizers.drophead: found 0.2 for deberta-v2, whose sentences are padded; expected 0."
    assert (said in answer.output.replace("\n", " ")) == is_refused


@pytest.mark.parametrize(("family", "is_refused"), [("albert", True), ("mpnet", False), ("bert", False)])
def test_layers_are_computed_again_where_they_can(family: str, is_refused: bool, tmp_path: Path) -> None:
    values = tiny_values(tiny_encoder(tmp_path / family, family), runtime={"recompute_layers": True})
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(values))
    answer = call("plan", tmp_path / "r.yaml", "--data", write_data(tmp_path / "data"), "--store", tmp_path / "store")
    assert answer.exit_code == (2 if is_refused else 0), answer.output
    said = f"runtime.recompute_layers: found true for {family}, whose layers transformers cannot compute again; expected false."
    assert (said in answer.output.replace("\n", " ")) == is_refused


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


def test_what_a_hub_checkpoint_declares_is_asked_of_the_hub_once(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _hub_that(monkeypatch, str(folders["cls"]))
    resolver = FileResolver()
    pin = resolver.encoder("owner/name", revision=COMMIT, where="encoder")
    assert resolver.declared_pooling("owner/name", revision=COMMIT) == "cls"
    assert (pin.width, pin.revision, asked, resolver.notes) == (32, COMMIT, ["owner/name"], [])
    assert resolver.folders == {}, "workers look for a hub's name at the hub, not in a folder of this machine"


@pytest.mark.parametrize("error", [OSError, RuntimeError])  # the clients below the hub's library have classes of their own
def test_a_hub_that_does_not_answer_leaves_a_note_or_ends_what_needs_it(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_that(monkeypatch, error("no network"))
    resolver = FileResolver()
    assert resolver.encoder("owner/name", revision=COMMIT, where="encoder.checkpoint").width is None
    assert resolver.declared_pooling("owner/name", revision=COMMIT) is None
    assert resolver.notes == [
        f"encoder.checkpoint: owner/name is not on this machine, and no answer from the hub ({error.__name__}: no network): its size, length and "
        "pooling are not checked."
    ]
    with pytest.raises(EncoderError, match="Or name its pooling"):
        FileResolver(needs_hub=True).declared_pooling("owner/name", revision=COMMIT)


def test_a_hub_that_does_not_know_a_checkpoint_ends_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_that(monkeypatch, huggingface_hub.errors.HFValidationError("no name"))
    with pytest.raises(
        EncoderError, match=r"encoder\.checkpoint: owner/name: found no such repository on the hub, or a private one; expected"
    ):
        FileResolver().encoder("owner/name", revision=COMMIT, where="encoder.checkpoint")


def test_the_note_stands_in_the_plan_of_a_recipe(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_that(monkeypatch, OSError("no network"))
    values = tiny_values(folders["plain"]) | {"encoder": {"checkpoint": "owner/name", "revision": COMMIT}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    reported = call("plan", tmp_path / "tiny.yaml", "--data", folders["data"], "--store", tmp_path / "store")
    assert reported.exit_code == 0 and "owner/name is not on this machine" in reported.output, reported.output


@pytest.mark.parametrize("revision", [None, "main", "abc123"])
def test_a_hub_checkpoint_is_pinned_by_a_commit(revision: str | None) -> None:
    with pytest.raises(EncoderError, match="expected a commit of 40 hex digits"):
        FileResolver().encoder("owner/name", revision=revision, where="encoder")


PROMPTS = {"prompts": {"query": "query: ", "document": ""}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (PROMPTS, "it has prompts for sentence-transformers (query 'query: '); here none is added"),
        (PROMPTS | {"default_prompt_name": "query"}, "sentence-transformers put 'query: ' before every sentence; here none is added"),
        (PROMPTS | {"default_prompt_name": "document", "similarity_fn_name": "dot"}, "it has prompts"),
        ({"prompts": {"query": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"}, ""),
    ],
)
def test_prompts_that_are_not_added_are_reported(values: dict[str, object], said: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """Embeddings of trainings and scores differ from sentence-transformers'."""
    folder = tmp_path / "encoder"
    shutil.copytree(folders["cls"], folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(values))
    resolver = FileResolver()
    resolver.encoder(str(folder), revision=None, where="encoder.checkpoint")
    assert said in " ".join(resolver.notes) and bool(resolver.notes) == bool(said)
    (tmp_path / "corpus.txt").write_text("a man sings\nthe dog runs\n")
    reported = call("search", folder, "a man", "--corpus", tmp_path / "corpus.txt")
    assert reported.exit_code == 0 and "here none is added" not in reported.stderr
    assert ("asks sentence-transformers for dot" in reported.stderr) == ("dot" in values.values())


@pytest.mark.parametrize("file", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_sentences_are_read_in_lower_case_where_the_folder_asks_for_it(file: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """As sentence-transformers read them, whatever the tokenizer's files say; written in capitals they had other embeddings, or none."""
    folder = tmp_path / "encoder"
    shutil.copytree(folders["cls"], folder)
    values = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(values | {"normalizer": None}))
    (folder / file).write_text(json.dumps({"max_seq_length": 7, "do_lower_case": True}))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 32, "pooling_mode": "cls"}))
    ours = sentdist.Encoder.load(folder)
    assert ours.loaded.max_length == 7
    sentences = ["A Man SINGS", "the dog runs"]
    theirs = SentenceTransformer(str(folder), device="cpu").encode(sentences)
    np.testing.assert_allclose(ours.encode(sentences), theirs, atol=1e-6)
    np.testing.assert_array_equal(ours.encode("A Man SINGS"), ours.encode("a man sings"))
    ours.export(tmp_path / "exported")
    np.testing.assert_array_equal(sentdist.Encoder.load(tmp_path / "exported").encode(sentences), ours.encode(sentences))
