"""Work shared out over workers: who does which part, what becomes of lost workers, what each is given and keeps to. Ray is stood in for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from ray.exceptions import ActorDiedError

from sentdist.data.texts import open_texts
from sentdist.errors import ResourceError
from sentdist.execution import reserved
from sentdist.execution.board.diagnosis import Heartbeat
from sentdist.execution.cluster.nodes import ClusterNodes, Node
from sentdist.execution.demand import Demand, pool_demand, stage_demand
from sentdist.execution.parallel import embed, file_encoder, pool, shards
from sentdist.execution.parallel import embed as nearest
from sentdist.execution.parallel.pool import LOSSES_PER_PART, over_workers
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

DEMAND = Demand(way="pool", workers=2, num_cpus=1.5, num_gpus=0.5)


class Squarer:
    def work(self, part: int) -> int:
        return part * part


class Cluster:
    """Answers calls in the order in which they were made. dies: for each process in turn, the calls that it answers before it goes away;
    those that are not named live. `rooms`: how many processes find room at once; None: all. slow: numbers of processes that answer a part
    only after so many answers of others as `lag` says."""

    def __init__(self, dies: Iterable[int] = (), rooms: int | None = None, *, slow: Iterable[int] = (), lag: int = 10**6) -> None:
        self.dies, self.rooms, self.slow, self.lag = list(dies), rooms, set(slow), lag
        self.num_answers = 0
        self.options: dict[str, float] = {}
        self.living: list[Any] = []
        self.num_started = 0
        self.most_at_once = 0

    def remote(self, worker: Any) -> Any:
        def options(**given: float) -> Any:
            self.options = given
            return SimpleNamespace(remote=lambda *arguments: self._start(worker(*arguments)))

        return SimpleNamespace(options=options)

    def _start(self, body: Any) -> Any:
        left = self.dies[self.num_started] if self.num_started < len(self.dies) else 1000
        self.num_started += 1
        process = Mock(left=left)
        lag = self.lag if self.num_started - 1 in self.slow else 0

        def call(does: Any, lag: int = 0) -> Any:
            return Mock(
                remote=lambda *given: Mock(process=process, part=given, does=lambda: does(*given), is_due_at=self.num_answers + lag)
            )

        process.__ray_ready__, process.work = call(lambda: True), call(body.work, lag)
        self.living.append(process)
        return process

    def wait(self, refs: list[Any], *, num_returns: int) -> tuple[list[Any], list[Any]]:
        assert num_returns == 1
        running = [ref for ref in refs if ref.process in self.living[: self.rooms]]
        self.most_at_once = max(self.most_at_once, len({id(ref.process) for ref in running}))
        first = next((ref for ref in running if ref.is_due_at <= self.num_answers), min(running, key=lambda ref: ref.is_due_at))
        self.num_answers += 1
        return [first], [ref for ref in refs if ref is not first]

    def get(self, ref: Any) -> Any:
        if ref.process.left == 0:
            self.kill(ref.process)
            raise ActorDiedError
        ref.process.left -= 1
        return ref.does()

    def kill(self, process: Any) -> None:
        if process in self.living:
            self.living.remove(process)


def _over(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, num_parts: int = 6, *, parts: Iterable[int] | None = None, **options: Any
) -> Any:
    for name in ("remote", "wait", "get", "kill"):
        monkeypatch.setattr(pool.ray, name, getattr(cluster, name))
    return over_workers(Squarer, (), range(num_parts) if parts is None else parts, **{"demand": DEMAND, "where": "squares"} | options)


SQUARES = {part: part * part for part in range(6)}
WORKERS = 5


def _ahead(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *, num_parts: int = 60, ahead: float = 2) -> tuple[list[int], int]:
    """The parts as they were answered, and how many answers waited at most for one that came before them."""
    found: list[int] = []
    waiting: list[int] = []
    demand = replace(DEMAND, workers=WORKERS)
    for part, square in _over(monkeypatch, cluster, num_parts, demand=demand, ahead_per_worker=ahead):
        assert square == part * part
        found.append(part)
        missing = next(one for one in count() if one not in found)
        waiting.append(sum(one > missing for one in found))
    return found, max(waiting)


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


def test_every_part_is_done_once_whoever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes: tuple[tuple[list[int], int | None, int], ...] = (
        ([], None, 2),
        ([], 1, 2),  # there is room for one
        ([0], None, 3),  # one dies before it begins
        ([2], None, 3),  # one dies with a part
        ([0], 1, 3),
        ([1, 1], 1, 4),  # each dies with its first part
    )
    for dies, rooms, num_started in scenes:
        for ahead in (math.inf, 2, 1):
            cluster = Cluster(dies, rooms)
            found = list(_over(monkeypatch, cluster, ahead_per_worker=ahead))
            assert dict(found) == SQUARES and len(found) == len(SQUARES)
            assert cluster.options == {"num_cpus": 1.5, "num_gpus": 0.5, "resources": None}, "what the demand says of each"
            assert cluster.num_started == num_started and not cluster.living, "each lost one is replaced, and none is left"
            assert cluster.most_at_once == (rooms or DEMAND.workers)


def test_a_slow_worker_holds_up_neither_memory_nor_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before its turn waits for the slow one's part, which is done by one of those that would have nothing to do."""
    found, waiting = _ahead(monkeypatch, cluster := Cluster(slow=[0]))
    assert sorted(found) == list(range(60)) and waiting < 2 * WORKERS
    assert found.index(0) < 3 * WORKERS, "not at the end"
    assert not cluster.living and cluster.num_started == WORKERS
    assert cluster.num_answers < 60 + 2 * WORKERS + 2, "hardly anything is done twice"
    assert _ahead(monkeypatch, Cluster(slow=[0]), ahead=math.inf)[1] > 50, "where order does not matter"


def test_what_is_done_twice_is_given_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow ones that come to their end after all, too, and workers that are lost meanwhile."""
    for lag in (3, 40):
        for dies in ([], [0, 1, 2, 3], [1000, 3, 3, 3, 3, 2]):
            found, waiting = _ahead(monkeypatch, cluster := Cluster(dies, slow=[0, 3, 6], lag=lag))
            assert sorted(found) == list(range(60)) and waiting < 2 * WORKERS and not cluster.living


def test_workers_that_die_before_they_begin_are_counted_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that refuses processes now and then must not end a pool of many hours."""
    now_and_then = [number % 2 for number in range(2 * LOSSES_PER_PART + 4)]  # dies at once, or with its first part
    assert dict(_over(monkeypatch, Cluster(now_and_then, rooms=1), num_parts=6)) == SQUARES
    with pytest.raises(ResourceError, match="workers that die before they begin"):
        list(_over(monkeypatch, Cluster([0] * 100)))


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


def test_sentences_without_a_known_word_are_counted_where_workers_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the corpus, whatever order tiles come back in. Who searches a file of embeddings takes no GPU."""
    given = Mock()
    _there(monkeypatch, nearest, given)
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
    over_workers: Any = nearest.search_over_workers
    for embeddings, gpus, line in (
        (None, 1.0, "over 2 workers, on 2 GPU(s)"),
        (Path("x.npy"), 0.0, "over 2 workers, on CPUs; idle: 4 GPU(s)"),
    ):
        reader = TileReader(encoder=SameEncoder(use=EncoderUse(checkpoint="x"), digest=None), embeddings=embeddings)
        unknown, corpus, told = UnknownWords(), SimpleNamespace(tiles=partial(iter, tiles if embeddings is None else ())), list[str]()
        options: dict[str, Any] = {"depth": 1, "runtime": Runtime(workers=2), "unknown": unknown, "tell": told.append}
        found = list(over_workers(search, corpus, reader, np.ones((1, 2)), **options))
        assert found == ([2, 4, 6] if embeddings is None else []) and told[0].startswith(line)
        assert (unknown.num_sentences, unknown.first) == ((3, "?1") if embeddings is None else (0, ""))
        assert given.call_args.kwargs["demand"].num_gpus == given.call_args.args[0][-1].gpus_per_worker == gpus


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
