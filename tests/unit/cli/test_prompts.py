"""Prompts before sentences, from the command line: which are used and why, what a file says of its own, mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS
from sentdist.plan.specs import EncoderUse
from tests.support.tiny_encoders import tiny_encoder

SENTENCES = ["a man sings", "the dog runs slowly in the garden", "music", "one child reads"]
QUERY, DOCUMENT, PASSAGE = "the old man finds: ", "a big garden with ", "two red birds near "


def _call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def _line(answer: Result) -> str:
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a default prompt."""
    folder = tiny_encoder(tmp_path_factory.mktemp("prompts") / "encoder", "bert")
    prompts = {"query": QUERY, "document": DOCUMENT, "passage": PASSAGE}
    (folder / CONFIG_OF_PROMPTS).write_text(json.dumps({"prompts": prompts, "default_prompt_name": "passage"}))
    (folder.parent / "corpus.txt").write_text("\n".join(SENTENCES) + "\n")
    return folder


@pytest.fixture(scope="module")
def corpus(encoder: Path) -> Path:
    return encoder.parent / "corpus.txt"


def _embedded(encoder: Path, text: str, sentences: list[str]) -> np.ndarray:
    return LoadedEncoder.load(EncoderUse(checkpoint=str(encoder), prompt=text), "cpu").embed(sentences)


def _scores(encoder: Path, query: str, document: str) -> list[float]:
    """Of the first sentence with each document, highest first."""
    (query_D,) = _embedded(encoder, query, SENTENCES[:1])
    documents = _embedded(encoder, document, SENTENCES)
    return sorted((documents @ query_D / np.linalg.norm(documents, axis=1) / np.linalg.norm(query_D)).tolist(), reverse=True)


def test_encode_says_which_prompt_it_takes_and_writes_it_down(encoder: Path, corpus: Path, tmp_path: Path) -> None:
    for options, text, said in (
        ((), PASSAGE, f"{PASSAGE!r} stands before each sentence (its default prompt, passage)."),
        (("--prompt", "one old "), "one old ", "'one old ' stands before each sentence (as asked)."),
        (("--prompt", ""), "", "no prompt before each sentence (as asked)."),
    ):
        for name in ("out.npy", "out.parquet"):
            assert said in _line(_call("encode", encoder, corpus, "--out", tmp_path / name, "--overwrite", *options)).replace("\n", " ")
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), _embedded(encoder, text, SENTENCES), atol=1e-6)
        assert json.loads((tmp_path / "out.npy.json").read_text())["prompt"] == text
        assert json.loads(pq.read_schema(tmp_path / "out.parquet").metadata[b"sentdist"])["prompt"] == text


@pytest.mark.parametrize(
    ("options", "query", "document", "said"),
    [
        ((), QUERY, DOCUMENT, f"{QUERY!r} stands before each query (its prompt of queries, query)."),
        (("--query-prompt", "", "--document-prompt", "passage"), "", PASSAGE, "no prompt before each query (as asked)."),
    ],
)
def test_search_takes_prompts_of_queries_and_of_documents(
    options: tuple[str, ...], query: str, document: str, said: str, encoder: Path, corpus: Path
) -> None:
    answer = _call("search", encoder, SENTENCES[0], "--corpus", corpus, "--format", "jsonl", *options)
    assert said in _line(answer) and said in answer.stderr
    (found,) = map(json.loads, answer.stdout.splitlines())
    assert [hit["score"] for hit in found["hits"]] == pytest.approx(_scores(encoder, query, document), abs=2e-6)
    assert found["hits"][0]["text"] in SENTENCES, "as it stands in the file"


def test_embeddings_of_another_prompt_are_refused(encoder: Path, corpus: Path, tmp_path: Path) -> None:
    made = tmp_path / "it's.npy"
    _line(_call("encode", encoder, corpus, "--out", made))  # with its default prompt, which is not that of documents
    search = ("search", encoder, SENTENCES[0], "--embeddings", made, "--format", "jsonl")

    def refused(*options: str) -> str:
        answer = _call(*search, *options)
        assert answer.exit_code == 2, answer.output
        return re.sub(r"\s+", " ", answer.output)

    found = refused()
    assert f"embeddings made with the prompt {PASSAGE!r}; expected the prompt {DOCUMENT!r} before documents" in found
    assert f"--document-prompt '{PASSAGE}'; or encode the corpus again: sentdist encode … --prompt '{DOCUMENT}'" in found
    assert "expected no prompt before documents" in refused("--document-prompt", "")
    hits = json.loads(_call(*search, "--document-prompt", "passage").stdout)["hits"]
    assert [hit["score"] for hit in hits] == pytest.approx(_scores(encoder, QUERY, PASSAGE), abs=2e-6)
    record = made.with_name(f"{made.name}.json")
    record.write_text(json.dumps({name: value for name, value in json.loads(record.read_text()).items() if name != "prompt"}))
    assert "names no prompt, which counts as none" in refused() and _call(*search, "--document-prompt", "").exit_code == 0
    record.unlink()
    assert "embeddings without a record" in refused() and _call(*search, "--document-prompt", "").exit_code == 0
    _line(_call("encode", encoder, corpus, "--prompt", "document", "--out", made, "--overwrite"))
    assert _call(*search).exit_code == 0


def test_similarity_takes_the_prompt_of_encode(encoder: Path) -> None:
    for options, text in (((), PASSAGE), (("--prompt", "query"), QUERY), (("--prompt", ""), "")):
        answer = _call("similarity", encoder, *SENTENCES[:2], *options)
        one, other = _embedded(encoder, text, SENTENCES[:2])
        assert float(answer.stdout) == pytest.approx(float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)), abs=2e-6)
        assert (f"{text!r} stands before each sentence" if text else "no prompt before each sentence") in answer.stderr


def test_a_name_that_no_prompt_has_is_refused(encoder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a text it would run into the first word of each sentence."""
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (("encode", encoder, corpus, "--out", "out.npy", "--prompt", "pasage"), "--prompt: found 'pasage'"),
        (("search", encoder, "a man", "--corpus", corpus, "--query-prompt", "querys"), "--query-prompt: found 'querys'"),
        (("search", encoder, "a man", "--corpus", corpus, "--document-prompt", "dokument"), 'Did you mean "document"?'),
    ):
        answer = _call(*words)
        assert answer.exit_code == 2 and said in re.sub(r"\s+", " ", answer.output), answer.output
        assert not list(tmp_path.iterdir())
