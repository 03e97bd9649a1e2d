"""An encoder made ready for use, with prompts before sentences as sentence-transformers have them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

import sentdist
from sentdist.errors import DataError, EncoderError
from sentdist.inference.embedding_file import check_made_by, embedding_writer, open_embeddings
from sentdist.inference.nearest import SameEncoder
from sentdist.inference.opening import Prompts
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, Checkpoint
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.relation_file import Relations, write_relations
from sentdist.recipe.specs import EncoderUse
from sentdist.stages.resolve import FileResolver
from tests.support.tiny_encoders import released_t5, tiny_encoder


def test_processes_in_another_folder_find_the_encoder(planted_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's workers looked for ./encoder in the folder in which the cluster was started."""
    monkeypatch.chdir(planted_encoder_dir.parent)
    loaded = LoadedEncoder.beside_workers(EncoderUse(checkpoint=f"./{planted_encoder_dir.name}"))
    assert SameEncoder.of(loaded).use.checkpoint == str(planted_encoder_dir)
    assert loaded.use.checkpoint == f"./{planted_encoder_dir.name}", "as the person says it"


@pytest.mark.parametrize("file", ["tokenizer.json", "2_Dense/model.safetensors"])
def test_what_stands_beside_the_weights_makes_another_encoder(file: str, tmp_path: Path) -> None:
    """With another tokenizer, length or pooling, scores and embeddings of the folder as it had been were taken for its own."""
    folder = released_t5(tmp_path / "encoder")
    before = LoadedEncoder.load(EncoderUse(checkpoint=str(folder)), "cpu")
    pinned = FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint")
    old = tmp_path / "old.npy"
    with embedding_writer(old, width=before.width, dtype="float32", facts=before.facts, with_ids=False) as writer:
        writer.write(before.embed(["a man sleeps"]), None)
    if file.endswith(".json"):
        with (folder / file).open("a") as changed:
            changed.write("\n")
    else:
        save_file({name: -weight for name, weight in load_file(folder / file).items()}, folder / file)
    after = LoadedEncoder.load(EncoderUse(checkpoint=str(folder)), "cpu")
    assert FileResolver().encoder(str(folder), revision=None, where="encoder.checkpoint").revision != pinned.revision
    with pytest.raises(EncoderError, match="another configuration, tokenizer or pooling"):
        SameEncoder.of(before).load("cpu")
    with pytest.raises(DataError, match="embeddings made with tokenizer_and_modules"):
        check_made_by(old, open_embeddings(old), width=after.width, facts=after.facts)


SENTENCES = ["a man sings", "the dog runs slowly in the garden", "music", "one child reads"]
QUERY, DOCUMENT, PASSAGE = "the old man finds: ", "a big garden with ", "two red birds near "
NAMED: dict[str, object] = {"prompts": {"query": QUERY, "document": DOCUMENT, "passage": PASSAGE}}

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of sentence-transformers by their pooling."""
    root = tmp_path_factory.mktemp("prompts")
    tiny_encoder(root / "bert", "bert")
    for pooling in ("mean", "cls", "last_token"):
        encoder = SentenceEncoder.load(root / "bert", pooling=pooling)
        encoder.save(root / pooling, base_model="tiny")
    return {pooling: root / pooling for pooling in ("mean", "cls", "last_token")}


@pytest.fixture
def folder(pooled: dict[str, Path], tmp_path: Path) -> Folder:
    """Makes an encoder that declares prompts."""

    def made(values: dict[str, object], pooling: str = "mean") -> Path:
        copy = tmp_path / f"encoder{len(list(tmp_path.iterdir()))}"
        shutil.copytree(pooled[pooling], copy)
        config = copy / CONFIG_OF_PROMPTS
        config.write_text(json.dumps(json.loads(config.read_text()) | values))
        return copy

    return made


@pytest.mark.filterwarnings("ignore:.*no prompt before")
@pytest.mark.parametrize("pooling", ["mean"])
@pytest.mark.parametrize("values", [NAMED, {"prompts": {"passage": PASSAGE}, "default_prompt_name": "passage"}])
def test_embeddings_are_those_of_sentence_transformers(values: dict[str, object], pooling: str, folder: Folder) -> None:
    """encode, encode_query, encode_document; a name, a text and nothing."""
    path = folder(values, pooling)
    theirs, ours = SentenceTransformer(str(path), device="cpu"), sentdist.Encoder(path)
    prompts = Prompts.of(Checkpoint.open(path), EncoderUse(checkpoint="it"))

    def equal(found: np.ndarray, expected: np.ndarray) -> None:
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)

    equal(ours.encode(SENTENCES), theirs.encode(SENTENCES))
    equal(ours.encode(SENTENCES[0]), theirs.encode(SENTENCES[0]))
    equal(ours.encode(SENTENCES, normalize=True), theirs.encode(SENTENCES, normalize_embeddings=True))
    equal(ours.encode(SENTENCES, prompt=PASSAGE), theirs.encode(SENTENCES, prompt=PASSAGE))
    equal(ours.encode(SENTENCES, prompt=""), theirs.encode(SENTENCES, prompt=""))
    for name in prompts.texts:
        equal(ours.encode(SENTENCES, prompt=name), theirs.encode(SENTENCES, prompt_name=name))
    queries, documents = (
        ours.loaded.with_prompt(prompt.text).embed(SENTENCES) for prompt in (prompts.of_queries(None), prompts.of_documents(None))
    )
    equal(queries, theirs.encode_query(SENTENCES))
    equal(documents, theirs.encode_document(SENTENCES))
    unit = [half / np.linalg.norm(half, axis=1, keepdims=True) for half in (queries, documents)]
    for query, cosines in zip(SENTENCES, unit[0] @ unit[1].T, strict=True):
        hits = sentdist.search(ours, query, SENTENCES)
        equal(np.array([hit.score for hit in sorted(hits, key=lambda hit: hit.row)]), cosines)
    one, other = theirs.encode([SENTENCES[0], SENTENCES[1]])
    similarity = sentdist.similarity(ours, SENTENCES[0], SENTENCES[1])
    assert similarity == pytest.approx(float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)), abs=1e-6)


def test_what_is_no_prompt_is_refused(folder: Folder) -> None:
    for asked, said in [
        ("passages", r'one of its prompts \(query, document, passage\), or a text. Did you mean "passage"'),
    ]:
        with pytest.raises(DataError, match=said):
            Prompts.of(Checkpoint.open(folder(NAMED)), EncoderUse(checkpoint="it")).of_sentences(asked)


def test_a_folder_whose_prompts_are_none_is_refused(folder: Folder) -> None:
    for values, said in [
        ({"prompts": {"query": 3}}, "prompts: found"),
        ({"prompts": {}, "default_prompt_name": 3}, "it has none"),
        (NAMED | {"default_prompt_name": "queri"}, r"one of its prompts \(query, document, passage\)"),
    ]:
        with pytest.raises(EncoderError, match=said):
            Prompts.of(Checkpoint.open(folder(values)), EncoderUse(checkpoint="it"))


@pytest.mark.filterwarnings("ignore:.*no prompt before")
@pytest.mark.parametrize("pooling", ["mean", "last_token"])
def test_a_prompt_is_not_pooled_where_the_folder_says_so(pooling: str, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """include_prompt: false: a mean over the tokens behind it, the first of them."""
    path = folder(NAMED, pooling)
    config = path / "1_Pooling/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"include_prompt": False}))
    ours, theirs = sentdist.Encoder(path), SentenceTransformer(str(path), device="cpu")
    for name in ("query", "document"):
        expected = theirs.encode(SENTENCES, prompt_name=name)
        np.testing.assert_allclose(ours.encode(SENTENCES, prompt=name), expected, atol=1e-6)
        theirs.set_pooling_include_prompt(True)
        others = theirs.encode(SENTENCES, prompt_name=name)
        theirs.set_pooling_include_prompt(False)
        assert np.allclose(expected, others, atol=1e-4) == (pooling == "last_token"), "else the test shows nothing"
    np.testing.assert_allclose(ours.encode(SENTENCES), theirs.encode(SENTENCES), atol=1e-6)
    monkeypatch.setattr(TokenBatch, "filled", _filled_further)
    np.testing.assert_allclose(ours.encode(SENTENCES, prompt="document"), expected, atol=1e-6, err_msg="as on a GPU")


def _filled_further(self: TokenBatch, multiple: int, *, filled: Callable[[TokenBatch, int], TokenBatch] = TokenBatch.filled) -> TokenBatch:
    """Two tokens more, fewer than the prompt has."""
    return filled(self, self.num_tokens + 2)


def test_relations_that_were_trained_with_another_pooling_are_refused(pooled: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(pooled["cls"], tmp_path / "encoder")
    write_relations(tmp_path / "encoder", Relations(names=("twin",), vectors=np.ones((1, 32), dtype=np.float32), pooling="mean"))
    with pytest.raises(EncoderError, match="trained with mean"):
        sentdist.similarity(tmp_path / "encoder", "a man", "a dog", relations={"twin": 1.0})
