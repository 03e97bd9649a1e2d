"""What an encoder declares is heeded: how its token vectors become one embedding, and how many tokens it takes."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest
import yaml
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.errors import EncoderError
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tiny_data import tiny_values, write_data
from tests.support.tiny_encoders import declares_cls


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
        told = call("evaluate", folders["cls"], *more, *where)
        assert told.exit_code == 0, told.output
        assert f"pooling {'mean' if name == 'mean' else 'cls'}" in told.output
        scores[name] = next(line.split()[2] for line in told.output.splitlines() if "spearman" in line)
    assert scores["declared"] == scores["cls"] != scores["mean"]
    plain = call("evaluate", folders["plain"], *where)
    assert "pooling mean" in plain.output and scores["mean"] in plain.output
    assert "twice" in call("compare", folders["cls"], folders["cls"], "--other-pooling", "cls", *where).stderr
    both = call("compare", folders["cls"], folders["plain"], *where)
    assert both.exit_code == 0 and "pooling cls −" in both.output.replace("\n", " ") and "pooling mean" in both.output


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
    told = call("plan", tmp_path / "tiny.yaml", "--data", folders["data"], "--store", tmp_path / "store")
    assert (told.exit_code, said in told.stderr) == (2 if said else 0, True), told.output


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
    told = call(*words, "--set", f"{field}={longest + 1}")
    assert told.exit_code == 2 and f"{field}: found {longest + 1}, where encoder takes {longest} tokens" in told.stderr, told.output


def test_what_a_hub_checkpoint_declares_is_seen_in_its_copy_or_asked_for(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: dict[str, str] = {}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file, revision: copies.get(f"{name}@{revision}"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, revision, allow_patterns: str(folders["cls"]))
    commit = "c" * 40
    assert FileResolver().declared_pooling("owner/name", revision=commit) is None
    copies[f"owner/name@{commit}"] = str(folders["cls"] / "modules.json")
    assert FileResolver().declared_pooling("owner/name", revision=commit) == "cls"
    assert FileResolver(asks_hub=True).declared_pooling("owner/other", revision=commit) == "cls"

    def away(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", away)
    with pytest.raises(EncoderError, match="or name its pooling"):
        FileResolver(asks_hub=True).declared_pooling("owner/other", revision=commit)


@pytest.mark.parametrize("revision", [None, "main", "abc123"])
def test_a_hub_checkpoint_is_pinned_by_a_commit(revision: str | None) -> None:
    with pytest.raises(EncoderError, match="expected a commit of 40 hex digits"):
        FileResolver().encoder("owner/name", revision=revision, where="encoder")
    assert FileResolver().encoder("owner/name", revision="c" * 40, where="encoder").revision == "c" * 40
