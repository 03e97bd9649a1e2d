"""Encoders in use, from the command line: encode, similarity, search, and the prompts before sentences."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from tests.support.tiny_encoders import SENTENCES


def _call(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"}, input=stdin)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.csv"
    path.write_text("id,text\n" + "".join(f"d{number},{sentence}\n" for number, sentence in enumerate(SENTENCES)))
    return path


@pytest.fixture(scope="module")
def expected(tiny_encoder_dir: Path) -> np.ndarray:
    return encode(SentenceEncoder.load(tiny_encoder_dir), SENTENCES)


# Batches of another make-up, and products rounded differently: some float32 roundings of numbers around 1.
CLOSE = {"atol": 2e-6, "rtol": 0.0}


def test_encode_writes_the_embeddings_of_every_sentence_once(
    corpus: Path, expected: np.ndarray, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    for source in (("-",), (corpus, "--column", "text")):
        answer = _call("encode", tiny_encoder_dir, *source, "--out", tmp_path / "out.npy", stdin="\n".join(SENTENCES))
        assert answer.exit_code == 0 and f"{len(SENTENCES)} embeddings of width 32" in answer.output, answer.output
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, **CLOSE)
        (tmp_path / "out.npy").write_text("precious")
        assert "an existing file" in _call("encode", tiny_encoder_dir, "-", "--out", tmp_path / "out.npy", stdin="a man").stderr
        assert (tmp_path / "out.npy").read_text() == "precious"
        assert _call("encode", tiny_encoder_dir, "-", "--out", tmp_path / "out.npy", "--overwrite", stdin="a man").exit_code == 0
        (tmp_path / "out.npy").unlink()
    out = tmp_path / "out.parquet"
    answer = _call(
        "encode", f"{tiny_encoder_dir}?normalize=true", corpus, "--column", "text", "--id", "id", "--dtype", "float16", "--out", out
    )
    table = pq.read_table(out)
    assert table["id"].to_pylist() == [f"d{number}" for number in range(len(SENTENCES))] and "float16" in answer.output
    assert table.schema.field("embedding").type.value_type == "halffloat"
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), unit, atol=5e-4)  # float16 has 11 bits


MISTAKES = [
    (("{encoder}", "{corpus}x", "--out", "{out}"), "Did you mean"),
    (("{encoder}", "{corpus}", "--column", "test", "--out", "{out}"), 'Did you mean "text"?'),
    (("{encoder}", "-", "--out", "{corpus}"), "suffix '.csv'"),
    (("{encoder}", "-", "--out", "{out}", "--id", "id"), "expected .parquet"),
    (("{encoder}?pooling=cls_mlp", "-", "--out", "{out}"), "no weights of a dense layer"),
    (("{silent}", "-", "--out", "{out}"), "tokenizer"),
    (("{encoder}", "-", "--out", "{out}"), "row 2, sentence: found no sentence"),
]


def test_a_mistake_in_encode_leaves_one_sentence_and_no_file(corpus: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_encoder_dir, tmp_path / "silent", ignore=shutil.ignore_patterns("tokenizer*", "special*", "vocab*"))
    names = {"encoder": tiny_encoder_dir, "corpus": corpus, "silent": tmp_path / "silent", "out": tmp_path / "out.npy"}
    for arguments, words in MISTAKES:
        answer = _call("encode", *(argument.format(**names) for argument in arguments), stdin="a man\n\nthe dog\n")
        assert answer.exit_code == 2 and words in answer.stderr and len(answer.stderr.splitlines()) == 1, answer.output
        assert [path.name for path in tmp_path.iterdir()] == ["silent"]


def test_texts_that_the_tokenizer_does_not_know_are_reported(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("你好\nthe dog runs\n再见 !\nthe zebra\n", encoding="utf-8")
    said = "2 sentences without a word that the encoder's tokenizer knows, such as '你好'"
    assert said in _call("encode", tiny_encoder_dir, tmp_path / "texts.txt", "--out", tmp_path / "out.npy").stderr
    assert said in _call("search", tiny_encoder_dir, "the dog", "--corpus", tmp_path / "texts.txt").stderr
    assert said in (alike := _call("encode", tiny_encoder_dir, "--pairs", "你好", "再见")).stderr and alike.stdout == "1.000000\n"
    assert "without a word" not in _call("encode", tiny_encoder_dir, "--pairs", "the zebra", "a dog !").stderr


def test_a_mistake_at_the_end_is_reported_before_an_encoder_begins(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200,000 rows were encoded before the last one was looked at."""
    (tmp_path / "bad.txt").write_text("a dog runs\n" * 40_000 + "\0")
    monkeypatch.setattr(LoadedEncoder, "load", lambda *_, **__: pytest.fail("an encoder was loaded"))
    for words in (
        ("encode", tiny_encoder_dir, tmp_path / "bad.txt", "--out", tmp_path / "out.npy"),
        ("search", tiny_encoder_dir, "a", "--corpus", tmp_path / "bad.txt"),
    ):
        done = _call(*words)
        assert done.exit_code == 2 and "row 40,001, sentence: found '\\x00'" in done.output, done.output


QUERIES = ("a dog sleeps", "many birds sing in the garden")


def _hits(*arguments: str | Path, stdin: str | None = None) -> list[dict[str, Any]]:
    answer = _call("search", *arguments, "--format", "json", stdin=stdin)
    assert answer.exit_code == 0, answer.output
    found: list[dict[str, Any]] = json.loads(answer.stdout)
    return found


@pytest.fixture(scope="module")
def searched(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The corpus as a table and as plain text, its embeddings, others too narrow and too few."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"key": f"d{n}", "body": text}) + "\n" for n, text in enumerate(SENTENCES)))
    (folder / "plain.txt").write_text("\n".join(SENTENCES))
    (folder / "queries.txt").write_text("\n".join(QUERIES))
    (folder / "asked.csv").write_text("said\n" + "".join(f"{query}\n" for query in QUERIES))
    made = _call("encode", tiny_encoder_dir, folder / "plain.txt", "--out", folder / "embeddings.npy")
    assert made.exit_code == 0, made.output
    np.save(folder / "narrow.npy", np.ones((len(SENTENCES), 5), dtype=np.float32))
    np.save(folder / "few.npy", np.load(folder / "embeddings.npy")[:3])
    return {path.stem: path for path in folder.iterdir() if path.suffix != ".json"} | {"encoder": tiny_encoder_dir}


@pytest.fixture(scope="module")
def best_three(tiny_encoder_dir: Path) -> list[list[tuple[int, float]]]:
    """Rows and cosines of the best three, by sorting all."""
    unit = encode(SentenceEncoder.load(tiny_encoder_dir), [*QUERIES, *SENTENCES]).astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit[:2] @ unit[2:].T
    return [[(int(row), float(cosines[query, row])) for row in np.argsort(-cosines[query])[:3]] for query in range(2)]


@pytest.mark.parametrize(
    "arguments",
    [
        (*QUERIES, "--corpus", "{corpus}", "--column", "body", "--show", "key"),
        ("--queries", "{queries}", "--corpus", "{plain}"),
        ("--queries", "-", "--corpus", "{plain}"),
        ("--queries", "{asked}", "--corpus", "{corpus}", "--column", "body"),
        (*QUERIES, "--corpus", "{plain}", "--embeddings", "{embeddings}"),
        (*QUERIES, "--embeddings", "{embeddings}"),
    ],
)
def test_the_nearest_sentences_are_found(
    arguments: tuple[str, ...], searched: dict[str, Path], best_three: list[list[tuple[int, float]]]
) -> None:
    lines = (*QUERIES,) if "--queries" in arguments else SENTENCES
    found = _hits(searched["encoder"], *(argument.format(**searched) for argument in arguments), "-k", "3", stdin="\n".join(lines))
    assert [answer["query"] for answer in found] == list(QUERIES)
    for answer, best in zip(found, best_three, strict=True):
        assert [(hit["rank"], hit["row"]) for hit in answer["hits"]] == [(place + 1, row) for place, (row, _) in enumerate(best)]
        # batches of another make-up: float32 roundings
        np.testing.assert_allclose([hit["score"] for hit in answer["hits"]], [cosine for _, cosine in best], atol=3e-6)
        for hit in answer["hits"]:
            assert hit.get("text", SENTENCES[hit["row"]]) == SENTENCES[hit["row"]]
            assert hit.get("columns", {"key": f"d{hit['row']}"}) == {"key": f"d{hit['row']}"}
            assert ("columns" in hit, "text" in hit) == ("--show" in arguments, "--corpus" in arguments)


MISTAKES_SEARCH = [
    (("a", "--corpus", "{plain}x"), "no such file"),
    (("a", "--corpus", "{corpus}", "--column", "bodi"), 'Did you mean "body"?'),
    (("a", "--corpus", "-"), "standard input: found no rows"),
    (("a", "--embeddings", "{narrow}"), "embeddings of width 5; expected width 32"),
    (("a", "--corpus", "{plain}", "--embeddings", "{few}"), "more than 3 sentences and 3 embeddings"),
    (("a", "--corpus", "{queries}", "--embeddings", "{few}"), "2 sentences and 3 embeddings"),
    (("--corpus", "{plain}"), "no queries"),
    (("a", "--queries", "{queries}", "--corpus", "{plain}"), "given twice"),
    (("a",), "no corpus"),
    ((" ", "--corpus", "{plain}"), "' '"),
    (("a", "--corpus", "{plain}", "--relation", "twin"), "found no relations"),
    (("a", "--embeddings", "{few}", "--show", "key"), "no --corpus"),
    (("a", "--embeddings", "{corpus}"), "found suffix .jsonl; expected a .npy file"),
    (("--queries", "how are you?", "--corpus", "{plain}"), "how are you?: found no such file"),
]


def test_a_mistake_in_a_search_is_reported_in_one_sentence(searched: dict[str, Path]) -> None:
    for arguments, words in MISTAKES_SEARCH:
        answer = _call("search", searched["encoder"], *(argument.format(**searched) for argument in arguments), stdin="")
        assert answer.exit_code == 2 and words in answer.stderr and len(answer.stderr.splitlines()) == 1 and not answer.stdout, (
            answer.output
        )


def test_embeddings_of_other_sentences_are_refused(searched: dict[str, Path], tmp_path: Path) -> None:
    """As many, in another order: nothing else would tell that the hits are wrong."""
    (tmp_path / "turned.txt").write_text("\n".join(reversed(SENTENCES)))
    given = ("search", searched["encoder"], "a dog sleeps", "--embeddings", searched["embeddings"], "--corpus")
    assert _call(*given, searched["plain"]).exit_code == 0
    refused = _call(*given, tmp_path / "turned.txt")
    assert refused.exit_code == 2 and "other sentences than" in refused.output, refused.output


def test_other_columns_of_the_corpus_are_shown_beside_a_hit(searched: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "corpus.csv"
    path.write_text("nr,text,[who]\n" + "".join(f"{n},{text},{'ada' if n else ''}\n" for n, text in enumerate(SENTENCES)))
    search = ("search", searched["encoder"], SENTENCES[1], "--corpus", path, "--column", "text", "-k", str(len(SENTENCES)))
    asked = _call(*search, "--show", "[who]", "--show", "nr", "--format", "json")
    hits = json.loads(asked.stdout)[0]["hits"]
    assert all(hit["columns"] == {"[who]": "ada" if hit["row"] else "", "nr": str(hit["row"])} for hit in hits)
    assert all(hit["text"] == SENTENCES[hit["row"]] for hit in hits)
    shown = _call(*search, "--show", "[who]")
    assert "[who]" in shown.stdout and "ada" in shown.stdout


def test_rows_without_a_sentence_are_left_out_counted_and_reported(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """As spreadsheets leave them behind, in the middle and at the end."""
    texts = ["", SENTENCES[0], " ", "NULL", SENTENCES[1], ""]
    (tmp_path / "corpus.csv").write_text("key;text\n" + "".join(f"{n if text.strip() else ''};{text}\n" for n, text in enumerate(texts)))
    given = (tmp_path / "corpus.csv", "--column", "text")
    answer = _call("search", tiny_encoder_dir, "a man", "--corpus", *given, "--format", "json")
    assert {hit["row"]: hit["text"] for hit in json.loads(answer.stdout)[0]["hits"]} == {n: texts[n] for n in (1, 3, 4)}
    assert "3 rows without a sentence are left out, row 1 first." in answer.stderr
    refused = _call("encode", tiny_encoder_dir, *given, "--out", tmp_path / "o.npy").stderr
    assert "row 1, text: found no sentence" in refused
    kept = _call("encode", tiny_encoder_dir, *given, "--id", "key", "--out", tmp_path / "o.parquet")
    assert "3 embeddings" in kept.stdout and pq.read_table(tmp_path / "o.parquet")["id"].to_pylist() == ["1", "3", "4"]
