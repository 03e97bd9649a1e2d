"""Searching over workers: the hits of one process, from sentences and from embeddings; what a worker raises; workers that are lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sentdist.data.texts import open_texts
from sentdist.errors import DataError, ResourceError
from sentdist.plan.sections import Runtime

pytestmark = pytest.mark.cluster

ROWS_PER_TILE = 50
DEPTH = 12
RUNTIME = Runtime(engine="torch", workers=2, cpus_per_worker=0.5)
WORDS = ["a man", "a woman", "the dog", "runs", "sings", "in the house", "near the street", "today"]


@pytest.fixture(scope="module")
def corpus_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """430 sentences of few words, so that many tie."""
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(" ".join(draw.choice(WORDS, size=1 + number % 4)) for number in range(430)))
    return path


@pytest.fixture
def scene(corpus_file: Path, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is searched, with small tiles: from its sentences, or from a file of embeddings."""
    from sentdist.inference.embedding_file import embedding_writer
    from sentdist.inference.nearest import CorpusSearch, SameEncoder, SearchedFiles, TileReader, embed_queries
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.plan.specs import EncoderUse

    monkeypatch.setattr(SearchedFiles.tiles, "__defaults__", (ROWS_PER_TILE,))
    use = EncoderUse(checkpoint=str(tiny_encoder_dir))

    class Scene:
        loaded = LoadedEncoder.load(use)
        queries = embed_queries(loaded, ["a man sings", "the dog runs today", "near a house"], {})

        def corpus(self, kind: str) -> SearchedFiles:
            texts = open_texts(str(corpus_file))
            if kind == "sentences":
                return SearchedFiles(texts=texts, embeddings=None)
            path = tmp_path / "embeddings.npy"
            with embedding_writer(path, width=32, dtype="float16", facts=self.loaded.facts, with_ids=False) as writer:
                for batch in texts.batches(ROWS_PER_TILE):
                    writer.write(self.loaded.embed(batch["sentence"]), None)
            return SearchedFiles(texts=texts, embeddings=path)

        def reader(self, corpus: SearchedFiles) -> TileReader:
            return TileReader(encoder=SameEncoder.of(self.loaded), embeddings=corpus.embeddings)

        def search(self) -> CorpusSearch:
            return CorpusSearch(self.queries, depth=DEPTH)

    return Scene()


@pytest.mark.parametrize("kind", ["sentences", "embeddings"])
def test_workers_find_what_one_process_finds(kind: str, cluster: Any, scene: Any) -> None:
    from sentdist.execution.parallel.embed import search_over_workers
    from sentdist.inference.nearest import search_here

    corpus, here, there = scene.corpus(kind), scene.search(), scene.search()
    reader = scene.reader(corpus)
    assert list(search_here(here, corpus, reader.open(scene.loaded)))[-1] == 430
    reported = list(search_over_workers(there, corpus, reader, scene.queries.vectors, depth=DEPTH, runtime=RUNTIME))
    assert len(reported) == 9
    assert reported[-1] == 430
    for query in range(3):
        assert there.hits(query) == here.hits(query)
        assert len({hit["score"] for hit in here.hits(query)}) < DEPTH, "there are ties to break"


def test_a_lost_worker_is_replaced(cluster: Any, scene: Any) -> None:
    from sentdist.execution.parallel.embed import search_over_workers
    from sentdist.inference.nearest import search_here

    corpus, here, there = scene.corpus("embeddings"), scene.search(), scene.search()
    reader = scene.reader(corpus)
    list(search_here(here, corpus, reader.open(scene.loaded)))
    steps = search_over_workers(there, corpus, reader, scene.queries.vectors, depth=DEPTH, runtime=RUNTIME)
    next(steps)
    cluster.kill_actor("TileSearcher")
    assert list(steps)[-1] == 430
    assert [there.hits(query) for query in range(3)] == [here.hits(query) for query in range(3)]


def test_what_a_worker_raises_arrives_as_it_was(cluster: Any, scene: Any, tmp_path: Path) -> None:
    from sentdist.execution.parallel.embed import search_over_workers
    from sentdist.inference.nearest import SameEncoder, TileReader

    corpus = scene.corpus("sentences")
    gone = TileReader(encoder=SameEncoder.of(scene.loaded), embeddings=tmp_path / "gone.npy")
    with pytest.raises(DataError, match=r"gone\.npy: found no such file"):
        list(search_over_workers(scene.search(), corpus, gone, scene.queries.vectors, depth=DEPTH, runtime=RUNTIME))


def test_more_workers_than_the_cluster_holds_are_refused(cluster: Any, scene: Any) -> None:
    from sentdist.execution.parallel.embed import search_over_workers

    corpus = scene.corpus("sentences")
    for runtime in (Runtime(engine="torch", workers=9), Runtime(engine="torch", workers=1, gpus_per_worker=1.0)):
        with pytest.raises(ResourceError, match="on 1 node"):
            list(search_over_workers(scene.search(), corpus, scene.reader(corpus), scene.queries.vectors, depth=DEPTH, runtime=runtime))
