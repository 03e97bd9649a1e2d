"""`sentdist search`: the same hits however corpus, embeddings and queries are given; mistakes in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.plan.runtime import Runtime
from sentdist.stages.devices import on_this_machine
from tests.support.tiny_encoders import SENTENCES

QUERIES = ("a dog sleeps", "many birds sing in the garden")


def _call(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"}, input=stdin)


def _hits(*arguments: str | Path, stdin: str | None = None) -> list[dict[str, Any]]:
    answer = _call("search", *arguments, "--format", "jsonl", stdin=stdin)
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.fixture(scope="module")
def files(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The corpus as a table and as plain text, its embeddings, others too narrow and too few."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"key": f"d{n}", "body": text}) + "\n" for n, text in enumerate(SENTENCES)))
    (folder / "plain.txt").write_text("\n".join(SENTENCES))
    (folder / "queries.txt").write_text("\n".join(QUERIES))
    (folder / "asked.csv").write_text("body,said\n" + "".join(f"something else,{query}\n" for query in QUERIES))
    made = _call("encode", tiny_encoder_dir, folder / "plain.txt", "--out", folder / "embeddings.npy")
    assert made.exit_code == 0, made.output
    np.save(folder / "narrow.npy", np.ones((len(SENTENCES), 5), dtype=np.float32))
    np.save(folder / "few.npy", np.load(folder / "embeddings.npy")[:3])
    return {path.stem: path for path in folder.iterdir() if path.suffix != ".json"} | {"encoder": tiny_encoder_dir}


@pytest.fixture(scope="module")
def expected(tiny_encoder_dir: Path) -> list[list[tuple[int, float]]]:
    """Rows and cosines of the best three, by sorting all."""
    unit = encode(SentenceEncoder.load(tiny_encoder_dir), [*QUERIES, *SENTENCES]).astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit[:2] @ unit[2:].T
    return [[(int(row), float(cosines[query, row])) for row in np.argsort(-cosines[query])[:3]] for query in range(2)]


@pytest.mark.parametrize(
    "arguments",
    [
        (*QUERIES, "--corpus", "{corpus}", "--column", "body", "--id", "key"),
        ("--queries", "{queries}", "--corpus", "{plain}"),
        ("--queries", "-", "--corpus", "{plain}"),
        ("--queries", "{asked}", "--query-column", "said", "--corpus", "{corpus}", "--column", "body"),
        (*QUERIES, "--corpus", "{plain}", "--embeddings", "{embeddings}"),
        (*QUERIES, "--embeddings", "{embeddings}"),
    ],
)
def test_the_nearest_sentences_are_found(
    arguments: tuple[str, ...], files: dict[str, Path], expected: list[list[tuple[int, float]]]
) -> None:
    lines = (*QUERIES,) if "--queries" in arguments else SENTENCES
    found = _hits(files["encoder"], *(argument.format(**files) for argument in arguments), "-k", "3", stdin="\n".join(lines))
    assert [answer["query"] for answer in found] == list(QUERIES)
    for answer, best in zip(found, expected, strict=True):
        assert [(hit["rank"], hit["row"]) for hit in answer["hits"]] == [(place + 1, row) for place, (row, _) in enumerate(best)]
        # batches of another make-up: float32 roundings
        np.testing.assert_allclose([hit["score"] for hit in answer["hits"]], [cosine for _, cosine in best], atol=3e-6)
        for hit in answer["hits"]:
            assert hit.get("text", SENTENCES[hit["row"]]) == SENTENCES[hit["row"]]
            assert hit.get("id", f"d{hit['row']}") == f"d{hit['row']}"
            assert ("id" in hit, "text" in hit) == ("--id" in arguments, "--corpus" in arguments)


def test_what_else_there_is_to_say_of_a_search_stands_beside_its_hits(files: dict[str, Path]) -> None:
    answer = _call("search", files["encoder"], "a man", "--corpus", "-", "-k", "5", stdin="the [red]dog[/]\na cat")
    assert "the [red]dog[/]" in answer.stdout and "The corpus has 2 sentences, fewer than 5" in answer.stderr
    shown = _call("search", files["encoder"], files["queries"], "--corpus", files["plain"], "-k", "2").stderr
    assert "fewer than" not in shown and on_this_machine(Runtime())[1] in shown, "what is used and what lies idle"
    assert "is searched for as a sentence. The sentences of that file: --queries" in shown
    for query in ("gone.txt", f"{'long ' * 1000}.txt"):
        assert "--queries" not in _call("search", files["encoder"], query, "--corpus", files["plain"], "--max-length", "9").stderr


MISTAKES = [
    (("a", "--corpus", "{plain}x"), "no such file"),
    (("a", "--corpus", "{corpus}", "--column", "bodi"), 'Did you mean "body"?'),
    (("a", "--corpus", "-"), "standard input: found no rows"),
    (("a", "--embeddings", "{narrow}"), "embeddings of width 5; expected width 32"),
    (("a", "--corpus", "{plain}", "--embeddings", "{few}"), "more than 3 sentences and 3 embeddings"),
    (("a", "--corpus", "{queries}", "--embeddings", "{few}"), "2 sentences and 3 embeddings"),
    (("a", "--corpus", "{plain}", "--embeddings", "{embeddings}", "--max-length", "5"), "made with max_length 40"),
    (("--corpus", "{plain}"), "no queries"),
    (("a", "--queries", "{queries}", "--corpus", "{plain}"), "two things in one place"),
    (("--queries", "-", "--corpus", "-"), "two things in one place"),
    (("a",), "no corpus"),
    ((" ", "--corpus", "{plain}"), "' '"),
    (("a", "--corpus", "{plain}", "--relation", "twin"), "no relations beside it"),
    (("a", "--corpus", "{plain}", "--format", "json"), "one of table, jsonl"),
    (("a", "--embeddings", "{few}", "--id", "key"), "no --corpus"),
    (("a", "--embeddings", "{corpus}"), "found suffix .jsonl; expected a .npy file"),
    (("a", "--corpus", "{few}"), "Embeddings of some are --embeddings"),
    (("--queries", "how are you?", "--corpus", "{plain}"), "'how are you?': found a sentence; expected a file"),
]


def test_a_mistake_is_reported_in_one_sentence(files: dict[str, Path]) -> None:
    for arguments, words in MISTAKES:
        answer = _call("search", files["encoder"], *(argument.format(**files) for argument in arguments), stdin="")
        assert answer.exit_code == 2 and words in answer.stderr and len(answer.stderr.splitlines()) == 1 and not answer.stdout, (
            answer.output
        )


def test_embeddings_of_other_sentences_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    """As many, in another order: nothing else would tell that the hits are wrong."""
    (tmp_path / "turned.txt").write_text("\n".join(reversed(SENTENCES)))
    given = ("search", files["encoder"], "a dog sleeps", "--embeddings", files["embeddings"], "--corpus")
    assert _call(*given, files["plain"]).exit_code == 0
    refused = _call(*given, tmp_path / "turned.txt")
    assert refused.exit_code == 2 and "other sentences than those that were encoded" in refused.output, refused.output


def test_other_columns_of_the_corpus_are_shown_beside_a_hit(files: dict[str, Path], tmp_path: Path) -> None:
    """One column alone could be shown, as an id, and nobody said that there were others."""
    path = tmp_path / "corpus.csv"
    path.write_text("nr,text,[who]\n" + "".join(f"{n},{text},{'ada' if n else ''}\n" for n, text in enumerate(SENTENCES)))
    search = ("search", files["encoder"], SENTENCES[1], "--corpus", path, "--column", "text", "-k", str(len(SENTENCES)))
    asked = _call(*search, "--id", "nr", "--show", "[who]", "--show", "nr", "--format", "jsonl")
    hits = json.loads(asked.stdout)["hits"]
    assert all(hit["columns"] == {"[who]": "ada" if hit["row"] else "", "nr": str(hit["row"])} for hit in hits)
    assert all(hit["id"] == str(hit["row"]) and hit["text"] == SENTENCES[hit["row"]] for hit in hits)
    shown = _call(*search, "--show", "[who]")
    assert "[who]" in shown.stdout and "ada" in shown.stdout and "--show" not in shown.stderr
    assert "other columns, too: nr, [who]. --show nr shows one." in _call(*search).stderr
