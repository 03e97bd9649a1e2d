"""Stages in shards: into how many a corpus is cut for its workers, and that cutting changes nothing."""

from __future__ import annotations

import pickle
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from sentdist.data.tagging import read_counts
from sentdist.errors import ArtifactLost, DataError
from sentdist.execution.parallel.pool import rows_per_part
from sentdist.execution.parallel.shards import ShardMaker, build_over_ranks
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.sections import Runtime
from sentdist.plan.stages import Targets
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.sharded import ShardedBody, body_of, build_in_shards, shard_name
from sentdist.stages.train_setup import Ranks
from sentdist.store.store import Artifact, ArtifactStore
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


@pytest.mark.parametrize(
    ("num_sentences", "workers", "expected"),
    [
        (100, 8, 512),  # one shard: not worth cutting
        (80_000, 2, 10_000),  # four for each worker
        (10_000_000, 2, 65_536),  # never more than the runtime's
    ],
)
def test_every_worker_has_several_shards_where_there_is_enough_to_do(num_sentences: int, workers: int, expected: int) -> None:
    assert rows_per_part(num_sentences, Runtime(workers=workers)) == expected


@pytest.fixture(scope="module")
def tagging(tmp_path_factory: pytest.TempPathFactory) -> tuple[Targets, Context]:
    """A targets stage whose corpus is built, over four shards."""
    recipe = tiny_values(Path("minilm-l6")) | {
        "evaluation": {"tasks": ["stsb"], "probes": {}},
        "targets": {"tagger": "tests.support.tiny_tagger:tag", "num_words": 12},
        "methods": {"base": {}},
        "baseline": None,
        "runtime": {"rows_per_shard": 40},
    }
    plan, context = tiny_plan(recipe, data=write_data(tmp_path_factory.mktemp("data")), store=tmp_path_factory.mktemp("store"))
    for stage in plan.stages:
        if isinstance(stage, RowsCorpus):
            build_here(stage, context)
    (targets,) = (stage for stage in plan.stages if isinstance(stage, Targets))
    return targets, context


def test_a_stage_in_shards_is_the_stage_in_one(tagging: tuple[Targets, Context], tmp_path: Path) -> None:
    stage, context = tagging
    body = body_of(stage, context)
    cut = context.store.folder(build_in_shards(stage, context, body=body))
    (tmp_path / "shards").mkdir()
    whole = tmp_path / shard_name(0, body)
    with whole.open("wb") as file:
        body.write(range(body.num_rows), file)
    body.finish(tmp_path, [whole], rows_per_shard=body.num_rows)
    assert body.num_rows > 80
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in cut.iterdir() if path.name != "record.json")
    assert all((tmp_path / name).read_bytes() == (cut / name).read_bytes() for name in names)


def test_workers_write_shards_where_they_can_and_hand_them_back_where_they_cannot(tagging: tuple[Targets, Context], tmp_path: Path) -> None:
    stage, context = tagging
    (tmp_path / "shards").mkdir()
    writes, hands = (ShardMaker(stage, context, 40, folder, None) for folder in (tmp_path, None))
    said, handed = writes.work(2), hands.work(2)
    assert not said
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["00002.npz"], "nothing half written is left"
    assert (tmp_path / "shards/00002.npz").stat().st_size == len(handed) > 0
    first, again = read_counts(tmp_path / "shards/00002.npz")[1], read_counts(BytesIO(handed))[1]
    assert first.names == again.names


@pytest.mark.parametrize("is_shared", [True, False])
def test_no_worker_of_a_group_waits_longer_than_a_shard_takes(
    tagging: tuple[Targets, Context], tmp_path: Path, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process group gives up a worker that is waited for too long: here after three times what a shard takes, of at least four."""
    stage, context = tagging
    store = ArtifactStore(tmp_path / "store")
    corpus = context.store.get(stage.corpus)
    assert corpus is not None
    shutil.copytree(context.store.folder(corpus), tmp_path / "store" / corpus.record.place)
    monkeypatch.setattr(ArtifactStore, "is_shared", is_shared)
    takes_s = 0.4
    meeting, said = threading.Barrier(2, timeout=3 * takes_s), [None, None]

    def exchange(rank: int, value: object) -> list[object]:
        said[rank] = value  # type: ignore[call-overload]
        meeting.wait()
        found = list(said)
        meeting.wait()
        return found

    class Slow:
        def __init__(self, body: ShardedBody) -> None:
            self.body = body

        def __getattr__(self, name: str) -> Any:
            return getattr(self.body, name)

        def write(self, rows: range, file: Any) -> None:
            time.sleep(takes_s)
            self.body.write(rows, file)

    def build(rank: int) -> Artifact | None:
        ranks = Ranks(rank=rank, world_size=2, exchange=partial(exchange, rank), gather=partial(exchange, rank))
        there = replace(context, store=store)
        return build_over_ranks(stage, there, ranks, make_body=lambda: cast(ShardedBody, Slow(body_of(stage, there))))

    with ThreadPoolExecutor(2) as pool:
        first, other = pool.map(build, range(2))
    assert first is not None and other is None
    whole = context.store.get(stage) or build_in_shards(stage, context, body=body_of(stage, context))
    made = {name: digest for name, digest in first.record.digests.items() if "shards" not in name}
    assert made == {name: whole.record.digests[name] for name in made} and len(made) > 0


def test_a_shard_of_an_input_that_changes_under_its_worker_is_not_handed_on(tagging: tuple[Targets, Context], tmp_path: Path) -> None:
    stage, context = tagging
    shutil.copytree(context.store.base, tmp_path / "store")
    there = replace(context, store=ArtifactStore(tmp_path / "store"))
    worker = ShardMaker(stage, there, 40, None, None)
    assert worker.work(0) and worker.work(1)
    rows = tmp_path / "store" / stage.corpus.place / "rows.arrow"
    with rows.open("r+b") as file:
        file.seek(rows.stat().st_size // 2)
        file.write(b"?")
    with pytest.raises(ArtifactLost, match=r"rows\.arrow: changed while it was read"):
        worker.work(2)


def test_a_worker_loads_nothing_before_its_first_part_and_its_error_survives_the_way(tagging: tuple[Targets, Context]) -> None:
    stage, context = tagging
    missing = stage.model_copy(update={"tagger": "no_such_module:tag"})
    maker = ShardMaker(missing, context, 40, None, None)  # an error here would be reported as the death of an actor
    with pytest.raises(DataError, match="no_such_module") as raised:
        maker.work(0)
    assert type(pickle.loads(pickle.dumps(raised.value))) is DataError
