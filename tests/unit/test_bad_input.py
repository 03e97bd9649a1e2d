"""What every kind of task says of an encoder that has diverged or collapsed: an error or "not defined", never a number that looks real."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import DataError
from sentdist.learning.encoder import encode as embedding
from tests.support.tasks_data import evaluated, write_table

KINDS = ("sts", "pairs", "reranking", "retrieval", "classification", "clustering")
TASKS = {**{kind: f"{kind}=my/{kind}" for kind in KINDS}, "geometry": "geometry-stsb"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six texts in a task of every kind, each with all that it needs."""
    root = tmp_path_factory.mktemp("data")
    texts = ["a dog runs", "a cat sleeps", "the man sings", "the woman reads", "a bird sees a house", "a child eats food"]
    pairs = [{"sentence1": one, "sentence2": other} for one in texts for other in texts if one < other]
    graded = [{**pair, "score": float(number % 6), "split": "test"} for number, pair in enumerate(pairs)]
    write_table(root, "my/sts", graded)
    write_table(root, "sts/stsb", graded)
    write_table(root, "my/pairs", [{**pair, "label": number % 2} for number, pair in enumerate(pairs)])
    write_table(root, "my/clustering", [{"text": text, "label": str(number % 2)} for number, text in enumerate(texts)])
    labelled = [
        {"text": f"{text} {word}", "label": str(number % 2)}
        for number, text in enumerate(texts)
        for word in ("", "today", "not", "quickly")
    ]
    write_table(root, "my/classification", labelled)
    candidates = [
        {"query_id": f"q{number % 3}", "query": texts[number % 3], "document_id": f"d{number}", "document": text, "relevance": number // 3}
        for number, text in enumerate(texts)
    ]
    write_table(root, "my/reranking", candidates)
    write_table(root, "my/retrieval_docs", [{"doc_id": f"d{number}", "text": text, "title": ""} for number, text in enumerate(texts)])
    write_table(root, "my/retrieval_queries", [{"query_id": f"q{number}", "query": texts[number]} for number in range(3)])
    write_table(root, "my/retrieval_qrels", [{"query_id": f"q{number}", "doc_id": f"d{number}", "relevance": 1} for number in range(3)])
    return root


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_an_error_in_every_task(
    kind: str, value: float, tiny_encoder_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = embedding.encode

    def spoiled(*given: object, **options: object) -> np.ndarray:
        found = real(*given, **options)  # type: ignore[arg-type]
        found[1, 3] = value
        return found

    monkeypatch.setattr(embedding, "encode", spoiled)
    with pytest.raises(DataError, match="NaN"):
        evaluated(tiny_encoder_dir, (TASKS[kind],), data=data, store=tmp_path / "store")


@pytest.mark.parametrize("kind", ["sts", "pairs", "reranking", "retrieval", "clustering"])
def test_an_encoder_that_gives_all_texts_one_embedding_has_no_score(
    kind: str, tiny_encoder_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "encode", lambda encoder, sentences, **options: np.ones((len(sentences), 4), dtype=np.float32))
    artifact, _ = evaluated(tiny_encoder_dir, (TASKS[kind],), data=data, store=tmp_path / "store")
    own = f"{kind}-my-{kind}"
    measures = {name: value for name, value in artifact.record.results.items() if name.startswith(own) and name != f"{own}.share"}
    assert measures and set(measures.values()) == {None}
    answer = CliRunner().invoke(
        app, ["evaluate", str(tiny_encoder_dir), "--tasks", TASKS[kind], "--data", str(data), "--store", str(tmp_path / "store")]
    )
    assert answer.exit_code == 0 and "–" in answer.output


def test_more_folds_than_rows_are_an_error(tiny_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"of 6 rows labelled '\d'; expected 12 rows of each label or more, for 10 folds"):
        evaluated(tiny_encoder_dir, ("classification=my/clustering",), data=data, store=tmp_path / "store")


def test_an_encoder_without_a_tokenizer_is_refused(tiny_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((tiny_encoder_dir / name).read_bytes())
    answer = CliRunner().invoke(
        app, ["evaluate", str(bare), "--tasks", TASKS["sts"], "--data", str(data), "--store", str(tmp_path / "store")]
    )
    assert answer.exit_code == 2 and "no tokenizer" in answer.stderr
