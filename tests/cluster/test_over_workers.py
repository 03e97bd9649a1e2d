"""Embedding, evaluating, encoding and searching over workers: the results of one process, also when a worker raises or is lost."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner

from sentdist.data.corpus import write_corpus
from sentdist.data.texts import open_texts
from sentdist.errors import DataError, ResourceError, StoreError
from sentdist.learning.bank import FileBank
from sentdist.recipe.corpora.rows import RowsCorpus
from sentdist.recipe.sections import Runtime
from sentdist.recipe.stages import Bank, Train
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore
from tests.cluster.artificial_banks import bank_stage
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


SENTENCES = 1100  # three shards for two workers, the last one short
STAGE: Bank = bank_stage(0, dtype="float32").model_copy(update={"max_length": 20})


def _with_inputs(store: ArtifactStore, encoder: Path) -> Context:
    """A store in which the corpus and the entropy encoder of the stage are finished."""
    words = ["a man", "a woman", "the dog", "runs", "sings", "in the house", "near the street"]
    draw = np.random.default_rng(0)
    sentences = [f"{' '.join(draw.choice(words, size=1 + number % 9))}" for number in range(SENTENCES)]
    ids = np.arange(SENTENCES, dtype=np.int32).reshape(2, -1)
    _commit(store, STAGE.corpus, lambda folder: write_corpus(folder, ids_CR=ids, sentences=iter([pa.array(sentences)])))
    _commit(store, STAGE.encoder, lambda folder: shutil.copytree(encoder, folder, dirs_exist_ok=True))
    return Context(store=store, runtime=RUNTIME)


def _commit(store: ArtifactStore, stage: RowsCorpus | Train, write: object) -> Artifact:
    assert callable(write)
    with store.staged() as folder:
        write(folder)
        return store.commit(stage, folder, seconds=0.0, runtime={}, environment={}, results={})


@pytest.fixture(scope="module")
def object_store() -> Iterator[ArtifactStore]:
    """An S3-compatible server in this process. The address carries the credentials, because the workers were started before it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret")
    client.create_bucket(Bucket="artifacts")
    yield ArtifactStore(f"s3://key:secret@artifacts/{uuid.uuid4().hex}?scheme=http&region=us-east-1&endpoint_override={host}:{port}")
    client.close()
    server.stop()


def test_workers_give_the_scores_of_one_process_and_keep_what_they_embed(
    cluster: Any, tiny_encoder_dir: Path, data: Path, tmp_path: Path
) -> None:
    from sentdist.run.parallel.embed import embed_over_workers
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


def test_workers_make_the_bank_of_one_process(cluster: Any, tiny_encoder_dir: Path, object_store: ArtifactStore, tmp_path: Path) -> None:
    """On an object store; and what a worker raises arrives as it was."""
    from sentdist.run.parallel.shards import build_over_workers
    from sentdist.stages.sharded import body_of, build_in_shards

    here, there = (_with_inputs(store, tiny_encoder_dir) for store in (ArtifactStore(tmp_path / "store"), object_store))
    artifact = build_over_workers(STAGE, there)
    assert [name for name in artifact.record.files if name.startswith("shards/")] == [f"shards/{number:05d}.npy" for number in range(3)]
    assert artifact.record.results["num_sentences"] == SENTENCES
    ids = np.arange(SENTENCES)
    expected = FileBank([here.store.folder(build_in_shards(STAGE, here, body=body_of(STAGE, here)))]).rows(ids)
    # Batches are cut at other places, so sums are taken in another order: some float32 roundings (6e-8) of numbers around 1.
    np.testing.assert_allclose(FileBank([there.store.folder(artifact)]).rows(ids), expected, atol=2e-6)
    for lost in (STAGE, STAGE.encoder):
        found = here.store.get(lost)
        assert found is not None
        here.store.drop(found)
    with pytest.raises(StoreError, match="a finished input"):
        build_over_workers(STAGE, here)
    assert os.listdir(tmp_path / "store" / ".staging") == []


def test_workers_find_what_one_process_finds_also_when_one_is_lost(
    cluster: Any, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentdist.inference.nearest import CorpusSearch, SameEncoder, SearchedFiles, TileReader, embed_queries, search_here
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.recipe.specs import EncoderUse
    from sentdist.run.parallel.embed import search_over_workers

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
    cluster.kill_actor("TileSearcher")
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
