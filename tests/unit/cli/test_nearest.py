"""`sentdist search`: the same hits however corpus, embeddings and queries are given; mistakes in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.execution.parallel import embed as nearest
from sentdist.execution.parallel import sharing
from sentdist.inference.nearest import search_here
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.relation_file import Relations, write_relations
from sentdist.plan.sections import Runtime
from sentdist.stages.devices import on_this_machine
from tests.support.tiny_encoders import SENTENCES, WIDTH

QUERIES = ("a dog sleeps", "many birds sing in the garden")
RELATIONS = Relations(names=("entailment", "twin"), vectors=np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32))


def _call(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"}, input=stdin)


def _hits(*arguments: str | Path, stdin: str | None = None) -> list[dict[str, Any]]:
    answer = _call("search", *arguments, "--format", "jsonl", stdin=stdin)
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.fixture(scope="module")
def files(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The corpus as a table and as plain text, its embeddings, others too narrow and too few, and an encoder with relations."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"key": f"d{n}", "body": text}) + "\n" for n, text in enumerate(SENTENCES)))
    (folder / "plain.txt").write_text("\n".join(SENTENCES))
    (folder / "queries.txt").write_text("\n".join(QUERIES))
    (folder / "asked.csv").write_text("body,said\n" + "".join(f"something else,{query}\n" for query in QUERIES))
    made = _call("encode", tiny_encoder_dir, folder / "plain.txt", "--out", folder / "embeddings.npy")
    assert made.exit_code == 0, made.output
    np.save(folder / "narrow.npy", np.ones((len(SENTENCES), 5), dtype=np.float32))
    np.save(folder / "few.npy", np.load(folder / "embeddings.npy")[:3])
    shutil.copytree(tiny_encoder_dir, folder / "related")
    write_relations(folder / "related", RELATIONS)
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
        (*QUERIES, "--corpus", "-"),
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


def test_small_tiles_keep_the_text_of_early_hits(
    files: dict[str, Path], expected: list[list[tuple[int, float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentdist.inference.nearest import SearchedFiles

    monkeypatch.setattr(SearchedFiles.tiles, "__defaults__", (2,))
    found = _hits(files["encoder"], *QUERIES, "--corpus", files["plain"], "-k", "3")
    assert [[hit["text"] for hit in answer["hits"]] for answer in found] == [[SENTENCES[row] for row, _ in best] for best in expected]


@pytest.mark.parametrize("weights", [(0.0, 1.0), (1.0, 0.5)])
def test_relations_move_the_query(weights: tuple[float, float], files: dict[str, Path]) -> None:
    asked = [f"--relation={name}={weight}" for name, weight in zip(RELATIONS.names, weights, strict=True)]
    (found,) = _hits(files["related"], SENTENCES[0], "--corpus", files["plain"], *asked, "-k", "8")
    embeddings = encode(SentenceEncoder.load(files["encoder"]), SENTENCES).astype(np.float64)
    scores = np.zeros(len(SENTENCES))
    for vector, weight in zip(RELATIONS.vectors, weights, strict=True):
        moved = embeddings[0] + vector
        scores += weight / sum(weights) * (embeddings @ moved / np.linalg.norm(embeddings, axis=1) / np.linalg.norm(moved))
    assert [hit["row"] for hit in found["hits"]] == np.argsort(-scores).tolist()
    np.testing.assert_allclose([hit["score"] for hit in found["hits"]], -np.sort(-scores), atol=3e-6)


def test_a_file_that_is_searched_for_as_a_sentence_is_reported(files: dict[str, Path]) -> None:
    """Its name was embedded, and hits were shown for it without a word."""
    reported = "is searched for as a sentence. The sentences of that file: --queries"
    found = _call("search", files["encoder"], files["queries"], "--corpus", files["plain"])
    assert found.exit_code == 0 and reported in found.stderr
    for query in ("gone.txt", "~nobody/x.txt", f"{'long ' * 1000}.txt"):
        assert reported not in _call("search", files["encoder"], query, "--corpus", files["plain"], "--max-length", "9").stderr


def test_a_table_shows_brackets_as_they_are(files: dict[str, Path]) -> None:
    answer = _call("search", files["encoder"], "a man", "--corpus", "-", "-k", "5", stdin="the [red]dog[/]\na cat")
    assert "the [red]dog[/]" in answer.stdout
    assert "The corpus has 2 sentences, fewer than 5: all of them are shown." in answer.stderr
    assert "fewer than" not in _call("search", files["encoder"], "a man", "--corpus", "-", "-k", "2", stdin="a dog\na cat").stderr
    shown = _call("search", files["encoder"], "a man", "--corpus", "-", stdin="a dog").stderr
    assert on_this_machine(Runtime())[1] in shown, "what is used and what lies idle"
    assert '"größer"' in _call("search", files["encoder"], "größer", "--corpus", files["plain"], "--format", "jsonl").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "--corpus", "{plain}x"), "no such file"),
        (("a", "--corpus", "{corpus}", "--column", "bodi"), 'Did you mean "body"?'),
        (("a", "--corpus", "-"), "standard input: found no rows"),
        (("a", "--embeddings", "{narrow}"), "embeddings of width 5; expected width 32"),
        (("a", "--embeddings", "{few}x"), "no such file"),
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
        (("a", "--corpus", "a dog sleeps"), "'a dog sleeps': found a sentence; expected a file of sentences"),
        (("--queries", "how are you?", "--corpus", "{plain}"), "'how are you?': found a sentence; expected a file"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(arguments: tuple[str, ...], words: str, files: dict[str, Path]) -> None:
    answer = _call("search", files["encoder"], *(argument.format(**files) for argument in arguments), stdin="")
    assert answer.exit_code == 2, answer.output
    assert words in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not answer.stdout


def test_embeddings_of_other_sentences_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    """As many, in another order: nothing else would tell that the hits are wrong."""
    (tmp_path / "turned.txt").write_text("\n".join(reversed(SENTENCES)))
    given = ("search", files["encoder"], "a dog sleeps", "--embeddings", files["embeddings"], "--corpus")
    assert _call(*given, files["plain"]).exit_code == 0
    refused = _call(*given, tmp_path / "turned.txt")
    assert refused.exit_code == 2 and "other sentences than those that were encoded" in refused.output, refused.output


@pytest.mark.parametrize("name", ["corpus.csv", "corpus.jsonl", "corpus.txt"])
def test_rows_without_a_sentence_are_left_out_counted_and_reported(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    """As spreadsheets leave them behind. The corpus was refused."""
    texts = ["", SENTENCES[0], " ", *SENTENCES[1:4], "", SENTENCES[4], ""]
    path = tmp_path / name
    rows = {
        "corpus.csv": "key;text\n" + "".join(f"{n if text else ''};{text}\n" for n, text in enumerate(texts)),
        "corpus.jsonl": "".join(json.dumps({"key": str(n), "text": text or None}) + "\n" for n, text in enumerate(texts)),
        "corpus.txt": "\n".join(texts),
    }
    path.write_text(rows[name])
    column = [] if name == "corpus.txt" else ["--column", "text"]
    answer = _call("search", files["encoder"], QUERIES[0], "--corpus", path, *column, "--format", "jsonl")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)["hits"]
    assert sorted(hit["row"] for hit in found) == [n for n, text in enumerate(texts) if text.strip()]
    assert all(texts[hit["row"]] == hit["text"] for hit in found)
    assert f"{4 if name == 'corpus.jsonl' else 3} rows without a sentence are left out, row 1 first." in answer.stderr
    assert "counted from 1, those of hits from 0" in answer.stderr, "else the row that is left out is shown as a hit"
    assert "embeddings" in files and "Drop or fill" in _call("encode", files["encoder"], path, *column, "--out", tmp_path / "o.npy").stderr


def test_a_corpus_without_any_sentence_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("key;text\n;\n;\n")
    assert "found no rows" in _call("search", files["encoder"], "one", "--corpus", tmp_path / "empty.csv", "--column", "text").stderr


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
    assert "columns" in _call(*search, "--show", "gone").stderr


def test_where_workers_share_this_machines_gpus_queries_are_embedded_on_one_before(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU many queries take long."""
    done: list[str] = []

    @contextmanager
    def shared_out(*_: object, **__: object) -> Iterator[Runtime]:
        yield Runtime(engine="torch", workers=2)

    def over_workers(found: Any, searched: Any, reader: Any, *_: object, **__: object) -> Iterator[int]:
        done.append("search")
        yield from search_here(found, searched, reader.open())

    def load(use: Any, device: str | None = None) -> LoadedEncoder:
        done.append(f"load on {device}")
        return real(use, device)

    real = LoadedEncoder.load
    monkeypatch.setattr(sharing, "shared_out", shared_out)
    monkeypatch.setattr(nearest, "search_over_workers", over_workers)
    monkeypatch.setattr(LoadedEncoder, "load", load)
    monkeypatch.setattr(LoadedEncoder, "leave_gpu", lambda self: done.append("leave"))
    here = _hits(files["encoder"], *QUERIES, "--corpus", files["plain"])
    assert done == ["load on None", "leave", "search", "load on None"], "the last is a worker's"
    monkeypatch.undo()
    assert here == _hits(files["encoder"], *QUERIES, "--corpus", files["plain"])
