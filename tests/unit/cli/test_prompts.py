"""Prompts before sentences, from the command line: which are used and why, what a file says of its own, mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.data.texts import open_texts
from sentdist.execution.parallel import file_encoder
from sentdist.inference.nearest import SameEncoder
from sentdist.inference.ready_encoder import LoadedEncoder, encode_file
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS
from sentdist.plan.sections import Runtime
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


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        ((), PASSAGE, f"{PASSAGE!r} stands before each sentence (its default prompt, passage)."),
        (("--prompt", "query"), QUERY, f"{QUERY!r} stands before each sentence (its prompt query, as asked)."),
        (("--prompt", "one old "), "one old ", "'one old ' stands before each sentence (as asked)."),
        (("--prompt", ""), "", "no prompt before each sentence (as asked)."),
    ],
)
def test_encode_says_which_prompt_it_takes_and_writes_it_down(
    options: tuple[str, ...], text: str, said: str, encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    assert said in _line(_call("encode", encoder, corpus, "--out", tmp_path / "out.npy", *options)).replace("\n", " ")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), _embedded(encoder, text, SENTENCES), atol=1e-6)
    assert json.loads((tmp_path / "out.npy.json").read_text())["prompt"] == text
    _line(_call("encode", encoder, corpus, "--out", tmp_path / "out.parquet", *options))
    assert json.loads(pq.read_schema(tmp_path / "out.parquet").metadata[b"sentdist"])["prompt"] == text


def test_workers_are_given_the_prompt(encoder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--workers` and several GPUs of a machine have them."""
    given: list[SameEncoder] = []

    def over_workers(worker: type, arguments: tuple[Any, ...], parts: Any, **_: object) -> Any:
        given.append(arguments[0])
        for part in parts:
            yield part, file_encoder.EncodedPart(embeddings=arguments[0].load("cpu").embed(part[1]), unknown=file_encoder.UnknownWords())

    monkeypatch.setattr(file_encoder, "over_workers", over_workers)
    monkeypatch.setattr(file_encoder, "with_cluster_devices", lambda runtime: (runtime.with_gpus(0.0), "over 2 workers"))
    loaded = LoadedEncoder.beside_workers(EncoderUse(checkpoint=str(encoder), prompt=QUERY))
    workers = file_encoder.WorkerEncoding.on_cluster(loaded, Runtime(engine="torch", workers=2))
    list(encode_file(loaded, open_texts(str(corpus), columns=()), tmp_path / "out.npy", batches=workers.batches))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), _embedded(encoder, QUERY, SENTENCES), atol=1e-6)
    assert [one.use.prompt for one in given] == [QUERY]


@pytest.mark.parametrize(
    ("options", "query", "document", "said"),
    [
        ((), QUERY, DOCUMENT, f"{QUERY!r} stands before each query (its prompt of queries, query)."),
        (("--query-prompt", "", "--document-prompt", "passage"), "", PASSAGE, "no prompt before each query (as asked)."),
        (("--document-prompt", "two "), QUERY, "two ", "'two ' stands before each document (as asked)."),
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
    (hits,) = map(json.loads, _line_of_hits(_call(*search, "--document-prompt", "passage")))
    assert [hit["score"] for hit in hits["hits"]] == pytest.approx(_scores(encoder, QUERY, PASSAGE), abs=2e-6)
    record = made.with_name(f"{made.name}.json")
    facts = json.loads(record.read_text())
    del facts["prompt"]
    record.write_text(json.dumps(facts))
    assert f"embeddings whose record it's.npy.json names no prompt, which counts as none; expected the prompt {DOCUMENT!r}" in refused()
    assert _call(*search, "--document-prompt", "").exit_code == 0
    record.unlink()
    found = refused()
    assert "embeddings without a record it's.npy.json of their prompt, which counts as none" in found
    assert "Take them as they are, whatever prompt they were made with: sentdist search … --document-prompt ''; or encode" in found
    assert _call(*search, "--document-prompt", "").exit_code == 0
    _line(_call("encode", encoder, corpus, "--prompt", "document", "--out", made, "--overwrite"))
    assert _call(*search).exit_code == 0


def _line_of_hits(answer: Result) -> list[str]:
    assert answer.exit_code == 0, answer.output
    return answer.stdout.splitlines()


def test_similarity_takes_the_prompt_of_encode(encoder: Path, corpus: Path) -> None:
    for options, text in (((), PASSAGE), (("--prompt", "query"), QUERY), (("--prompt", ""), "")):
        answer = _call("similarity", encoder, *SENTENCES[:2], *options)
        one, other = _embedded(encoder, text, SENTENCES[:2])
        score = float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
        assert float(_line_of_hits(answer)[0]) == pytest.approx(score, abs=2e-6)
        assert (f"{text!r} stands before each sentence" if text else "no prompt before each sentence") in answer.stderr
        assert float(_line_of_hits(_call("similarity", encoder, corpus, corpus, *options))[0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("encode", "--out", "out.npy", "--prompt", "pasage"), '--prompt: found \'pasage\'; expected the name of a prompt of it (query, '),
        (("search", "--query-prompt", "querys"), '--query-prompt: found \'querys\''),
        (("search", "--document-prompt", "dokument"), 'Did you mean "document"?'),
    ],
)  # fmt: skip
def test_a_name_that_no_prompt_has_is_refused(
    words: tuple[str, ...], said: str, encoder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a text it would run into the first word of each sentence."""
    monkeypatch.chdir(tmp_path)
    command, *options = words
    places: tuple[str | Path, ...] = (corpus,) if command == "encode" else ("a man", "--corpus", corpus)
    answer = _call(command, encoder, *places, *options)
    assert answer.exit_code == 2 and said in re.sub(r"\s+", " ", answer.output), answer.output
    assert not list(tmp_path.iterdir())


def test_an_encoder_without_prompts_says_nothing_of_them(corpus: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    answer = _call("encode", tiny_encoder_dir, corpus, "--out", tmp_path / "out.npy")
    found = _call("search", tiny_encoder_dir, "a man", "--embeddings", tmp_path / "out.npy")
    assert "stands before" not in _line(answer) + _line(found) and "no prompt" not in answer.output + found.output


@pytest.mark.parametrize(
    ("command", "options"), [("encode", ["--prompt"]), ("similarity", ["--prompt"]), ("search", ["--query-prompt", "--document-prompt"])]
)
def test_help_names_the_options_and_what_is_taken_without_them(command: str, options: list[str]) -> None:
    reported = re.sub(r"[\s│]+", " ", _line(_call(command, "--help")))
    for option in options:
        assert option in reported
    assert "[default: the encoder's default prompt, if it has one]" in reported if command != "search" else "named document, if" in reported
