"""Embedding, searching and making shards over workers: what each worker is given, keeps to and tells. Ray is stood in for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.data.texts import open_texts
from sentdist.execution import reserved
from sentdist.execution.board.diagnosis import Heartbeat
from sentdist.execution.cluster.nodes import ClusterNodes, Node
from sentdist.execution.demand import pool_demand, stage_demand
from sentdist.execution.parallel import embed, file_encoder, pool, shards
from sentdist.execution.parallel import embed as nearest
from sentdist.inference.nearest import CorpusSearch, Queries, SameEncoder, Tile, TileReader
from sentdist.inference.ready_encoder import encode_file
from sentdist.learning.encoder.tokens import UnknownWords
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.specs import EncoderUse
from sentdist.plan.stages import Targets
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.store.store import ArtifactStore
from tests.support.every_stage import one_of_each
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.unit.execution.test_pool import Cluster

NODES = (Node(cpus=8.0, gpus=4.0),)


def _there(monkeypatch: pytest.MonkeyPatch, module: Any, given: Mock, *, order: Callable[[list[Any]], Iterable[Any]] = reversed) -> None:
    """Workers in this process, whose parts come back in another order."""

    def over_workers(worker: Any, arguments: Any, parts: Any, **options: Any) -> Iterator[tuple[Any, Any]]:
        given(arguments, **options)
        one = worker(*arguments)
        yield from ((part, one.work(part)) for part in order(list(parts)))

    monkeypatch.setattr(module, "over_workers", over_workers)
    monkeypatch.setattr(pool, "connect", lambda: None)
    monkeypatch.setattr(pool, "cluster_growth", lambda: ClusterNodes(living=NODES))


def test_sentences_that_workers_embed_come_back_in_their_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given, checked, reserves = Mock(), Mock(), Mock()
    _there(monkeypatch, embed, given)
    monkeypatch.setattr(
        embed, "embed_here", lambda stage, context: lambda texts, prompt: np.array([[float(prompt + text)] for text in texts], np.float32)
    )
    monkeypatch.setattr(embed, "check_inputs", checked)
    monkeypatch.setattr(reserved, "use_reserved", reserves)
    stage: Any = one_of_each()["scores"]
    runtime = Runtime(engine="torch", workers=2, gpus_per_worker=0.5)
    done: list[tuple[int, int]] = []
    reported: list[str] = []
    embedded = embed.embed_over_workers(
        stage,
        Context(store=ArtifactStore(tmp_path), runtime=runtime),
        on_progress=lambda *so_far: done.append(so_far),
        tell=reported.append,
    )
    assert reported == ["over 2 workers, on 1 GPU(s); idle: 3 (bound by --workers)"]
    sentences = [str(number) for number in range(1_300)]
    assert embedded(sentences)[:, 0].tolist() == list(map(float, sentences))
    demand = pool_demand(runtime, gpus=0.5)
    assert given.call_args.kwargs["demand"] == demand
    reserves.assert_called_once_with(demand), "the encoder is loaded once, within what the worker has reserved"
    assert checked.call_count == len(done) == 3 and done[-1] == (1_300, 1_300), "each part is of the encoder as it was"
    assert embedded(["3", "4"], "1")[:, 0].tolist() == [13.0, 14.0], "behind the prompt"


@pytest.mark.parametrize(("embeddings", "gpus"), [(None, 1.0), (Path("embeddings.npy"), 0.0)])
def test_who_searches_a_file_of_embeddings_takes_no_gpu(embeddings: Path | None, gpus: float, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Mock()
    _there(monkeypatch, nearest, given)
    monkeypatch.setattr(nearest.ray, "put", lambda value: value)
    corpus = SimpleNamespace(tiles=lambda: iter(()))
    reader = TileReader(encoder=SameEncoder(use=EncoderUse(checkpoint="x"), digest=None), embeddings=embeddings)
    reported: list[str] = []
    search: Any = nearest.search_over_workers(
        Mock(),
        corpus,
        reader,
        np.zeros((1, 2)),
        depth=1,
        runtime=Runtime(workers=2),
        tell=reported.append,  # type: ignore[arg-type]
    )
    assert list(search) == []
    (line,) = reported
    assert line.startswith("over 2 workers, on 2 GPU(s)" if gpus else "over 2 workers, on CPUs; idle: 4 GPU(s)"), line
    assert given.call_args.kwargs["demand"].num_gpus == gpus
    assert given.call_args.args[0][-1].gpus_per_worker == gpus, "the worker opens its encoder on that device"


def test_sentences_without_a_known_word_are_counted_where_workers_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the corpus, whatever order tiles come back in; of a search over workers none were reported."""
    _there(monkeypatch, nearest, Mock())
    monkeypatch.setattr(nearest.ray, "put", lambda value: value)
    monkeypatch.setattr(reserved, "use_reserved", Mock())
    one: Any = SimpleNamespace(unknown=UnknownWords())

    def embed(sentences: list[str]) -> np.ndarray:
        one.unknown.add(_unknown([text for text in sentences if text.startswith("?")]))
        return np.eye(2)[: len(sentences)]

    one.embed = embed
    monkeypatch.setattr(SameEncoder, "load", lambda self, device: one)
    sentences = [["a", "?1"], ["b", "c"], ["?2", "?3"]]
    tiles = [Tile(first_row=2 * number, num_rows=2, sentences=two, ids=None) for number, two in enumerate(sentences)]
    search = CorpusSearch(Queries(vectors=np.ones((1, 2)), scale=np.ones(1)), depth=1)
    reader = TileReader(encoder=SameEncoder(use=EncoderUse(checkpoint="x"), digest=None), embeddings=None)
    unknown, corpus = UnknownWords(), SimpleNamespace(tiles=lambda: iter(tiles))
    over_workers: Any = nearest.search_over_workers
    assert list(over_workers(search, corpus, reader, np.ones((1, 2)), depth=1, runtime=Runtime(workers=2), unknown=unknown)) == [2, 4, 6]
    assert (unknown.num_sentences, unknown.first) == (3, "?1")


def test_a_file_that_workers_encode_is_written_in_its_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With ids, in parts of several a worker, and with those sentences counted of which no word is known, the first of the file first."""
    given, reserves, opened = Mock(), Mock(), Mock()
    _there(monkeypatch, file_encoder, given)
    monkeypatch.setattr(reserved, "use_reserved", reserves)
    use = EncoderUse(checkpoint="minilm-l6")

    def load(use: EncoderUse, device: str) -> Any:
        def embed(sentences: list[str]) -> np.ndarray:
            strange = [text for text in sentences if int(text) % 500 == 7]
            one.unknown.add(_unknown(strange))
            return np.array([[float(text)] for text in sentences], np.float32)

        opened(use, device)
        one = SimpleNamespace(embed=embed, unknown=UnknownWords())
        return one

    monkeypatch.setattr(file_encoder.LoadedEncoder, "load", load)
    texts = tmp_path / "texts.csv"
    texts.write_text("text,name\n" + "".join(f"{number},n{number}\n" for number in range(1_300)))
    loaded: Any = SimpleNamespace(use=use, folder=Path(), digest=SimpleNamespace(whole=None), facts={}, width=1, unknown=UnknownWords())
    runtime = Runtime(engine="torch", workers=2, cpus_per_worker=0.5)
    on_cluster = file_encoder.WorkerEncoding.on_cluster(loaded, runtime)
    assert on_cluster.devices == "over 2 workers, on 2 GPU(s); idle: 2 (bound by --workers)"
    out = tmp_path / "out.parquet"
    found = open_texts(str(texts), columns=("text",), id_column="name")
    parts = replace(found, num_rows=1_300)
    assert list(encode_file(loaded, parts, out, batches=on_cluster.batches)) == [512, 1024, 1300]
    table = pq.read_table(out).to_pydict()
    assert table["id"] == [f"n{number}" for number in range(1_300)]
    assert np.concatenate(table["embedding"]).tolist() == list(range(1_300))
    assert (loaded.unknown.num_sentences, loaded.unknown.first) == (3, "7")
    reserves.assert_called_once_with(given.call_args.kwargs["demand"]), "the encoder is loaded once, within what the worker has reserved"
    opened.assert_called_once_with(use, "cuda")
    list(encode_file(loaded, found, out, batches=file_encoder.WorkerEncoding.on_cluster(loaded, runtime.with_gpus(0.0)).batches))
    assert opened.call_args.args == (use, "cpu")


def test_batches_that_come_before_their_turn_do_not_pile_up_behind_a_slow_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the file's order all the same; what is read of the file is bounded, too."""
    cluster = Cluster(slow=[0])
    for name in ("remote", "wait", "get", "kill"):
        monkeypatch.setattr(pool.ray, name, getattr(cluster, name))
    monkeypatch.setattr(reserved, "use_reserved", Mock())
    monkeypatch.setattr(file_encoder, "SENTENCES_AT_ONCE", 10)
    one: Any = SimpleNamespace(
        embed=lambda sentences: np.array([[float(text)] for text in sentences], np.float32),
        unknown=UnknownWords(),
        use=EncoderUse(checkpoint="minilm-l6"),
        folder=Path(),
        digest=SimpleNamespace(whole=None),
    )
    monkeypatch.setattr(file_encoder.LoadedEncoder, "load", lambda use, device: one)
    texts = tmp_path / "texts.csv"
    texts.write_text("text\n" + "".join(f"{number}\n" for number in range(400)))
    opened = open_texts(str(texts), columns=("text",))
    num_read = 0

    def batches(size: int) -> Iterator[Any]:
        nonlocal num_read
        for batch in opened.batches(size):
            num_read += 1
            yield batch

    runtime = Runtime(engine="torch", workers=4)
    encoding = file_encoder.WorkerEncoding(loaded=one, runtime=runtime, devices="")
    given: Any = SimpleNamespace(num_rows=None, columns=opened.columns, batches=batches)
    ahead, rows = list[int](), list[float]()
    for number, (batch, embeddings) in enumerate(encoding.batches(given)):
        ahead.append(num_read - number)
        rows.extend(embeddings[:, 0].tolist())
        assert batch["text"] == [f"{row:g}" for row in embeddings[:, 0]]
    assert rows == list(map(float, range(400)))
    assert max(ahead) <= 2 * file_encoder.AHEAD_PER_WORKER * 4 < 40, "once while those that waited are written, as many again are read"


def _unknown(sentences: list[str]) -> UnknownWords:
    found = UnknownWords()
    found.num_sentences, found.first = len(sentences), next(iter(sentences), "")
    return found


class Sink:
    every_s = 1000.0

    def __init__(self) -> None:
        self.beats: list[Heartbeat] = []

    def beat(self, heartbeat: Heartbeat) -> None:
        self.beats.append(heartbeat)


def test_workers_that_make_shards_are_distinguished_and_what_a_lost_one_left_is_no_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = tiny_values(Path("minilm-l6")) | {
        "evaluation": {"tasks": ["stsb"], "probes": {}},
        "targets": {"tagger": "tests.support.tiny_tagger:tag", "num_words": 12},
        "methods": {"base": {}},
        "baseline": None,
        "runtime": {"rows_per_shard": 40, "workers": 2},
    }
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    build_here(next(stage for stage in plan.stages if isinstance(stage, RowsCorpus)), context)
    (stage,) = (stage for stage in plan.stages if isinstance(stage, Targets))
    given, reserves, sink = Mock(), Mock(), Sink()

    def leaving(parts: list[int]) -> Iterable[int]:
        folder = given.call_args.args[0][3]
        (folder / "shards" / "00000.npz.part").write_bytes(b"?")
        return parts[::-1]

    _there(monkeypatch, shards, given, order=leaving)
    monkeypatch.setattr(shards, "use_reserved", reserves)
    artifact = shards.build_over_workers(stage, context, sink=sink)
    num_shards = -(-shards.body_of(stage, context).num_rows // 40)
    assert num_shards > 1 and not any("part" in name for name in artifact.record.files), artifact.record.files
    ended = [beat.worker for beat in sink.beats if beat.is_last]
    assert sorted(ended) == [f"shard {number}" for number in range(num_shards)], "or the end of one would be the end of all"
    assert {beat.key for beat in sink.beats} == {stage.key}
    reserves.assert_called_once_with(stage_demand(stage, context.runtime))
