"""Embedding, evaluating, encoding and searching over workers: the results of one process, also when a worker raises or is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sentdist.data.texts import open_texts
from sentdist.errors import DataError, ResourceError
from sentdist.recipe.sections import Runtime
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.tasks_data import stage_of, write_table

ROWS_PER_TILE, DEPTH = 50, 12
pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
RUNTIME = Runtime(engine="torch", workers=2, cpus_per_worker=0.5)
WORDS = ["a man", "a woman", "the dog", "runs", "sings", "in the house", "near the street", "today"]
TASKS = ("sts=my/pairs", "pairs=my/paraphrases")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More different sentences than two parts hold, of one to six words, as graded pairs and as paraphrases or not."""
    root, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    sentences = list(dict.fromkeys(" ".join(draw.choice(WORDS, size=1 + number % 6)) for number in range(2200)))
    halves = list(zip(sentences[::2], sentences[1::2], strict=False))
    pairs = [{"sentence1": one, "sentence2": other, "score": float(number % 6)} for number, (one, other) in enumerate(halves)]
    paraphrases = [{"sentence1": one, "sentence2": other, "label": number % 2} for number, (one, other) in enumerate(halves[:300])]
    write_table(root, "my/pairs", pairs)
    write_table(root, "my/paraphrases", paraphrases)
    return root


def _context(store: Path, data: Path, folders: dict[str, str], *, runtime: Runtime) -> Context:
    return Context(store=ArtifactStore(str(store)), data_root=str(data), runtime=runtime, folders=folders, keeps_embeddings=True)


def _kept(store: Path) -> np.ndarray:
    (file,) = (store / "encoded").rglob("embeddings.npy")
    return np.load(file)


def _scores(artifact: Artifact) -> dict[str, object]:
    return {name: value for name, value in artifact.record.results.items() if isinstance(value, float)}


def test_workers_give_the_scores_of_one_process_and_keep_what_they_embed(
    cluster: Any, tiny_encoder_dir: Path, data: Path, tmp_path: Path
) -> None:
    from sentdist.run.embed import embed_over_workers
    from sentdist.stages.scores import build_scores

    stage, resolver = stage_of(tiny_encoder_dir, TASKS, data)
    here = build_scores(stage, _context(tmp_path / "here", data, resolver.folders, runtime=Runtime(engine="torch")))
    there = build_scores(stage, _context(tmp_path / "there", data, resolver.folders, runtime=RUNTIME), make_embed=embed_over_workers)
    assert len(_kept(tmp_path / "there")) > 2 * 512, "three parts for two workers"
    # Batches are cut at other places, so sums are taken in another order: some float32 roundings (6e-8) of numbers around 1.
    np.testing.assert_allclose(_kept(tmp_path / "there"), _kept(tmp_path / "here"), atol=2e-6)
    assert _scores(there) == pytest.approx(_scores(here), abs=0.05), "near ties may change places"
    again, _ = stage_of(tiny_encoder_dir, TASKS[:1], data)
    build_scores(again, _context(tmp_path / "there", data, resolver.folders, runtime=RUNTIME))
    assert len(list((tmp_path / "there/encoded").rglob("embeddings.npy"))) == 1, "nothing was embedded again"


def test_a_file_is_encoded_over_workers_as_in_one_process(cluster: Any, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentdist.cli import app

    lines = [" ".join(WORDS[: 1 + number % 8]) for number in range(1_100)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    for name, workers in (("here", ()), ("there", ("--workers", "2"))):
        command = ["encode", str(tiny_encoder_dir), str(tmp_path / "lines.txt"), "--out", str(tmp_path / f"{name}.npy"), *workers]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert "Encoding over 2 workers, on CPUs." in done.output
    here, there = (np.load(tmp_path / f"{name}.npy") for name in ("here", "there"))
    np.testing.assert_allclose(there, here, atol=2e-6)  # as above


def test_workers_find_what_one_process_finds_also_when_one_is_lost(
    cluster: Any, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentdist.inference.nearest import CorpusSearch, SameEncoder, SearchedFiles, TileReader, embed_queries, search_here
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.recipe.specs import EncoderUse
    from sentdist.run.embed import search_over_workers

    draw = np.random.default_rng(0)
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(" ".join(draw.choice(WORDS, size=1 + number % 4)) for number in range(430)))  # few words, so that many tie
    monkeypatch.setattr(SearchedFiles.tiles, "__defaults__", (ROWS_PER_TILE,))
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(tiny_encoder_dir)))
    queries = embed_queries(loaded, ["a man sings", "the dog runs today", "near a house"], {})
    corpus, here, there = (
        SearchedFiles(texts=open_texts(str(path)), embeddings=None),
        *(CorpusSearch(queries, depth=DEPTH) for _ in range(2)),
    )
    reader = TileReader(encoder=SameEncoder.of(loaded), embeddings=None)
    assert list(search_here(here, corpus, reader.open(loaded)))[-1] == 430
    steps = search_over_workers(there, corpus, reader, queries.vectors, depth=DEPTH, runtime=RUNTIME)
    next(steps)
    cluster.kill_actor("PoolWorker")
    reported = list(steps)
    assert len(reported) == 8 and reported[-1] == 430
    for query in range(3):
        assert there.hits(query) == here.hits(query)
        assert len({hit["score"] for hit in here.hits(query)}) < DEPTH, "there are ties to break"
    gone = TileReader(encoder=SameEncoder.of(loaded), embeddings=tmp_path / "gone.npy")
    with pytest.raises(DataError, match=r"gone\.npy"):
        list(search_over_workers(there, corpus, gone, queries.vectors, depth=DEPTH, runtime=RUNTIME))
    with pytest.raises(ResourceError, match="on 1 node"):
        list(search_over_workers(there, corpus, reader, queries.vectors, depth=DEPTH, runtime=Runtime(engine="torch", workers=9)))
