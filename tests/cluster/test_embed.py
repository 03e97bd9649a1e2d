"""Embedding a corpus over workers: the same bank as from one process, on a file system and on an object store."""

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

from sentdist.data.corpus import write_corpus
from sentdist.errors import StoreError
from sentdist.learning.bank import FileBank
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import Bank, Train
from sentdist.stages.context import Context
from sentdist.store.store import Artifact, ArtifactStore
from tests.cluster.artificial_banks import bank_stage

pytestmark = pytest.mark.cluster

SENTENCES = 1100  # three shards for two workers, the last one short
RUNTIME = Runtime(workers=2, cpus_per_worker=0.5, engine="torch")
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


def _table(context: Context, artifact: Artifact) -> np.ndarray:
    return FileBank([context.store.folder(artifact)]).rows(np.arange(SENTENCES)).numpy()[0]


@pytest.fixture(scope="module")
def expected(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    from sentdist.stages.sharded import body_of, build_in_shards

    context = _with_inputs(ArtifactStore(tmp_path_factory.mktemp("one-process")), tiny_encoder_dir)
    return _table(context, build_in_shards(STAGE, context, body=body_of(STAGE, context)))


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", [pytest.param("local", marks=pytest.mark.nightly), "s3"])
def test_workers_make_the_bank_of_one_process(
    kind: str,
    cluster: Any,
    tiny_encoder_dir: Path,
    expected: np.ndarray,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    from sentdist.execution.parallel.shards import build_over_workers

    store = ArtifactStore(tmp_path / "store") if kind == "local" else request.getfixturevalue("object_store")
    context = _with_inputs(store, tiny_encoder_dir)
    artifact = build_over_workers(STAGE, context)
    assert [name for name in artifact.record.files if name.startswith("shards/")] == [f"shards/{number:05d}.npy" for number in range(3)]
    assert artifact.record.results["num_sentences"] == SENTENCES
    # Batches are cut at other places, so sums are taken in another order: some float32 roundings (6e-8) of numbers around 1.
    np.testing.assert_allclose(_table(context, artifact), expected, atol=2e-6)


def test_what_a_worker_raises_arrives_as_it_was(cluster: Any, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    from sentdist.execution.parallel.shards import build_over_workers

    context = _with_inputs(ArtifactStore(tmp_path / "store"), tiny_encoder_dir)
    encoder = context.store.get(STAGE.encoder)
    assert encoder is not None
    context.store.drop(encoder)
    with pytest.raises(StoreError, match="a finished input"):
        build_over_workers(STAGE, context)
    assert os.listdir(tmp_path / "store" / ".staging") == []
