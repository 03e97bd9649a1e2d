"""Encoders for others: export, also to the hub; list of encoders and recipes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalTokenNotFoundError
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, Checkpoint
from sentdist.recipe.recipe import load_recipe
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stages import Train
from sentdist.report import encoder_card
from sentdist.stages.planned import planned_recipe
from sentdist.stages.text_stages import build_overlaps
from tests.support.building import run_local
from tests.support.planning import RECIPES
from tests.support.tiny_encoders import SENTENCES

WHO, WHAT, WHERE = ("man", "woman", "child"), ("eats", "drinks", "plays"), ("house", "garden", "street")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> tuple[Path, str]:
    """A store with own.yaml built over a small file, and the key of its training."""
    folder = tmp_path_factory.mktemp("trained")
    file = folder / "pairs.csv"
    rows = [f"a {who} {what} in the {where},the {who} in the {where} {what}" for who in WHO for what in WHAT for where in WHERE]
    file.write_text("anchor,positive\n" + "\n".join(rows) + "\n")
    changes = (
        f"corpus.file={file}",
        f"encoder.checkpoint={tiny_encoder_dir}",
        "training.batch_size=8",
        "training.max_length=20",
        "evaluation.max_length=20",
    )
    plan, context = planned_recipe(load_recipe(RECIPES / "own.yaml", changes), store=str(folder / "store"))
    run_local(plan, context)
    build_overlaps(plan, context)
    return folder / "store", next(stage.key for stage in plan.stages if isinstance(stage, Train))


def test_push_shows_the_card_and_sends_nothing_unless_asked(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = trained
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda *_, **__: pytest.fail("sent"))
    found = call("export", key[:8], "--to-hub", "me/mine", "--licence", "apache-2.0", "--store", store)
    assert found.exit_code == 0, found.output
    head, _, text = found.output.removeprefix("---\n").partition("---\n")
    metadata = {name: json.loads(value) for name, _, value in (line.partition(": ") for line in head.splitlines())}
    assert "language" not in metadata and "base_model" not in metadata
    assert metadata["license"] == "apache-2.0" and metadata["library_name"] == "sentence-transformers"
    (score,) = metadata["model-index"][0]["results"]
    assert score["dataset"]["name"] == "retrieval-pairs-csv-test" and 0 <= score["metrics"][0]["value"] <= 100
    for part in (
        "95 % on other items",
        "| pairs.csv |",
        "Test items that stand in the training data",
        "temperature",
        "Oord",
        "model.safetensors",
    ):
        assert part in text, part
    assert "| different sentences |" in text and "equal rows" not in text, "the reader of the file has left them out before"


def test_a_new_repository_is_private_and_a_hub_that_refuses_is_reported(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = trained
    sent: list[object] = []

    def upload(self: object, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        sent.append((Path(folder_path) / "README.md").read_text())
        files = {path.name for path in Path(folder_path).iterdir()}
        assert repo_id == "me/mine" and {"README.md", "modules.json"} <= files and "record.json" not in files

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda self, name, *, private, exist_ok: sent.append(private) or name)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    given = ("export", key[:8], "--to-hub", "me/mine", "--send", "--licence", "mit", "--store", store)
    found = call(*given)
    assert found.exit_code == 0 and "Sent: me/mine" in found.output, found.output
    private, card = sent
    assert private is True and "## Citation" in str(card) and 'license: "mit"' in str(card)

    def refuse(*_: object, **__: object) -> None:
        raise LocalTokenNotFoundError("none")

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", refuse)
    refused = call(*given)
    assert refused.exit_code == 2 and "hf auth login" in refused.stderr


def _by_sentence_transformers(folder: Path) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(list(SENTENCES)))


PROMPTS = {"prompts": {"query": "two birds ", "document": "a garden "}, "default_prompt_name": "query"}


@pytest.fixture
def prompted(tiny_encoder_dir: Path, tmp_path: Path) -> Path:
    """A plain checkpoint beside whose weights prompts are declared."""
    shutil.copytree(tiny_encoder_dir, tmp_path / "prompted")
    (tmp_path / "prompted" / CONFIG_OF_PROMPTS).write_text(json.dumps(PROMPTS))
    return tmp_path / "prompted"


def test_an_encoder_that_is_exported_as_it_is_keeps_its_prompts(prompted: Path, tmp_path: Path) -> None:
    assert call("export", f"{prompted}?pooling=cls", "--out", tmp_path / "cls").exit_code == 0
    assert call("export", tmp_path / "cls", "--out", tmp_path / "copied").exit_code == 0
    assert call("export", f"{tmp_path}/cls?pooling=mean", "--out", tmp_path / "mean").exit_code == 0
    for name, pooling in (("cls", "cls"), ("copied", "cls"), ("mean", "mean")):
        found = Checkpoint.open(tmp_path / name)
        assert (found.prompts, found.default_prompt) == (PROMPTS["prompts"], "query")
        use = EncoderUse(checkpoint=str(prompted), pooling=pooling, prompt="two birds ")
        expected = LoadedEncoder.load(use, "cpu").embed(list(SENTENCES))
        np.testing.assert_allclose(_by_sentence_transformers(tmp_path / name), expected, atol=2e-6)


def test_a_training_is_exported_with_the_card_that_is_pushed_and_one_of_another_version_with_its_own(
    trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = trained
    monkeypatch.chdir(tmp_path)
    pushed = call("export", key[:8], "--to-hub", "me/mine", "--store", store).output
    assert call("export", key[:8], "--out", "mine", "--store", store).exit_code == 0
    assert Checkpoint.open(tmp_path / "mine").most_tokens == 20, "as it was trained with"
    assert (tmp_path / "mine" / "README.md").read_text().replace('SentenceTransformer("mine")', 'SentenceTransformer("me/mine")') in pushed
    assert call("export", f"{key[:8]}?pooling=cls", "--out", "other", "--store", store).exit_code == 0
    assert "95 % on other items" not in (tmp_path / "other" / "README.md").read_text(), "these scores are of another pooling"
    monkeypatch.setattr(encoder_card, "restored", lambda key, records: None)
    assert call("export", key[:8], "--to-hub", "me/mine", "--store", store).exit_code == 2
    assert call("export", key[:8], "--out", "old", "--store", store).exit_code == 0
    (own_card,) = store.glob(f"train/*{key}/README.md")
    assert (tmp_path / "old" / "README.md").read_text() == own_card.read_text()
