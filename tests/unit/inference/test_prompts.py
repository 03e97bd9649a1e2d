"""Prompts before sentences: the same embeddings as sentence-transformers give with them, whoever computes them."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentdist
from sentdist.errors import DataError, EncoderError
from sentdist.inference.nearest import SameEncoder
from sentdist.inference.opening import Prompts
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS, INSTRUCTORS, leaves_prompt_out
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.plan.specs import EncoderUse
from tests.support.tiny_encoders import tiny_encoder

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
        encoder.save(root / pooling, card=EncoderCard(base_model="tiny", objective=None))
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
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize(
    "values",
    [
        NAMED,
        NAMED | {"default_prompt_name": "passage"},
        {"prompts": {"passage": PASSAGE}, "default_prompt_name": "passage"},  # nothing before queries, not the default
        {"prompts": {"query": None, "corpus": DOCUMENT}},
        {"prompts": {}},
    ],
)
def test_embeddings_are_those_of_sentence_transformers(values: dict[str, object], pooling: str, folder: Folder) -> None:
    """encode, encode_query, encode_document; a name, a text and nothing."""
    path = folder(values, pooling)
    theirs, ours = SentenceTransformer(str(path), device="cpu"), sentdist.Encoder.load(path)
    prompts = Prompts.of(path, encoder="it")

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


@pytest.mark.filterwarnings("ignore:.*no prompt before")
def test_prompts_of_a_search_and_of_pairs_can_be_asked_for(folder: Folder) -> None:
    ours = sentdist.Encoder.load(folder(NAMED))
    hits = sentdist.search(ours, ["a man"], SENTENCES, query_prompt="passage", document_prompt="")
    query, documents = ours.encode("a man", prompt=PASSAGE), ours.encode(SENTENCES, prompt="")
    cosines = documents @ query / np.linalg.norm(documents, axis=1) / np.linalg.norm(query)
    assert [hit.score for hit in hits[0]] == pytest.approx(sorted(cosines, reverse=True), abs=1e-5)
    embedded = sentdist.search(ours, ["a man"], SENTENCES, query_prompt=PASSAGE, embeddings=documents)
    assert [hit.row for hit in embedded[0]] == [hit.row for hit in hits[0]]
    with pytest.raises(DataError, match="search: document_prompt: found embeddings of the corpus"):
        sentdist.search(ours, ["a man"], SENTENCES, embeddings=documents, document_prompt="passage")
    with_it, without = (sentdist.similarity(ours, ["a man"], ["the dog"], prompt=prompt) for prompt in ("query", None))
    assert with_it != pytest.approx(without)


def test_prompts_of_which_encode_takes_none_by_itself_are_reported(folder: Folder) -> None:
    encoder = sentdist.Encoder.load(folder(NAMED))
    assert encoder.prompts == NAMED["prompts"]
    said = "no prompt before each sentence .it has no default prompt; its prompts are query, document, passage: see encode: prompt"
    with pytest.warns(UserWarning, match=said) as reported:
        encoder.encode("a man")
    with pytest.warns(UserWarning, match="see similarity: prompt"):
        sentdist.similarity(encoder, "a man", "the dog")
    assert reported[0].filename == __file__, "where it was called"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode("a man", prompt="")
        sentdist.search(encoder, "a man", SENTENCES)
        sentdist.Encoder.load(folder(NAMED | {"default_prompt_name": "query"})).encode("a man")
        sentdist.Encoder.load(folder({"prompts": {"query": ""}})).encode("a man")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("passages", r'expected the name of a prompt of it \(query, document, passage\), or a text. Did you mean "passage"'),
        ("zzz", r"A text that is one word ends in a space or a colon"),
        (3, "found an int, 3|found .*int"),
        ("\ud800", "half of a surrogate pair"),
    ],
)
def test_what_is_no_prompt_is_refused(asked: str, said: str, folder: Folder) -> None:
    with pytest.raises(DataError, match=said):
        Prompts.of(folder(NAMED), encoder="it").of_sentences(asked)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"prompts": {"query": 3}}, "prompts: found"),
        ({"prompts": ["query: "]}, "expected names with their texts"),
        ({"prompts": {}, "default_prompt_name": 3}, "expected a name, or null"),
        (NAMED | {"default_prompt_name": "queri"}, r"one of its prompts \(query, document, passage\)"),
    ],
)
def test_a_folder_whose_prompts_are_none_is_refused(values: dict[str, object], said: str, folder: Folder) -> None:
    with pytest.raises(EncoderError, match=said):
        Prompts.of(folder(values), encoder="it")


@pytest.mark.filterwarnings("ignore:.*no prompt before")
@pytest.mark.parametrize("pooling", ["mean", "cls", "last_token"])
def test_a_prompt_is_not_pooled_where_the_folder_says_so(pooling: str, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """include_prompt: false: a mean over the tokens behind it, the first of them."""
    path = folder(NAMED, pooling)
    config = path / "1_Pooling/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"include_prompt": False}))
    ours, theirs = sentdist.Encoder.load(path), SentenceTransformer(str(path), device="cpu")
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


def test_encoders_of_which_the_library_leaves_the_prompt_out_by_name(folder: Folder) -> None:
    path = folder(NAMED)
    assert leaves_prompt_out(path, INSTRUCTORS[0]) and not leaves_prompt_out(path, "hkunlp/other")


def test_a_prompt_leaves_room_for_a_sentence(folder: Folder) -> None:
    """All embeddings would be that of the prompt."""
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(folder(NAMED)), max_length=8))
    assert loaded.with_prompt("a man sings in ").embed(SENTENCES).shape == (4, 32)
    with pytest.raises(EncoderError, match="of 7 tokens; expected one that leaves room for a sentence within 8 tokens"):
        loaded.with_prompt("a man sings in the garden ")
    with pytest.raises(EncoderError, match="leaves room"):
        LoadedEncoder.load(EncoderUse(checkpoint=str(folder(NAMED)), max_length=5, prompt="a man sings "))


def test_workers_put_the_same_prompt_before_sentences(folder: Folder) -> None:
    """They load the encoder by what they are given of it."""
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(folder(NAMED)))).with_prompt(DOCUMENT)
    there = pickle.loads(pickle.dumps(SameEncoder.of(loaded))).load("cpu")
    assert np.array_equal(there.embed(SENTENCES), loaded.embed(SENTENCES)) and there.facts == loaded.facts
    assert loaded.facts["prompt"] == DOCUMENT and "prompt" not in loaded.with_prompt("").facts, "keys of results without one stay"


def test_words_of_a_prompt_do_not_hide_that_a_sentence_has_none(folder: Folder) -> None:
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(folder(NAMED)), prompt=QUERY))
    loaded.embed(["xx yy", "a man", "zz"])
    assert (loaded.unknown.num_sentences, loaded.unknown.first) == (2, "xx yy")
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(folder(NAMED)), prompt="qq: "))
    loaded.embed(["a man"])
    assert loaded.unknown.num_sentences == 0
