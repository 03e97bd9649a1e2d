"""Encoders in use, from the command line: encode."""

from __future__ import annotations

import shutil
from pathlib import Path

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
        assert "there already" in _call("encode", tiny_encoder_dir, "-", "--out", tmp_path / "out.npy", stdin="a man").stderr
        assert (tmp_path / "out.npy").read_text() == "precious"
        assert _call("encode", tiny_encoder_dir, "-", "--out", tmp_path / "out.npy", "--overwrite", stdin="a man").exit_code == 0
        (tmp_path / "out.npy").unlink()
    out = tmp_path / "out.parquet"
    answer = _call("encode", tiny_encoder_dir, corpus, "--column", "text", "--id", "id", "--normalize", "--dtype", "float16", "--out", out)
    table = pq.read_table(out)
    assert table["id"].to_pylist() == [f"d{number}" for number in range(len(SENTENCES))] and "float16" in answer.output
    assert table.schema.field("embedding").type.value_type == "halffloat"
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), unit, atol=5e-4)  # float16 has 11 bits


def test_precision_and_length_reach_the_encoder(expected: np.ndarray, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    found = {}
    for name, options in {"bf16": ("--precision", "bf16"), "short": ("--max-length", "4"), "cls": ("--pooling", "cls")}.items():
        answer = _call("encode", tiny_encoder_dir, "-", *options, "--out", tmp_path / f"{name}.npy", stdin="\n".join(SENTENCES))
        assert answer.exit_code == 0, answer.output
        found[name] = np.load(tmp_path / f"{name}.npy")
    assert 0 < np.abs(found["bf16"] - expected).max() < 0.1
    np.testing.assert_allclose(found["short"], encode(SentenceEncoder.load(tiny_encoder_dir), SENTENCES, max_length=4), **CLOSE)
    assert np.abs(found["cls"] - expected).max() > 0.1


MISTAKES = [
    (("{encoder}", "{corpus}x", "--out", "{out}"), "Did you mean"),
    (("{encoder}", "{corpus}", "--column", "test", "--out", "{out}"), 'Did you mean "text"?'),
    (("{encoder}", "-", "--out", "{corpus}"), "suffix '.csv'"),
    (("{encoder}", "-", "--out", "{out}", "--dtype", "int8"), "--dtype"),
    (("{encoder}", "-", "--out", "{out}", "--id", "id"), "--id"),
    (("{encoder}", "-", "--out", "{out}", "--pooling", "cls_mlp"), "no weights of a dense layer"),
    (("{silent}", "-", "--out", "{out}"), "no tokenizer"),
    (("{encoder}", "-", "--out", "{out}"), "row 2, sentence: found ''"),
    (("{corpus}", "{encoder}", "--out", "{out}"), "Turn them"),
]


def test_a_mistake_leaves_one_sentence_and_no_file(corpus: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
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
    assert said in (alike := _call("similarity", tiny_encoder_dir, "你好", "再见")).stderr and alike.stdout == "1.000000\n"
    assert "without a word" not in _call("similarity", tiny_encoder_dir, "the zebra", "a dog !").stderr


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


def test_rows_that_a_spreadsheet_left_empty_are_none_or_named(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Empty rows at the end, as spreadsheets write them, were refused; of others one alone was named."""
    table, out = tmp_path / "sheet.csv", tmp_path / "out.npy"
    table.write_text("nr;text\n1;a man\n2;the dog\n;\n ;\n;\n")
    call = ("encode", tiny_encoder_dir, table, "--column", "text")
    assert "2 embeddings" in _call(*call, "--out", out).stdout
    table.write_text("nr;text\n1;a man\n2;\n;\n4;the dog\n5;\n;\n")
    refused = _call(*call, "--out", out, "--overwrite").stderr
    assert "rows 2, 3, 5, text: found no sentences" in refused and "--id nr --out out.parquet" in refused, refused
    kept = _call(*call, "--id", "nr", "--out", out.with_suffix(".parquet"))
    assert "2 embeddings" in kept.stdout and "3 rows without a sentence are left out, row 2 first" in kept.stderr, kept.output
    assert pq.read_table(out.with_suffix(".parquet"))["id"].to_pylist() == ["1", "4"]
